"""One accelerator: what its sheet states, and the numbers that follow from it. Units are SI."""

from __future__ import annotations

from dataclasses import dataclass

from .. import InputError

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")
GENERATIONS = ("ampere", "ada", "hopper", "blackwell-rtx", "blackwell")
MIB = 1 << 20
MAX_NAME = 100


@dataclass(frozen=True)
class Memory:
    """Capacities and bandwidth of device memory; what no source gives stays None.

    `label_gb` is printed on the box, `nominal_bytes` what that label means (vendors' "GB" is
    almost always 2^30), `driver_mib` what nvidia-smi reports (`driver_basis`: seen or recalled)
    and `usable_bytes` what a CUDA program can have. `bandwidth_gb_per_s` is decimal.
    """

    bandwidth_gb_per_s: float
    type: str = ""
    label_gb: float | None = None
    nominal_bytes: int | None = None
    driver_mib: int | None = None
    driver_basis: str = ""
    usable_bytes: int | None = None
    l2_mib: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bandwidth_gb_per_s <= 1e6:
            raise InputError(f"bandwidth_gb_per_s is not between 1 and 1e6: {self.bandwidth_gb_per_s:g}")
        for name in ("label_gb", "nominal_bytes", "driver_mib", "usable_bytes", "l2_mib"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1 << 50:
                raise InputError(f"{name} must be positive, not {value}")
        if self.driver_basis not in ("", "seen", "recalled"):
            raise InputError(f"driver_basis is seen or recalled, not '{self.driver_basis}'")


@dataclass(frozen=True)
class Compute:
    """Cores (SMs, CUs), the clock of the quoted peak, and dense 16-bit FLOP per clock and core."""

    cores: int | None = None
    clock_ghz: float | None = None
    flops_per_clock_per_core: int | None = None

    def __post_init__(self) -> None:
        for name in ("cores", "clock_ghz", "flops_per_clock_per_core"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1e9:
                raise InputError(f"{name} must be positive, not {value}")

    @property
    def clocks_per_s(self) -> float | None:
        """Of all cores together, or None where their number or their clock is not known."""
        return None if self.cores is None or self.clock_ghz is None else self.cores * self.clock_ghz * 1e9

    @property
    def flops_per_s(self) -> float | None:
        """Cores x FLOP/clock/core x clock, or None where one of them is not known."""
        clocks, each = self.clocks_per_s, self.flops_per_clock_per_core
        return None if clocks is None or each is None else clocks * each


@dataclass(frozen=True)
class Price:
    """On-demand price of one device, where and when it was read."""

    usd_per_hour: float
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.usd_per_hour <= 1e4:
            raise InputError(f"usd_per_hour must be between 0 and 10,000, not {self.usd_per_hour:g}")


@dataclass(frozen=True)
class Gpu:
    """An accelerator as its sheet states it.

    `peaks`: dense FLOP/s by dtype with the accumulator that PyTorch GEMMs use (fp32; int32 for
    integers); `fp16_accumulate_peaks` where a part is faster with a narrower accumulator.
    `sparsity`: how many times its dense peak a product of 2:4-sparse weights in fp16, bf16, fp8 or int8
    reaches (2 by the datasheets of NVIDIA's from Ampere on and of CDNA3 and CDNA4; None: no such units, or
    no source). `link_gb_per_s` sums both directions; up to 128 it is taken to be the host's PCIe, above to
    join all ranks, and `link` says bridge where it is NVLink between two cards. `dies`: devices a program
    sees in one package.
    `generation` of its tensor cores decides the shapes of tiles and whose measured kernels are like its own
    (blackwell is the data centre's, with HBM; "" where none of these). `aliases`: other names that people
    type. `torch_name`: what torch.cuda.get_device_name prints, or words or a pattern in it.
    """

    name: str
    title: str
    vendor: str
    source: str
    peaks: tuple[tuple[str, float], ...]
    memory: Memory
    compute: Compute = Compute()
    fp16_accumulate_peaks: tuple[tuple[str, float], ...] = ()
    sparsity: float | None = None
    architecture: str = ""
    generation: str = ""
    year: int | None = None
    link_gb_per_s: float | None = None
    link: str = ""
    power_w: float | None = None
    price: Price | None = None
    dies: int = 1
    confidence: str = "high"
    derivation_exception: str = ""
    notes: str = ""
    aliases: tuple[str, ...] = ()
    torch_name: str = ""

    def __post_init__(self) -> None:
        # Calibrations are files of this name.
        if not 1 <= len(self.name) <= MAX_NAME or any(ch in "/\\\n" for ch in self.name):
            raise InputError(f"name is a word of up to {MAX_NAME} characters without / and \\")
        if not self.peaks:
            raise InputError("peak_tflops names no dtype")
        for dtype, value in (*self.peaks, *self.fp16_accumulate_peaks):
            if dtype not in DTYPES:
                raise InputError(f"'{dtype}' is not a dtype of peaks; allowed: {', '.join(DTYPES)}")
            if not 1e9 <= value <= 1e18:
                raise InputError(f"peak of {dtype} is not between 0.001 and 1e6 TFLOP/s: {value / 1e12:g}")
        for name, most in (("link_gb_per_s", 1e6), ("power_w", 1e5), ("year", 3000)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= most:
                raise InputError(f"{name} must be between 0 and {most:g}, not {value:g}")
        if self.sparsity is not None and not 1 <= self.sparsity <= 16:
            raise InputError(f"sparsity is a factor between 1 and 16, not {self.sparsity:g}")
        if self.link not in ("", "bridge"):
            raise InputError(f"link is bridge, or not given, not '{self.link[:40]}'")
        if self.confidence not in ("high", "medium", "low"):
            raise InputError(f"confidence is high, medium or low, not '{self.confidence}'")
        if self.generation not in ("", *GENERATIONS):
            raise InputError(f"generation is {', '.join(GENERATIONS)} or none, not '{self.generation[:40]}'")
        if self.dies < 1 or self.dies > 64:
            raise InputError(f"dies must be between 1 and 64, not {self.dies}")

    def peak(self, dtype: str) -> float | None:
        """Dense FLOP/s of `dtype`, or None where the part has no such unit (or no source says)."""
        return dict(self.peaks).get(dtype)

    @property
    def is_cpu(self) -> bool:
        """Whether the sheet is of a processor and not of an accelerator."""
        return self.name.startswith("cpu")

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth in bytes per second."""
        return self.memory.bandwidth_gb_per_s * 1e9

    @property
    def capacity_bytes(self) -> int | None:
        """The tightest known capacity: usable, else the driver's, else the label's."""
        if self.memory.usable_bytes is not None:
            return self.memory.usable_bytes
        if self.memory.driver_mib is not None:
            return self.memory.driver_mib * MIB
        return self.memory.nominal_bytes
