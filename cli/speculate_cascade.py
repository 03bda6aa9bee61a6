"""`infercost speculate` of cascades: cheap models first, dear ones where the answer was not good enough."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from .. import InputError
from ..costmodel.cascade import MAX_TIERS, Cascade
from ..costmodel.request import Request, dollars
from ..costmodel.setting import Cost, Setting, step_cost, summed
from ..hardware.catalogue import load_gpu
from .inputs import document, encoder_positions, inferred_notes, limit_notes, model_source
from .output.report import Report, Table
from .price import checked_price, usd_per_hour
from .sizes import token_list, tokens, words
from .speculate_options import Asked, between, numbers
from .text import count, percent, plural, seconds

MOST_TOKENS = 1 << 20
Value = TypeVar("Value")
CONVENTIONS = {
    "cost": "of one answer: as given, or dollars of a request of --prompt and --gen tokens, --batch at once",
    "mean_cost": "E[c] = sum over models of (cost + scorer) x share of requests that come to it; the last "
    "model's answer is not judged",
    "break_even_accept": "share the first model must have accepted for the cascade to cost what the last "
    "model alone does: (c1 + scorer) / c2 for two; above 1: it cannot pay",
    "latency_s": "models asked one after the other, prefill and decode steps at their mean context; the time "
    "of judging is not in it",
    "accept": "an assumption; whether accepted answers are right is not a question of cost",
}


class Tier(NamedTuple):
    """A model of the cascade with its request; `whole` prefill and decode, `usd` of one request."""

    setting: Setting
    request: Request
    whole: Cost
    usd: float


def cascade_report(asked: Asked) -> Report:
    """A cascade of costs, or of models."""
    assert asked.cascade is not None
    names = words(asked.cascade, "--cascade")
    if not 2 <= len(names) <= MAX_TIERS:
        raise InputError(f"--cascade: 2 to {MAX_TIERS} models or costs, such as 1,10, not {len(names)}")
    if asked.accept is None:
        raise InputError("--cascade needs --accept: the share of answers taken of each model but the last")
    shares = numbers(asked.accept, "--accept", 0, 1)
    if len(shares) == 1:
        shares *= len(names) - 1
    scorer = 0.0 if asked.scorer is None else between(asked.scorer, "--scorer", 0, 1e30)
    tiers: list[Tier] = []
    if all(_is_number(name) for name in names):
        strays = [k for k in asked.given() if k in ("prompt", "gen", "price", "tp", "weights", "kv_format")]
        if strays:
            raise InputError(f"--{strays[0].removesuffix('_format')} is of models; --cascade lists costs")
        costs = numbers(asked.cascade, "--cascade", 1e-30, 1e30)
    else:
        tiers = _tiers(asked, names)
        costs = [tier.usd for tier in tiers]
    found = Cascade(tuple(costs), tuple(shares), scorer).checked()
    point = _point(asked, names, found, tiers)
    final = _screen(names, found, tiers, point)
    settings = [tier.setting for tier in tiers]
    sources = {one.gpu.name: one.gpu.source for one in settings}
    sources |= {k: v for one in settings for k, v in model_source(one.model).items()}
    inputs = {"command": "speculate", "calibration": asked.calibration}
    final.document = document(
        "speculate", inputs, CONVENTIONS, sources, [point], False, [one.model for one in settings]
    )
    final.records = point["tiers"]
    final.quiet = [repr(found.mean)]
    return final


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tiers(asked: Asked, names: list[str]) -> list[Tier]:
    from ..models.catalogue import load_model

    gpus = _each([load_gpu(name) for name in words(asked.gpu, "--gpu")], len(names), "--gpu")
    ranks = _each(token_list(asked.tp or "1", "--tp"), len(names), "--tp")
    batches = token_list(asked.batch, "--batch")
    prompt, gen = tokens(asked.prompt or "1k", "--prompt"), tokens(asked.gen or "256", "--gen")
    if len(batches) > 1:
        raise InputError("--batch is one value in a cascade")
    if gen > MOST_TOKENS:
        raise InputError(f"--gen {gen:,}: at most {MOST_TOKENS:,} tokens out")
    checked_price(asked.price)
    out = []
    for name, gpu, tp in zip(names, gpus, ranks, strict=True):
        setting = asked.setting(load_model(name), gpu, tp)
        rate = usd_per_hour(gpu, asked.price)
        if not rate:
            raise InputError(
                f"no price of {gpu.name} is known: --price gives dollars per GPU and hour, above 0"
            )
        encoder = encoder_positions(setting.model, None, prompt)
        request = Request(prompt, gen, batches[0], encoder=encoder).checked()
        ttft = step_cost(setting, request.prefill())
        steps = request.decode_steps
        middle = step_cost(setting, request.decode(prompt + (steps + 1) // 2)) if steps else None
        decoding = summed([(middle, steps)]) if middle else None
        whole = summed([(cost, 1) for cost in (ttft, decoding) if cost])
        out.append(Tier(setting, request, whole, dollars(setting, request, ttft, decoding, rate).request))
    return out


def _each(values: list[Value], wanted: int, option: str) -> list[Value]:
    """One value for all models, or one of each."""
    if len(values) == 1:
        return values * wanted
    if len(values) != wanted:
        raise InputError(f"{option} has {len(values)} values for {wanted} models: give one, or one of each")
    return values


def _point(asked: Asked, names: list[str], found: Cascade, tiers: list[Tier]) -> dict[str, Any]:
    inputs: dict[str, Any] = {"cascade": names, "accept": list(found.accepted), "scorer": found.scorer}
    if tiers:
        first = tiers[0].request
        inputs |= {"prompt": first.prompt, "gen": first.gen, "batch": first.batch, "price": asked.price}
    lines: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        line: dict[str, Any] = {
            "model": name,
            "cost": found.costs[index],
            "reached": found.reached[index],
            "accepted": found.accepted[index] if index < len(found.accepted) else 1.0,
        }
        if tiers:
            tier = tiers[index]
            line |= {
                "model": tier.setting.model.name,
                "gpu": tier.setting.gpu.name,
                "tp": tier.setting.parallel.tp,
                "e2e_s": tier.whole.best,
            }
        lines.append(line)
    latency = _latency(found, tiers)
    return {
        "inputs": inputs,
        "mean_cost": found.mean,
        "last_alone_cost": found.costs[-1],
        "worst_cost": found.worst,
        "saving": found.saving,
        "break_even_accept": found.break_even,
        "latency_s": latency,
        "tiers": lines,
    }


def _latency(found: Cascade, tiers: list[Tier]) -> dict[str, float] | None:
    """Seconds in the mean, of a request that goes all the way, and of the last model alone."""
    if not tiers:
        return None
    times = [float(tier.whole.best) for tier in tiers]
    mean = sum(time * share for time, share in zip(times, found.reached, strict=True))
    return {"mean": mean, "worst": sum(times), "last_alone": times[-1]}


def _screen(names: list[str], found: Cascade, tiers: list[Tier], point: dict[str, Any]) -> Report:
    unit = " dollars" if tiers else ""
    gain = f"{found.saving:.2f} times less" if found.saving >= 1 else f"{1 / found.saving:.2f} times more"
    head = (
        f"{found.mean:.4g}{unit} an answer in the mean, {found.costs[-1]:.4g} of the last model alone: {gain}"
    )
    columns = ("asked", "cost", "comes to it", "accepted", *(("end to end",) if tiers else ()))
    table = Table(columns, "<" + ">" * (len(columns) - 1))
    for index, name in enumerate(names):
        last = index == len(names) - 1
        row = (
            name,
            f"{found.costs[index]:.4g}",
            percent(found.reached[index]),
            "all" if last else percent(found.accepted[index]),
        )
        table.rows.append((*row, seconds(tiers[index].whole.best)) if tiers else row)
    even = found.break_even
    notes = [
        f"pays if the first accepts more than {percent(even)} of what it is asked"
        if even <= 1
        else "cannot pay: the first model with its judge costs more than the rest",
        f"judging an answer costs {found.scorer:g}; a request that goes all the way costs {found.worst:.4g}",
    ]
    latency = point["latency_s"]
    if latency is not None:
        notes.append(
            f"latency {seconds(latency['mean'])} in the mean, {seconds(latency['worst'])} at worst, "
            f"{seconds(latency['last_alone'])} of the last model alone; judging is not timed"
        )
        first = tiers[0].request
        notes.append(
            f"{count(first.prompt)} tokens in, {count(first.gen)} out, {plural(first.batch, 'request')} at "
            f"once; formats {', '.join(tier.setting.recipe.name for tier in tiers)}; kernels only"
        )
        notes += limit_notes([(tier.setting.model, tier.request.held_tokens) for tier in tiers])
        notes += [note for tier in tiers for note in inferred_notes(tier.setting.model)]
    return Report({}, [head], [table], notes)
