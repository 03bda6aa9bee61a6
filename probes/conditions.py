"""Under what conditions something was measured, by reading only: clocks, power, heat, other work.

NVML is asked through its getters alone; nothing here can change a setting. What makes a measurement
worthless (throttled, busy) is `trouble`, in a person's words.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, NamedTuple

THROTTLE = {
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}
"""Clock-event reasons that void a measurement. The power cap (0x4) is normal under load and recorded."""
POWER_CAP = 0x4
WATCH_S = 0.05
SM_CLOCK = 1
"""NVML_CLOCK_SM."""


class Conditions(NamedTuple):
    """`clean`, `power_capped`, `throttled`, `busy` or `unknown`; `trouble` says why it voids a reading."""

    verdict: str
    trouble: str
    sm_mhz: tuple[float, float] = (0.0, 0.0)
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()
    other_processes: int = 0
    mig: bool = False
    ecc: bool | None = None
    load_average: float | None = None
    run_delay: float | None = None


class CpuWatch:
    """Load average and how long this thread waited to run; the CPU clock does not count the waiting."""

    def __enter__(self) -> CpuWatch:
        self._delay, self._wall = _run_delay_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def whole(self) -> Conditions:
        return self.conditions()

    def sm_mhz(self) -> float:
        return 0.0

    def conditions(self) -> Conditions:
        delay, wall = _run_delay_s(), time.monotonic() - self._wall
        waited = None
        if delay is not None and self._delay is not None and wall > 0:
            waited = (delay - self._delay) / wall
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return Conditions("clean", "", load_average=load, run_delay=waited)


def _run_delay_s() -> float | None:
    """Seconds this thread was ready and did not run (Linux)."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


class GpuWatch:
    """Samples NVML while the suite runs. `nvml` is the module `pynvml`, or None where it is absent.

    `uuid` names the card: NVML's numbers are not CUDA's under CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, index: int, nvml: Any, uuid: str = "") -> None:
        self._nvml, self._handle = nvml, None
        self._samples: list[tuple[float, float, float, int]] = []
        self._past: list[tuple[float, float, float, int]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if nvml is not None:
            try:
                nvml.nvmlInit()
            except Exception:  # a driver that does not fit: nothing can be said
                return
            named = _ask(nvml, "nvmlDeviceGetHandleByUUID", uuid) if uuid else None
            self._handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index) if named is None else named

    def __enter__(self) -> GpuWatch:
        if self._handle is not None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.sample()
            self._stop.wait(WATCH_S)

    def sample(self) -> None:
        """One reading of clock, temperature, power and throttle reasons; what is not there is zero."""
        n, h = self._nvml, self._handle
        self._samples.append(
            (
                float(_ask(n, "nvmlDeviceGetClockInfo", h, SM_CLOCK) or 0),
                float(_ask(n, "nvmlDeviceGetTemperature", h, 0) or 0),
                float(_ask(n, "nvmlDeviceGetPowerUsage", h) or 0) / 1000,
                int(self._reasons() or 0),
            )
        )

    def _reasons(self) -> int | None:
        found: int | None = _ask(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if found is None:
            found = _ask(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        return found

    def conditions(self) -> Conditions:
        """Since the last call: what was seen, and whether it voids what was measured."""
        if self._handle is None:
            return Conditions("unknown", "")
        self.sample()
        samples, self._samples = self._samples, []
        self._past += samples
        return self._over(samples)

    def whole(self) -> Conditions:
        """The same of the whole run."""
        if self._handle is None:
            return Conditions("unknown", "")
        return self._over([*self._past, *self._samples]) if self._past else self.conditions()

    def sm_mhz(self) -> float:
        """The SM clock now; 0 where it cannot be read."""
        if self._handle is None:
            return 0.0
        return float(_ask(self._nvml, "nvmlDeviceGetClockInfo", self._handle, SM_CLOCK) or 0)

    def _over(self, samples: list[tuple[float, float, float, int]]) -> Conditions:
        bits = 0
        for sample in samples:
            bits |= sample[3]
        reasons = tuple(name for bit, name in THROTTLE.items() if bits & bit)
        others = self._others()
        mode = _ask(self._nvml, "nvmlDeviceGetMigMode", self._handle)
        ecc = _ask(self._nvml, "nvmlDeviceGetEccMode", self._handle)
        verdict, trouble = "clean", ""
        if reasons:
            verdict, trouble = "throttled", f"throttled: {', '.join(reasons)}"
        elif others:
            verdict, trouble = "busy", f"{others} other process{'es' if others > 1 else ''} on the GPU"
        elif bits & POWER_CAP:
            verdict = "power_capped"
        clocks = [sample[0] for sample in samples]
        return Conditions(
            verdict,
            trouble,
            (min(clocks), max(clocks)),
            max(sample[1] for sample in samples),
            sum(sample[2] for sample in samples) / len(samples),
            reasons,
            others,
            bool(mode and mode[0]),
            None if ecc is None else bool(ecc[0]),
        )

    def _others(self) -> int:
        """Processes on the card besides this one, which may have another number outside its container."""
        running = _ask(self._nvml, "nvmlDeviceGetComputeRunningProcesses", self._handle) or []
        return max(0, len(running) - 1)


def _ask(nvml: Any, getter: str, *args: Any) -> Any:
    """A getter's answer, or None where this driver or part has none."""
    assert getter.startswith("nvmlDeviceGet")
    try:
        return getattr(nvml, getter)(*args)
    except Exception:  # NVML raises a class of its own for each "not supported"
        return None
