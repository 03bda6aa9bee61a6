"""A request in time: its prefill, its decode steps, what both cost."""

from __future__ import annotations

from ... import InputError
from ...costmodel.request import dollars as dollars_of
from ...costmodel.request import energy_j
from ...costmodel.setting import Cost
from ..text import count, percent, seconds
from .asked import Asked, Case
from .explained import Explained, Letter, Line, three_times
from .roofs import attention_verdict, bounded

TIMES = "the seed ledger, decode.steps; docs/times.md for expected times"


def prefill(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    cost = case.prefill_cost()
    formula, letters = bounded(case, case.prompt_step, cost)
    return Explained(
        case,
        formula,
        letters,
        cost.bound,
        "s",
        "seed 001, sections 1 and 2; seed ledger, pre.model and pre.verdict",
        bill=_phases(case, cost, case.decode_cost()),
        sides=("prefill", "decode step"),
        differs="that it is compute-bound is true of its matrices: pointwise kernels wait for memory; "
        f"{attention_verdict(case)}; {three_times(cost)}",
        commands=(_step(case, "prefill"),),
    )


def decode(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    cost = case.decode_cost()
    formula, letters = bounded(case, case.decode_step, cost)
    reads = letters[2].value / (letters[2].value + letters[3].value)
    return Explained(
        case,
        formula,
        letters,
        cost.bound,
        "s",
        "seed 001, sections 1 and 2; seed ledger, dec.model and dec.asymptote",
        bill=_phases(case, case.prefill_cost(), cost),
        sides=("prefill", "decode step"),
        differs=f"weights are {percent(reads)} of what it must read; a larger batch shares them but each "
        f"sequence brings its own cache, so intensity rises and saturates; {three_times(cost)}",
        commands=(
            _step(case, "decode"),
            case.command("serve", "--prompt", case.tokens, "--gen", case.gen),
        ),
    )


def _phases(case: Case, filling: Cost, step: Cost) -> tuple[Line, ...]:
    return (
        Line("tokens", "", case.batch * case.tokens, case.batch),
        Line("matrix FLOPs", "FLOP", filling.matmul_flops, step.matmul_flops),
        Line("bytes of all kernels", "bytes", filling.moved_bytes, step.moved_bytes),
        Line("products at peak", "s", filling.compute_s, step.compute_s),
        Line("compulsory bytes at full bandwidth", "s", filling.memory_s, step.memory_s),
    )


def _step(case: Case, phase: str) -> str:
    args = ("--phase", phase, "--seq", case.tokens, "--batch", case.batch)
    return case.command("ops", *args)


def decode_steps(asked: Asked) -> Explained:
    case = asked.at(gen=100)
    asking = case.request
    return Explained(
        case,
        "G - 1",
        (Letter("G", case.gen, "tokens out"),),
        asking.decode_steps,
        "steps",
        "seed 000, section 3; seed ledger, decode.steps",
        differs=f"that {count(case.gen)} tokens need {count(case.gen)} decode steps is one too many: the "
        "prefill yields the first token",
        commands=(_request(case),),
    )


def ttft(asked: Asked) -> Explained:
    case = asked.at()
    cost, longer = case.prefill_cost(), case.long(4 * case.tokens).prefill_cost()
    letters = (
        Letter("q", 0, "waiting for a slot: nothing, for one request at a time", "s"),
        Letter("p", cost.best, "prefill of the prompt, the first token out of it", "s"),
    )
    return Explained(
        case,
        "q + p",
        letters,
        cost.best,
        "s",
        f"seed 000, section 2; {TIMES}",
        bill=(
            Line("matrix FLOPs", "FLOP", cost.matmul_flops, longer.matmul_flops),
            Line("time to first token, bound", "s", cost.bound, longer.bound),
            Line("time to first token", "s", cost.best, longer.best),
        ),
        sides=("this prompt", "four times as long"),
        differs="attention's scores grow 16 times with a prompt four times as long, the bill does not: "
        f"most of it is matrices; {three_times(cost)}; queueing and the host come on top",
        commands=(
            case.command("request", "--phase", "prefill", "--prompt", case.tokens, "--batch", case.batch),
            case.command("serve", "--prompt", case.tokens, "--gen", case.gen),
        ),
    )


def _phases_of(case: Case) -> tuple[Cost, Cost]:
    """The prefill and all decode steps. Raises InputError where there is none, or too many to add up."""
    from ..steps import MAX_STEPS, phases_of

    if not 2 <= case.gen <= MAX_STEPS:
        raise InputError(f"--gen {case.gen:,}: 2 to {MAX_STEPS:,} tokens out make decode steps to explain")
    first, rest = phases_of(case.setting, case.request)
    assert rest is not None
    return first, rest


def tpot(asked: Asked) -> Explained:
    case = asked.at()
    _, rest = _phases_of(case)
    steps = case.request.decode_steps
    letters = (
        Letter("D", rest.best, "all decode steps, the i-th at a context of prompt + i", "s"),
        Letter("G", case.gen, "tokens out"),
    )
    floors = {kind: None if s is None else s / steps for kind, s in rest.times().items()}
    last = case.long(case.tokens + steps).decode_cost()
    return Explained(
        case,
        "D / (G - 1)",
        letters,
        rest.best / steps,
        "s",
        f"seed 000, section 3; {TIMES}",
        bill=(Line("a step", "s", case.long(case.tokens + 1).decode_cost().best, last.best),),
        sides=("first step", "last step"),
        differs=f"the first token is the prefill's and not in it; bound {seconds(floors['bound'])}, floor "
        f"{seconds(floors['floor'])}; it grows with the context by the cache each step reads",
        commands=(_request(case),),
    )


def e2e(asked: Asked) -> Explained:
    case = asked.at()
    first, rest = _phases_of(case)
    steps = case.request.decode_steps
    letters = (
        Letter("p", first.best, "time to first token: the prefill", "s"),
        Letter("G", case.gen, "tokens out"),
        Letter("d", rest.best / steps, "time per output token", "s"),
    )
    return Explained(
        case,
        "p + (G - 1)·d",
        letters,
        first.best + rest.best,
        "s",
        f"seed 000, section 3; {TIMES}",
        differs="of kernels one after the other: queueing, tokenising and the host's time between "
        "launches are not in it",
        commands=(_request(case),),
    )


def throughput(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    first, rest = _phases_of(case)
    letters = (
        Letter("B", case.batch, "requests at once"),
        Letter("G", case.gen, "tokens out of each"),
        Letter("t", first.best + rest.best, "prefill and decode steps", "s"),
    )
    alone = case._replace(batch=1)
    one = sum(cost.best for cost in _phases_of(alone))
    value = case.batch * case.gen / (first.best + rest.best)
    return Explained(
        case,
        "B·G / t",
        letters,
        value,
        "tokens/s",
        "seed 001, section 3; Orca, OSDI 2022",
        bill=(
            Line("output tokens per second", "tokens/s", case.gen / one, value),
            Line("a request, end to end", "s", one, first.best + rest.best),
        ),
        sides=("one at a time", f"{case.batch} at once"),
        differs="of one batch from start to end; requests that keep coming are `serve`'s, which refills "
        "its slots",
        commands=(case.command("serve", "--prompt", case.tokens, "--gen", case.gen),),
    )


def dollars(asked: Asked) -> Explained:
    case = asked.at()
    price = case.gpu.price
    if price is None:
        raise InputError(
            f"explain dollars: no price of {case.gpu.name} is known; `infercost request --price` takes yours"
        )
    first, rest = _phases_of(case)
    bill = dollars_of(case.setting, case.request, first, rest, price.usd_per_hour)
    letters = (
        Letter("R", price.usd_per_hour, f"dollars of a GPU and hour ({price.source})"),
        Letter("t", first.best + rest.best, "prefill and decode steps", "s"),
        Letter("B", case.batch, "requests that share them"),
    )
    per = f"{bill.input:.3g} a million tokens in, {bill.output:.3g} out"
    return Explained(
        case,
        "R·t / (3600·B)",
        letters,
        bill.request,
        "$",
        "price x devices x time, shared by the batch; the price is the sheet's, with its date",
        differs=f"{per}: output is dearer because a decode step waits for memory, and a batch shares that "
        "wait; an idle GPU costs as much",
        commands=(
            _request(case),
            case.command("serve", "--prompt", case.tokens, "--gen", case.gen),
        ),
    )


def energy(asked: Asked) -> Explained:
    case = asked.at()
    power = case.gpu.power_w
    first, rest = _phases_of(case)
    joules = energy_j(case.setting, case.request, first.best + rest.best)
    if power is None or joules is None:
        raise InputError(f"explain energy: the sheet of {case.gpu.name} names no power")
    letters = (
        Letter("w", power, "board power, watts"),
        Letter("t", first.best + rest.best, "prefill and decode steps", "s"),
        Letter("B", case.batch, "requests that share them"),
    )
    return Explained(
        case,
        "w·t / B",
        letters,
        joules,
        "J",
        f"board power of the sheet: {case.gpu.source}",
        differs="at most this: a decode step that waits for memory draws less than the board's full power",
        commands=(_request(case),),
    )


def _request(case: Case) -> str:
    args = ("--prompt", case.tokens, "--gen", case.gen, "--batch", case.batch)
    return case.command("request", *args)
