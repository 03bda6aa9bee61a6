"""What training costs, as a screen and a document tell it: FLOPs, hours of a GPU, dollars."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.distillation import Compute, compute_bill, teaching_flops, training_flops
from ..hardware.spec import Gpu
from ..models.catalogue import load_model
from ..models.spec import Model
from .price import checked_price, usd_per_hour
from .sizes import quantity
from .text import count, number, percent, si

MOST_PARAMETERS = 1e15
MOST_TOKENS = 1e18
CONVENTIONS = {
    "training": "6 FLOPs a parameter and token (active parameters), 2 for a teacher's forward pass; scores "
    "of attention, padding and restarts are not in it",
    "gpu_hours": "FLOPs / (mfu x dense 16-bit peak); mfu is assumed, not predicted",
}


class Sized(NamedTuple):
    """A model, or only how large one is."""

    name: str
    parameters: float
    model: Model | None = None


def sized(text: str, option: str) -> Sized:
    """`7b` is a size, anything else a model whose active parameters count."""
    if re.match(r"[0-9]", text) and "/" not in text:
        parameters = quantity(text, option, MOST_PARAMETERS)
        return Sized(text, parameters)
    model = load_model(text)
    return Sized(model.name, model.active_parameters, model)


def token_count(text: str | None, option: str) -> float | None:
    """Tokens of a training run: powers of a thousand, unlike those of a context."""
    return None if text is None else quantity(text, option, MOST_TOKENS)


class Terms(NamedTuple):
    """On what and how well the training runs, and what an hour of it costs."""

    gpu: Gpu
    mfu: float
    price: float | None

    def checked(self) -> Terms:
        """Raises InputError for an MFU or a price that cannot be."""
        if not 0 < self.mfu <= 1:
            raise InputError(f"--mfu is a share of the peak, above 0 and up to 1, not {self.mfu:g}")
        checked_price(self.price)
        return self

    @property
    def usd_per_hour(self) -> float | None:
        """What was given, else the sheet's."""
        return usd_per_hour(self.gpu, self.price)

    def compute(self, flops: float) -> Compute:
        return compute_bill(flops, self.gpu, self.mfu, self.usd_per_hour)


class Training(NamedTuple):
    """A training run of a student over `tokens`, with a teacher's forward passes where there is one."""

    tokens: float
    student: Compute
    teacher: Compute
    whole: Compute


def training(tokens: float, student: float, teacher: float, terms: Terms) -> Training:
    """`student` and `teacher` are parameters; 0 for no teacher."""
    own, taught = training_flops(student, tokens), teaching_flops(teacher, tokens)
    return Training(tokens, *(terms.compute(flops) for flops in (own, taught, own + taught)))


def training_as_json(run: Training, terms: Terms) -> dict[str, Any]:
    return {
        "tokens": run.tokens,
        "student_flops": run.student.flops,
        "teacher_flops": run.teacher.flops,
        **run.whole._asdict(),
        "mfu": terms.mfu,
    }


def compute_cells(bill: Compute) -> tuple[str, str, str]:
    """FLOPs, GPU hours, dollars."""
    usd = "-" if bill.usd is None else number(bill.usd)
    return si(bill.flops, "FLOP"), hours(bill.gpu_hours), usd


def hours(value: float) -> str:
    return count(round(value)) if value >= 1000 else number(value)


def mfu_note(terms: Terms) -> str:
    return f"training at {percent(terms.mfu)} of the dense 16-bit peak, which is assumed (--mfu)"
