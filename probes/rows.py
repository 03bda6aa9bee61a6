"""Kernels over rows: one entry says how each is made, what it moves, what it stands for, where it is probed.

Both suites, the kernels that run and the groups that a calibration keeps are read from here. Adding one is
a function under `@row_probe` and a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..costmodel.op import Gather, Pointwise
from ..costmodel.times.expected import row_op

Made = tuple[Callable[[], Any], Callable[[], Any], tuple[Any, ...]]
"""What launches a kernel and gives its result, the float64 answer to it, and the tensors that it moves beside
its input."""
RowWork = Callable[[str, int, int, int, float, float], Pointwise | Gather]
GATHER = "gather"
BYTES = {"cpu": 4, "cuda": 2}
"""Bytes of each value where a suite probes it: fp32 on a CPU, bf16 on a GPU."""


def rows_op(name: str, rows: int, columns: int, each: int, reads: float, writes: float) -> Pointwise:
    """A pointwise kernel over [rows, columns] values of `each` bytes."""
    return Pointwise(name, rows * columns, reads, writes, 0, activation_bytes=each, rows=rows)


def appended(name: str, rows: int, columns: int, each: int, reads: float, writes: float) -> Pointwise:
    """The same where what is written goes to the cache."""
    written = int(rows * columns * each * writes)
    return Pointwise(name, rows * columns, reads, 0, 0, kv_bytes=written, activation_bytes=each, rows=rows)


def gathered(name: str, rows: int, columns: int, each: int, reads: float, writes: float) -> Gather:
    """Rows that are looked up in the cache."""
    return Gather(rows, columns, columns * each, True, each)


class Shape(NamedTuple):
    """Where a suite probes it, as which part, and what its id then ends in."""

    rows: int
    columns: int
    part: str
    suffix: str = ""


@dataclass(frozen=True)
class RowProbe:
    """`cls` begins its id and is its class; `name` is its work's and its group's; `reads` and `writes`
    activations moved per value. No shape for a suite: not probed there, or streamed at several sizes."""

    cls: str
    name: str
    make: Callable[[Any, Any], Made]
    reads: float
    writes: float
    makes: RowWork
    cpu: Shape | None
    cuda: Shape | None
    stands_for: tuple[str, ...] | None

    def work(self, rows: int, columns: int, each: int) -> Pointwise | Gather:
        return self.makes(self.name, rows, columns, each, self.reads, self.writes)

    @property
    def groups(self) -> tuple[str, ...]:
        """Under which names its constants are kept: its own, and those that the cost model asks for."""
        if self.stands_for is not None:
            return (self.name, *self.stands_for)
        asked = row_op(self.name)
        return (self.name, asked) if asked else (self.name,)


def name_of(work: Pointwise | Gather) -> str:
    """Its name in `ROW_PROBES`, and that of its group."""
    return GATHER if isinstance(work, Gather) else work.name


ROW_PROBES: dict[str, RowProbe] = {}
"""Every one by the name of its work, in the order in which they run."""


def row_probe(
    cls: str,
    name: str = "",
    *,
    reads: float,
    writes: float,
    makes: RowWork = rows_op,
    cpu: Shape | None = None,
    cuda: Shape | None = None,
    stands_for: tuple[str, ...] | None = None,
) -> Callable[[Callable[[Any, Any], Made]], Callable[[Any, Any], Made]]:
    """Register the kernel that the function below makes of its input and torch.

    `stands_for`: operations of the cost model that are timed as it is; None: the one that its name says.
    """

    def registered(make: Callable[[Any, Any], Made]) -> Callable[[Any, Any], Made]:
        own = name or cls.rpartition(".")[2]
        if own in ROW_PROBES:
            raise ValueError(f"two row probes are called {own}")
        ROW_PROBES[own] = RowProbe(cls, own, make, reads, writes, makes, cpu, cuda, stands_for)
        return make

    return registered


@row_probe("bw.read", reads=1, writes=0)
@row_probe(
    "kv.read", "kv_read", reads=1, writes=0, cpu=Shape(16384, 2048, "fit"), cuda=Shape(1 << 18, 1024, "fit")
)
def _read(x: Any, torch: Any) -> Made:
    x.add_(1.0)  # so that the sum is large and its error can be told from its value
    return lambda: torch.sum(x), lambda: x.double().sum(), ()


@row_probe(
    "kv.gather",
    GATHER,
    reads=1,
    writes=1,
    makes=gathered,
    stands_for=("emb",),
    cpu=Shape(512, 16 * 2048, "fit"),
    cuda=Shape(1 << 14, 16 * 1024, "fit"),
)
def _gather(x: Any, torch: Any) -> Made:
    """Pages of a cache through a block table."""
    pool = torch.cat((x, torch.randn_like(x)))
    table = torch.randperm(len(pool), device=x.device)[: len(x)]
    out = torch.empty_like(x)

    def launch() -> Any:
        return torch.index_select(pool, 0, table, out=out)

    return launch, lambda: pool[table].double(), (out,)


@row_probe(
    "kv.append",
    "kv_append",
    reads=1,
    writes=1,
    makes=appended,
    cpu=Shape(64, 2048, "report"),
    cuda=Shape(4096, 2048, "report"),
)
def _append(x: Any, torch: Any) -> Made:
    """Rows written into a cache at places of their own."""
    cache = torch.zeros(4 * x.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    place = torch.randperm(cache.shape[0], device=x.device)[: x.shape[0]]

    def launch() -> Any:
        return cache.index_copy_(0, place, x)

    def exact() -> Any:
        out = torch.zeros_like(cache).double()
        out[place] = x.double()
        return out

    return launch, exact, (x,)


@row_probe("bw.write", reads=0, writes=1)
def _write(x: Any, torch: Any) -> Made:
    return lambda: x.fill_(1.0), lambda: torch.ones_like(x).double(), ()


@row_probe("bw.copy", reads=1, writes=1, stands_for=("add", "attn_rope"))
def _copy(x: Any, torch: Any) -> Made:
    out = torch.empty_like(x)
    return lambda: torch.add(x, 0, out=out), lambda: x.double(), (out,)


@row_probe("bw.triad", reads=2, writes=1)
def _triad(x: Any, torch: Any) -> Made:
    y, out = torch.randn_like(x), torch.empty_like(x)
    return lambda: torch.add(x, y, alpha=3.0, out=out), lambda: x.double() + 3 * y.double(), (y, out)


@row_probe("ptw.norm", reads=1, writes=1, cpu=Shape(4096, 4096, "report"), cuda=Shape(8192, 4096, "fit"))
def _rmsnorm(x: Any, torch: Any) -> Made:
    weight = torch.randn_like(x[0])

    def launch() -> Any:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

    def exact() -> Any:
        d = x.double()
        return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-6) * weight.double()

    return launch, exact, (x,)


@row_probe(
    "ptw.silu",
    reads=1,
    writes=1,
    stands_for=(),
    cpu=Shape(4096, 4096, "report"),
    cuda=Shape(8192, 14336, "fit"),
)
def _silu(x: Any, torch: Any) -> Made:
    out = torch.empty_like(x)
    exact = torch.nn.functional.silu
    return lambda: torch.ops.aten.silu.out(x, out=out), lambda: exact(x.double()), (out,)


@row_probe("ptw.mul", reads=2, writes=1, cpu=Shape(4096, 4096, "fit"), cuda=Shape(8192, 14336, "fit"))
def _mul(x: Any, torch: Any) -> Made:
    y, out = torch.randn_like(x), torch.empty_like(x)
    return lambda: torch.mul(x, y, out=out), lambda: x.double() * y.double(), (y, out)


@row_probe(
    "ptw.softmax",
    reads=1,
    writes=1,
    cpu=Shape(16, 128_256, "report", "128k"),
    cuda=Shape(64, 128_256, "report", "128k"),
)
def _softmax(x: Any, torch: Any) -> Made:
    out = torch.empty_like(x)
    return lambda: torch.softmax(x, -1, out=out), lambda: torch.softmax(x.double(), -1), (out,)
