"""The screens of `infercost diagnose`: what binds, the levers with their gains, plans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..costmodel.deployment import FIGURES, Figures, largest_batch
from ..costmodel.diagnosis import LABELS, LITTLE, OBJECTIVES, Diagnosis, Effect, Limits, Shares, reason
from ..costmodel.levers import RESOURCES
from .diagnose_command import command_of
from .inputs import inferred_notes, limit_notes, without_constant
from .output.report import Report, Table
from .price import price_notes
from .runs import cards
from .text import count, percent, plural, seconds, size, three

if TYPE_CHECKING:
    from .diagnose import Answer

SHOWN_SHARES = 3
SMALL = 0.005
FURTHER = (
    "further: infercost quant (formats), kv (caches), ops (kernels), compress (pruning, students), speculate "
    "(drafts, exits)"
)
FIGURE_COLUMNS = ("TTFT", "TPOT", "memory", "$/M out")


def screen(answer: Answer, every: bool, top: int) -> Report:
    found = answer.chosen
    tables = [_binding(found)]
    compared = bool(answer.steps or answer.other)
    if compared:
        tables.append(_plans(answer))
    notes = _notes(answer)
    if not (answer.other and not every):
        shown, rest = _shown(answer, every, top)
        tables += [_gains(answer, shown), _reasons(answer, shown)]
        notes = _rest(answer, rest) + notes
        notes.append(
            "of the batch as it is: room that a lever makes is worth money when it is filled (batch=N); "
            f"{plural(len(answer.refused), 'lever')} not applicable (--all says why)"
        )
        notes.append(FURTHER)
    if every and answer.refused:
        refused = Table(("does not apply", "why"), "<<")
        refused.rows += [(one.name, one.why) for one in answer.refused]
        tables.append(refused)
    lines = [_headline(answer), *(_compared(answer) if compared else [])]
    if not answer.other or every:
        lines.append(_advice(answer))
    return Report({}, lines, tables, notes)


def _headline(answer: Answer) -> str:
    """What is run, and what binds it, in one sentence."""
    found, plan = answer.chosen, answer.chosen.plan
    setting, lengths = plan.setting, plan.work.lengths
    on = cards(setting)
    levers = f", with {', '.join(name for name, _ in answer.steps)}" if answer.steps else ""
    asked = (
        f"{plural(round(lengths.prompt), 'token')} in, {lengths.gen:,.0f} out, {count(plan.batch)} at once"
    )
    what = f"{setting.model.called}, {asked}, on {on}{levers}"
    if found.fits is False:
        return f"{what}: memory binds, it does not fit: {size(_too_much(found))} too much"
    name, limits = ("prefill", found.prefill)
    share = found.prefill_share
    if found.decode is not None and share <= 0.5:
        name, limits, share = "decode", found.decode, 1 - share
    part = f"{limits.shares[limits.binds]:.0%} of it goes to {RESOURCES[limits.binds]}"
    return f"{what}: {name} takes {share:.0%} of a request and is {limits.verdict}; {part}"


def _compared(answer: Answer) -> list[str]:
    """How the plans of --with and --vs differ from the base, and from each other."""
    out = []
    if answer.steps:
        out.append(f"against the base: {_differences(answer.base.figures, answer.chosen.figures)}")
    if answer.other:
        left = "--with" if answer.steps else "the base"
        changes = _differences(answer.chosen.figures, answer.other.figures)
        out.append(f"--vs {answer.against} against {left}: {changes}")
    return out


def _differences(before: Figures, after: Figures) -> str:
    parts = []
    for label, name in zip(FIGURE_COLUMNS, FIGURES, strict=True):
        was, now = getattr(before, name), getattr(after, name)
        if was and now is not None:
            parts.append(f"{label} {_change(1 - now / was)}")
    return ", ".join(parts)


def _too_much(found: Diagnosis) -> int:
    return found.figures.memory_bytes - (found.plan.budget_bytes or 0)


def _advice(answer: Answer) -> str:
    """The best lever of the objective, in one sentence."""
    figure, label = OBJECTIVES[answer.objective], LABELS[answer.objective]
    best = next((one for one in answer.effects if one.fits is not False), None)
    if best is None or not (answer.chosen.fits is False or _helps(answer, best)):
        return f"no lever {'makes it fit alone' if answer.chosen.fits is False else f'gains much on {label}'}"
    before, after = (_shown_figure(figure, getattr(each, figure)) for each in (best.before, best.after))
    kind = best.lever.price.partition(":")[0]
    if answer.chosen.fits is False:
        return f"makes it fit: {_fitting(answer)}"
    return f"most on {label}: {best.name}, {before} to {after} (price: {kind})"


DEAREST = ("none", "quality", "latency", "hardware", "assumed", "training")
"""Kinds of price in the order in which a person would pay them to make a model fit."""


def _fitting(answer: Answer) -> str:
    """The best lever of each kind of price that makes it fit, the cheapest kinds first."""
    found: dict[str, str] = {}
    for one in answer.effects:
        if one.fits:
            found.setdefault(one.lever.price.partition(":")[0], one.name)
    return ", ".join(f"{found[kind]} (price: {kind})" for kind in DEAREST if kind in found)


def _shown_figure(figure: str, value: float | None) -> str:
    if value is None:
        return "-"
    if figure == "memory_bytes":
        return size(value)
    return f"{value:,.3g}" if figure == "usd_per_million_output" else seconds(value)


def _shares(shares: Shares) -> str:
    parts = [f"{RESOURCES[name]} {share:.0%}" for name, share in shares.items() if share >= SMALL]
    return ", ".join(parts[:SHOWN_SHARES])


def _binding(found: Diagnosis) -> Table:
    table = Table(("what binds", "", "of a request", "verdict", "it goes to"), "<>><<")

    def phase(name: str, limits: Limits, share: float) -> None:
        row = (name, seconds(limits.seconds), percent(share), limits.verdict, _shares(limits.shares))
        table.rows.append(row)

    phase("prefill", found.prefill, found.prefill_share)
    if found.decode is not None:
        phase("decode, a token", found.decode, 1 - found.prefill_share)
    most = largest_batch(found.plan)
    verdict = {True: "fits", False: "does not fit", None: "no capacity known"}[found.fits]
    if found.fits is not None:
        verdict += ", any number" if most is None else f", {count(most)} at most"
    budget = found.plan.budget_bytes
    of = f"{percent(found.figures.memory_bytes / budget)} of {size(budget)}" if budget else "-"
    table.rows.append(("memory", size(found.figures.memory_bytes), of, verdict, _shares(found.memory)))
    return table


def _absolute(figures: Figures) -> tuple[str, ...]:
    return tuple(_shown_figure(name, getattr(figures, name)) for name in FIGURES)


def _plans(answer: Answer) -> Table:
    """The base, each lever of --with on top of those before it, and the plan of --vs."""
    columns = ("plan", *FIGURE_COLUMNS, "tokens/s", "GPUs", "most", "prefill", "decode")
    table = Table(columns, "<>>>>>>><<")

    def row(name: str, found: Diagnosis) -> None:
        at, most = found.figures.steady, largest_batch(found.plan)
        table.rows.append(
            (
                name,
                *_absolute(found.figures),
                three(at.output_tokens_per_s),
                f"{at.devices:.3g}",
                ("any" if most is None else count(most)) + (" !" if found.fits is False else ""),
                found.prefill.binds,
                found.decode.binds if found.decode else "-",
            )
        )

    row("now", answer.base)
    for name, found in answer.steps:
        row(f"+ {name}", found)
    if answer.other:
        row(f"vs {answer.against}", answer.other)
    return table


def _shown(answer: Answer, every: bool, top: int) -> tuple[list[Effect], list[Effect]]:
    """The best value of each lever that gains, up to `top`; and the other levers, each by its best value."""
    if every:
        return answer.effects, []
    best: dict[str, Effect] = {}
    for one in answer.effects:
        best.setdefault(one.lever.name, one)
    shown = [one for one in best.values() if one.fits is not False and _helps(answer, one)][:top]
    return shown, [one for one in best.values() if one not in shown]


def _helps(answer: Answer, one: Effect) -> bool:
    """Whether a lever gains; of what does not fit, whether it makes that fit."""
    if answer.chosen.fits is False and one.fits:
        return True
    return (one.saved(OBJECTIVES[answer.objective]) or 0.0) >= LITTLE


def _change(saved: float | None) -> str:
    """A saving as the change it is: 0.54 saved is -54 %."""
    if saved is None:
        return "-"
    rounded = round(-100 * saved)
    return f"{rounded:+,} %" if rounded else "0 %"


def _gains(answer: Answer, shown: list[Effect]) -> Table:
    table = Table(("lever", *FIGURE_COLUMNS, "price", ""), "<>>>><<")
    table.rows.append(("now", *_absolute(answer.chosen.figures), "", ""))
    for one in shown:
        kind = one.lever.price.partition(":")[0]
        changes = (_change(one.saved(name)) for name in FIGURES)
        table.rows.append((one.name, *changes, kind, "does not fit" if one.fits is False else ""))
    if all(not row[-1] for row in table.rows):
        table = Table(table.columns[:-1], table.align[:-1], [row[:-1] for row in table.rows])
    return table


def _reasons(answer: Answer, shown: list[Effect]) -> Table:
    table = Table(("lever", "why; its price; the command with its figures"), "<<")
    for one in shown:
        table.rows += [
            (one.name, reason(answer.chosen, one, answer.objective)),
            ("", one.lever.price),
            ("", command_of(answer, one)),
        ]
    return table


def _rest(answer: Answer, rest: list[Effect]) -> list[str]:
    """The levers not shown: those with something to gain, those that attack what does not bind, the rest."""
    figure, label = OBJECTIVES[answer.objective], LABELS[answer.objective]

    def listed(some: list[Effect]) -> str:
        return ", ".join(f"{one.name} {_change(one.saved(figure))}" for one in some)

    def saved(one: Effect) -> float:
        return one.saved(figure) or 0.0

    # Where nothing fits yet, what does not fit alone may do so together with others.
    stuck = answer.chosen.fits is False
    fitting = [one for one in rest if stuck or one.fits is not False]
    alone = [one for one in fitting if one.fits is False and saved(one) >= LITTLE]
    more = [one for one in fitting if one not in alone and _helps(answer, one)]
    little = [one for one in fitting if abs(saved(one)) < LITTLE and one not in more]
    losing = [one for one in fitting if saved(one) <= -LITTLE]
    first = "make it fit" if stuck else f"gain on {label}"
    out = [f"{first}, too: {listed(more)}"] if more else []
    out += [f"gain on {label}, but do not make it fit alone: {listed(alone)}"] if alone else []
    out += [f"attack what does not bind {label}: {', '.join(one.name for one in little)}"] if little else []
    out += [f"cost more of it than they save: {listed(losing)}"] if losing else []
    large = [] if stuck else [one.name for one in rest if one.fits is False]
    return out + ([f"would not fit: {', '.join(large)}"] if large else [])


def _notes(answer: Answer) -> list[str]:
    found, plan = answer.chosen, answer.chosen.plan
    setting = plan.setting
    notes = limit_notes([(setting.model, plan.work.held_tokens)]) + inferred_notes(setting.model)
    sure = found.figures.steady.confidence
    host = "the host's time between kernels is not in them (--engine)"
    if setting.engine:
        host = f"as requests of {setting.engine.title} took"
    kinds = f"expected times: {sure}" if sure else "floors"
    notes.append(f"weights {setting.recipe.name}, KV {setting.run.kv.name}, {plan.policy}; {kinds}; {host}")
    if plan.usd_per_hour is None:
        notes += price_notes([setting.gpu], None)
    if found.fits is False:
        notes.append("times are as if it fitted")
    if setting.replicas > 1:
        notes.append(
            f"each of the {setting.replicas} ranks has so many requests of its own (--ep without --tp)"
        )
    return notes


def sweep(answers: list[Answer], points: list[dict[str, Any]]) -> Report:
    """A line for each deployment: what binds it, and its best lever."""
    columns = ("model", "gpu", "prompt", "gen", "batch", "weights", "KV")
    found = ("prefill", "decode", "memory", "decode share", "ranked for", "best lever", "saves")
    table = Table((*columns, *found), "<<>>><<<<<><<>")
    for answer, point in zip(answers, points, strict=True):
        got, at = point["inputs"], answer.chosen
        figure = OBJECTIVES[answer.objective]
        best = next((one for one in answer.effects if one.fits is not False), None)
        table.rows.append(
            (
                *(got["model"], got["gpu"], count(got["prompt"]), count(got["gen"]), count(got["batch"])),
                *(got["weights"], got["kv"]),
                at.prefill.binds,
                at.decode.binds if at.decode else "-",
                next(iter(at.memory)) + (" !" if at.fits is False else ""),
                percent(1 - at.prefill_share),
                answer.objective,
                best.name if best else "-",
                percent(best.saved(figure) or 0.0) if best else "-",
            )
        )
    table, notes = without_constant(table, columns)
    if any(answer.chosen.fits is False for answer in answers):
        notes.append("!: it does not fit; times are as if it did")
    line = f"{plural(len(points), 'deployment')}: what binds each, and its best lever"
    return Report({}, [line], [table], notes)
