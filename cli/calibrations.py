"""`--calibration auto|PATH|none`: which constants a command's expected times are computed with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from .. import InputError
from ..costmodel.times.expected import Clock
from ..costmodel.times.families import check_parameters
from ..costmodel.times.transfer import Calibrated
from ..hardware.calibration_sheet import all_shipped, load_calibration, saved, shipped
from ..hardware.catalogue import is_known, load_builtin, load_gpu
from ..hardware.spec import Gpu

Library = Callable[[Gpu], Iterable[Calibrated]]


def library_of(option: str, gpu: Gpu | None = None) -> Library:
    """Calibrations for a GPU: `auto` those that ship, `none` nothing, else a file (before those).

    `gpu`: the sheet that a file's device is, where it is not a built-in name.
    """
    if option == "none":
        return lambda _: ()
    if option == "auto":
        return _shipped_for
    mine = load_calibration(option)
    check_parameters(mine)
    if gpu is not None and gpu.name == mine.device:
        device = gpu
    elif is_known(mine.device):
        device = load_gpu(mine.device)
    else:
        raise InputError(f"{option}: device '{mine.device[:60]}' is no known GPU; --gpu takes its sheet")
    own = Calibrated(device, mine)
    return lambda gpu: [own, *_shipped_for(gpu)]


def _shipped_for(gpu: Gpu) -> list[Calibrated]:
    """What was probed on this machine first, then everything that ships."""
    return _saved(gpu) + [Calibrated(load_builtin(name), one) for name, one in all_shipped().items()]


def _saved(gpu: Gpu) -> list[Calibrated]:
    mine = saved(gpu.name)
    if mine is None:
        return []
    check_parameters(mine)
    return [Calibrated(gpu, mine)]


@cache
def clock_of(option: str, gpu: Gpu) -> Clock | None:
    """Expected times on `gpu` by `--calibration`; None where it is `none`."""
    if option == "none":
        return None
    return Clock(gpu, *own_first(option, gpu))


def shipped_clock(gpu: Gpu) -> Clock:
    """Expected times by what ships alone: what a calibration of this machine is made from."""

    def library(_: Gpu) -> list[Calibrated]:
        return [Calibrated(load_builtin(name), one) for name, one in all_shipped().items()]

    one = shipped(gpu.name)
    return Clock(gpu, [Calibrated(gpu, one)] if one else library(gpu), library)


def own_first(option: str, gpu: Gpu) -> tuple[list[Calibrated], Library]:
    """The GPU's own calibration alone, and the whole library for what it does not cover."""
    library = library_of(option, gpu)
    if option != "auto":
        return list(library(gpu)), library
    one = shipped(gpu.name)
    own = _saved(gpu) + ([Calibrated(gpu, one)] if one else [])
    return own or list(library(gpu)), library
