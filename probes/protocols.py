"""How good the model is on what it was not fitted to: shapes kept out, GPUs kept out."""

from __future__ import annotations

from collections.abc import Sequence

from .. import InputError
from ..costmodel.times.transfer import Confidence
from ..hardware.spec import Gpu
from .calibrate import Cross, calibrations, cross_fit_all, leave_gpu_out
from .validate import Validation, gathered, predict


def cross_validated(paths: Sequence[str], gpu: Gpu | None = None) -> Validation:
    """Every row predicted from the other shape families of its group."""
    out = Validation()
    for cross in _crosses(paths, gpu, out):
        if not cross.held_out:
            out.excluded["of groups with one shape family: none to hold out"] += len(cross.batch.time_s)
            continue
        error = cross.error.median
        batch = cross.batch
        confidence = Confidence("calibrated", error, f"{cross.fitted.form} form", batch.gpu.name)
        out.add(paths[0], batch, cross.predicted_s, confidence)
    return out


def gpu_left_out(paths: Sequence[str], gpu: Gpu | None = None) -> Validation:
    """Every GPU predicted from the others' constants."""
    out = Validation()
    crosses = _crosses(paths, gpu, out)
    for cross, choice in leave_gpu_out(crosses, calibrations(crosses, "these files", "")):
        out.add(paths[0], cross.batch, predict(cross.batch, choice.params), choice.confidence)
    if not out.groups and crosses:
        raise InputError("--leave-gpu-out needs rows of two GPUs that share a family of kernels")
    return out


def _crosses(paths: Sequence[str], gpu: Gpu | None, out: Validation) -> list[Cross]:
    batches = list(gathered(paths, out.excluded, gpu))
    crosses = cross_fit_all(batches)
    few = sum(len(b.time_s) for b in batches) - sum(len(c.batch.time_s) for c in crosses)
    if few:
        out.excluded["of groups with too few rows to fit"] += few
    return crosses
