"""What "fits" means where neither an engine nor a share is named, and by how much a load does not."""

from __future__ import annotations

from ..costmodel.memory import SHARE, room_bytes
from ..hardware.spec import Gpu
from .text import size

PLANNED = f"{100 * SHARE:g} %"
FITS = f"the fullest rank within {PLANNED} of its card; null where the sheet has no capacity"
TOO_MUCH = f"!: more than {PLANNED} of the card; times are as if it fitted"


def too_much(rank_bytes: int, gpu: Gpu) -> str:
    """How far a rank is over what is planned for of a card whose capacity is known."""
    over = rank_bytes - (room_bytes(gpu.capacity_bytes) or 0)
    return f"{size(rank_bytes)} on a rank, {size(over)} over {PLANNED} of its {size(gpu.capacity_bytes or 0)}"
