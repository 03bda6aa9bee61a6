"""Each family of kernels: its formula, and what a fit of its constants tries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import InputError
from ...hardware.calibration import Calibration, Key
from .collectives import CUSTOM, CUSTOM_PCIE, PCIE, RING, custom_s, pcie_s, ring_s
from .decode import DECODE, MLA_DECODE, XQA, decode_s, mla_decode_s, xqa_s
from .device import Device
from .experts import MOE, layer_s
from .family import Family, Params
from .gemm import GEMM, gemm_forms, gemm_s
from .pointwise import POINTWISE, PROJECTION, pointwise_s, projection_s
from .prefill import MLA_PREFILL, PREFILL, prefill_kernel_s, prefill_start
from .share import SHARE, share_s

Forms = tuple[str, ...]


class Times(NamedTuple):
    """A family, and its formula.

    `begin`: where a fit starts for a group, beside the family's own starts.
    `table`: the name under which errors of like families are pooled. `shared`: a fit begins at, and is
    pulled to, constants fitted over all groups of the same stack; `neighbours`: to the middle of those
    of other groups, the nearer the more.
    """

    family: Family
    table: str
    seconds: Callable[[Any, Device, Params, Any], Any]
    tried: Callable[[Any], Forms] | None = None
    shared: bool = False
    neighbours: bool = False
    begin: Callable[[Key, Device], Params] | None = None

    def time_s(self, work: Any, on: Device, params: Params, working_set: Any = None) -> Any:
        """Seconds of `work` by the formula that the constants are of."""
        if params.get("form") == "share":
            return share_s(work, on, params)
        return self.seconds(work, on, params, working_set)

    def forms(self, work: Any) -> Forms:
        """The forms that a fit to such works tries."""
        return self.tried(work) if self.tried else tuple(self.family.forms)


FAR_BEYOND = 10.0


def check_parameters(calibration: Calibration) -> None:
    """Refuse constants that no formula has, or that are far outside the range a fit may give them.

    Raises InputError naming the group, the constant and what is allowed.
    """
    for name, groups in calibration.families.items():
        for group in groups:
            family = SHARE if group.form == "share" else TIMES[name].family
            for each, value in group.params:
                known = family.parameters.get(each)
                where = f"{calibration.device}, {name}, {group.key}"
                if known is None:
                    allowed = ", ".join(family.parameters)
                    raise InputError(f"{where}: no constant is called '{each[:40]}'; there are {allowed}")
                usual = known.low / FAR_BEYOND <= value <= known.high * FAR_BEYOND
                if not usual and value != known.fixed:
                    allowed = f"{known.low:g} to {known.high:g}"
                    raise InputError(f"{where}: {each} is {value:g}, far from what a fit gives it: {allowed}")


TIMES: Mapping[str, Times] = {
    "gemm": Times(GEMM, "gemm", gemm_s, tried=gemm_forms),
    "prefill": Times(PREFILL, "prefill", prefill_kernel_s, begin=prefill_start),
    "decode": Times(DECODE, "decode", decode_s),
    "decode_xqa": Times(XQA, "decode", xqa_s),
    "mla_prefill": Times(MLA_PREFILL, "mla", prefill_kernel_s, begin=prefill_start),
    "mla_decode": Times(MLA_DECODE, "mla", mla_decode_s),
    "moe": Times(MOE, "moe", layer_s, neighbours=True),
    "pointwise": Times(POINTWISE, "pointwise", pointwise_s),
    "head_projection": Times(PROJECTION, "pointwise", projection_s),
    "collective": Times(RING, "collective", ring_s, shared=True),
    "collective_pcie": Times(PCIE, "collective", pcie_s, shared=True),
    "custom_all_reduce": Times(CUSTOM, "custom_all_reduce", custom_s),
    "custom_pcie": Times(CUSTOM_PCIE, "custom_all_reduce", pcie_s),
}
