"""How fast a request goes, and what each of its phases waits for, in words."""

from __future__ import annotations

from typing import Any

from .text import percent, seconds

NEAR_A_ROOF = 0.25
"""Use of a roof below which a phase is not said to wait for it: kernels start, the host works."""


def pace(point: dict[str, Any]) -> str:
    """Of a point of `infercost request`: first token, time per token and rate, each phase with its roof."""
    phases, parts = point["phases"], []
    if "prefill" in phases:
        first = seconds(best(point["ttft_s"]))
        parts.append(f"first token after {first}, waits for {waits(phases['prefill'])}")
    if "decode" in phases:
        parts.append(f"{seconds(best(point['tpot_s']))} a token, waits for {waits(phases['decode'])}")
    return "; ".join([*parts, f"{rate(point['output_tokens_per_s'])} output tokens/s end to end"])


def best(times: dict[str, float | None]) -> float | None:
    """Expected seconds, or the floor where nothing is expected."""
    return times["floor"] if times["expected"] is None else times["expected"]


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def waits(phase: dict[str, Any] | None) -> str:
    """What a phase waits for: the larger of its uses of the arithmetic units and of memory, if it is much of
    either."""
    if phase is None:
        return "-"
    if phase.get("host_link_share", 0) > max(phase["mfu"], phase["mbu"], NEAR_A_ROOF):
        return f"the host's link ({percent(phase['host_link_share'])} of the time)"
    if max(phase["mfu"], phase["mbu"]) < NEAR_A_ROOF:
        return f"neither roof (MFU {percent(phase['mfu'])}, MBU {percent(phase['mbu'])})"
    if phase["mfu"] > phase["mbu"]:
        return f"arithmetic (MFU {percent(phase['mfu'])})"
    return f"memory (MBU {percent(phase['mbu'])})"
