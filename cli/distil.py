"""`infercost compress --distil`: what teaching a smaller model costs, by soft labels or by written text."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.distillation import soft_label_bytes, teaching_flops, training_flops
from ..costmodel.request import Request, dollars
from ..costmodel.setting import Setting, summed
from ..costmodel.sharding import Parallel
from ..hardware.spec import Gpu
from ..models.dimensions import MAX_DIMENSION
from . import training as t
from .calibrations import clock_of
from .flat import flat
from .inputs import (
    document,
    encoder_positions,
    inferred_notes,
    limit_notes,
    sources_of,
)
from .output.report import Report, Table
from .price import price_notes
from .runs import cards, run_of
from .sizes import quantity, tokens
from .steps import MAX_STEPS, phases_of
from .text import count, number, params, plural, seconds, si

MOST_DOLLARS = 1e6
CONVENTIONS = {
    "flops_per_token": "student 6 a parameter (forward, backward), teacher 2 (forward); active parameters",
    "soft_label_bytes_per_token": "a 16-bit logit for each word, or for the top_k likeliest with their "
    "indexes; only where labels are kept rather than computed as the student trains",
    "generation": "the teacher's requests of prompt tokens in and gen out, batch at a time: price x devices "
    "x time (kernels only: the host's time and idle GPUs are not in it), or by --api-price",
    **t.CONVENTIONS,
}


class Lesson(NamedTuple):
    """Who teaches whom with what, as it was typed; `examples` makes the teacher a black box."""

    teacher: str | None
    student: str | None
    tokens: float | None
    examples: str | None
    api_price: str | None
    vocab: int | None
    top_k: int | None


class Written(NamedTuple):
    """The text a black-box teacher writes: `seconds_each` of a request on `setting`, None behind an API."""

    examples: float
    asked: Request
    setting: Setting | None
    flops: float | None
    seconds_each: float | None
    confidence: str | None
    usd: float | None

    @property
    def tokens(self) -> float:
        """What the student reads of it: prompts and answers."""
        return self.examples * (self.asked.prompt + self.asked.gen)

    @property
    def gpu_hours(self) -> float | None:
        if self.seconds_each is None or self.setting is None:
            return None
        return self.examples * self.seconds_each * self.setting.devices / 3600


def distilled(
    lesson: Lesson,
    gpu: Gpu,
    parallel: Parallel,
    mfu: float,
    price: float | None,
    prompt: str,
    gen: str,
    batch: str,
    weights: str | None,
    kv: str | None,
    calibration: str,
) -> Report:
    """The bill of one distillation as a report. Raises InputError where something is missing or odd."""
    if not lesson.student:
        raise InputError("--distil needs --student: a model, or a size such as 7b")
    terms = t.Terms(gpu, mfu, price).checked()
    student = t.sized(lesson.student, "--student")
    teacher = t.sized(lesson.teacher, "--teacher") if lesson.teacher else None
    if teacher is None and lesson.api_price is None:
        raise InputError(
            "--distil needs --teacher: a model, a size such as 70b, or --api-price for a closed one"
        )
    written = None
    if lesson.examples is None:
        if lesson.api_price is not None:
            raise InputError("--api-price is of text that a teacher writes: give --examples")
    else:
        if lesson.tokens is not None or lesson.top_k is not None or lesson.vocab is not None:
            raise InputError("--examples teach by text: --tokens follow, and there are no soft labels")
        asked = Request(tokens(prompt, "--prompt"), tokens(gen, "--gen"), tokens(batch, "--batch")).checked()
        how = (weights, kv, calibration)
        written = _written(lesson, teacher, asked, gpu, parallel, terms, how)
    vocab = _vocab(lesson, teacher, student) if written is None else None
    return _report(lesson, terms, teacher, student, written, vocab)


def _vocab(lesson: Lesson, teacher: t.Sized | None, student: t.Sized) -> int | None:
    """Words of a soft label: given, else the models'. Raises InputError where the two have different ones."""
    known = {each.model.vocab for each in (teacher, student) if each and each.model}
    if lesson.vocab is not None:
        if not 2 <= lesson.vocab <= MAX_DIMENSION:
            raise InputError(f"--vocab must be between 2 and {MAX_DIMENSION:,}, not {lesson.vocab}")
        known = {lesson.vocab}
    if len(known) > 1:
        small, large = sorted(known)
        raise InputError(
            f"soft labels need one vocabulary: these models have {small:,} and {large:,} words; "
            "--examples teaches by text, --vocab takes a common part"
        )
    vocab = known.pop() if known else None
    if lesson.top_k is not None and not 1 <= lesson.top_k <= (vocab or MAX_DIMENSION):
        raise InputError(
            f"--top-k must be between 1 and the {vocab or MAX_DIMENSION:,} words, not {lesson.top_k}"
        )
    return vocab


def _written(
    lesson: Lesson,
    teacher: t.Sized | None,
    asked: Request,
    gpu: Gpu,
    parallel: Parallel,
    terms: t.Terms,
    how: tuple[str | None, str | None, str],
) -> Written:
    examples = quantity(lesson.examples or "", "--examples", t.MOST_TOKENS)
    if lesson.api_price is not None:
        paid_in, paid_out = _api_prices(lesson.api_price)
        bill = examples * (asked.prompt * paid_in + asked.gen * paid_out) / 1e6
        return Written(examples, asked, None, None, None, None, bill)
    if teacher is None or teacher.model is None:
        raise InputError(
            "--examples are priced as the teacher's requests: --teacher must be a model, not a size"
        )
    weights, kv, calibration = how
    if asked.gen > MAX_STEPS:
        raise InputError(f"--gen {asked.gen:,}: at most {MAX_STEPS:,} tokens out are added up")
    run = run_of(teacher.model, weights, kv)
    asked = asked._replace(encoder=encoder_positions(teacher.model, None, asked.prompt))
    setting = Setting(teacher.model, run, gpu, parallel, clock_of(calibration, gpu)).checked()
    ttft, decoding = phases_of(setting, asked)
    whole = summed([(cost, 1) for cost in (ttft, decoding) if cost])
    at_once = asked.batch * setting.replicas
    rate = terms.usd_per_hour
    usd = None if rate is None else examples * dollars(setting, asked, ttft, decoding, rate).request
    return Written(
        examples,
        asked,
        setting,
        examples * whole.matmul_flops / asked.batch,
        float(whole.best) / at_once,
        str(whole.confidence) if whole.confidence else "floor",
        usd,
    )


def _api_prices(text: str) -> tuple[float, float]:
    parts = text.split(",")
    try:
        paid = [float(part) for part in parts]
    except ValueError:
        paid = []
    if len(paid) != 2 or not all(0 <= each <= MOST_DOLLARS for each in paid):
        raise InputError(
            f"--api-price '{text[:40]}' is dollars per million tokens in and out, such as 2.5,10"
        )
    return paid[0], paid[1]


def _report(
    lesson: Lesson,
    terms: t.Terms,
    teacher: t.Sized | None,
    student: t.Sized,
    written: Written | None,
    vocab: int | None,
) -> Report:
    seen = written.tokens if written else lesson.tokens
    forward = teacher.parameters if teacher and written is None else 0.0
    run = None if seen is None else t.training(seen, student.parameters, forward, terms)
    own, taught = training_flops(student.parameters, 1), teaching_flops(forward, 1)
    label = None if vocab is None else soft_label_bytes(vocab, lesson.top_k)
    point: dict[str, Any] = {
        "inputs": {
            "teacher": teacher.name if teacher else None,
            "student": student.name,
            "gpu": terms.gpu.name,
            "tokens": lesson.tokens,
            "examples": written.examples if written else None,
            "vocab": vocab,
            "top_k": lesson.top_k,
            "mfu": terms.mfu,
            "api_price": lesson.api_price,
        },
        "way": "text" if written else "soft labels",
        "teacher_parameters": teacher.parameters if teacher else None,
        "student_parameters": student.parameters,
        "flops_per_token": {"student": own, "teacher": taught, "total": own + taught},
        "teacher_over_student": taught / own,
        "soft_label_bytes_per_token": label,
        "soft_label_bytes": label * seen if label is not None and seen is not None else None,
        "generation": _written_as_json(written) if written else None,
        "training": t.training_as_json(run, terms) if run else None,
        "usd": _sum(run.whole.usd if run else None, written.usd if written else 0.0),
    }
    tables = [_table(run, written, point)]
    named = [each.model for each in (teacher, student) if each and each.model]
    notes = [line for model in named for line in inferred_notes(model)]
    notes += _notes(written, terms, point)
    sources = sources_of([terms.gpu], named)
    made = document("compress", {"command": "compress --distil"}, CONVENTIONS, sources, [point], False, named)
    total = run.whole.flops if run else own + taught
    return Report(
        made,
        [_answer(teacher, student, run, written, point)],
        tables,
        notes,
        records=[flat(point)],
        quiet=[repr(total)],
    )


def _written_as_json(written: Written) -> dict[str, Any]:
    asked, setting = written.asked, written.setting
    return {
        "prompt": asked.prompt,
        "gen": asked.gen,
        "batch": asked.batch,
        "devices": setting.devices if setting else None,
        "weights": setting.recipe.name if setting else None,
        "tokens": written.tokens,
        "matmul_flops": written.flops,
        "s_per_example": written.seconds_each,
        "confidence": written.confidence,
        "gpu_hours": written.gpu_hours,
        "usd": written.usd,
        "usd_per_example": None if written.usd is None else written.usd / written.examples,
    }


def _sum(*parts: float | None) -> float | None:
    return None if None in parts else sum(part for part in parts if part is not None)


def _answer(
    teacher: t.Sized | None,
    student: t.Sized,
    run: t.Training | None,
    written: Written | None,
    point: dict[str, Any],
) -> str:
    who = f"{teacher.name if teacher else 'a closed teacher'} into {student.name}"
    if written:
        paid = "" if point["usd"] is None else f", {number(point['usd'])} dollars"
        return f"{who} by text: {params(written.tokens)} tokens written and read{paid}"
    extra = f"the teacher adds {point['teacher_over_student']:.2f} times the student's own training FLOPs"
    if run is None:
        return f"{who} by soft labels: {extra}"
    return f"{who} by soft labels: {t.hours(run.whole.gpu_hours)} GPU hours; {extra}"


def _table(run: t.Training | None, written: Written | None, point: dict[str, Any]) -> Table:
    if run is None:
        table = Table(("a token", "FLOPs"), "<>")
        for who in ("student", "teacher", "total"):
            table.rows.append((who, si(point["flops_per_token"][who], "FLOP")))
    else:
        table = Table((f"training, {params(run.tokens)} tokens", "FLOPs", "GPU hours", "dollars"), "<>>>")
        if written:
            hours = "-" if written.gpu_hours is None else t.hours(written.gpu_hours)
            flops = "-" if written.flops is None else si(written.flops, "FLOP")
            paid = "-" if written.usd is None else number(written.usd)
            table.rows.append(("teacher, writing", flops, hours, paid))
        else:
            table.rows.append(("teacher, forward", *t.compute_cells(run.teacher)))
        table.rows.append(("student, training", *t.compute_cells(run.student)))
    return table


def _notes(written: Written | None, terms: t.Terms, point: dict[str, Any]) -> list[str]:
    notes = []
    label = point["soft_label_bytes_per_token"]
    if label is not None:
        all_of_them = point["soft_label_bytes"]
        together = "" if all_of_them is None else f", {si(all_of_them, 'B')} together"
        notes.append(f"soft labels, where they are kept: {label:,} B a token{together}")
    if written and written.setting:
        setting, asked = written.setting, written.asked
        notes += limit_notes([(setting.model, asked.held_tokens)])
        notes.append(
            f"each of {count(round(written.examples))} examples: {count(asked.prompt)} tokens in, "
            f"{count(asked.gen)} out, {plural(asked.batch, 'request')} at once on "
            f"{cards(setting)}: {seconds(written.seconds_each)} ({written.confidence})"
        )
    if point["training"] is not None:
        notes += [t.mfu_note(terms), *price_notes([terms.gpu], terms.price)]
    return notes
