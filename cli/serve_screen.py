"""What `infercost serve` shows: the best point in a line, every point, what explains them, the curve."""

from __future__ import annotations

from typing import Any

from ..costmodel.serving import step_verdict
from .inputs import inferred_notes, limit_notes, without_constant
from .output.report import Report, Table
from .pace import rate
from .pictures.serving import throughput_chart
from .pictures.terminal import coloured, picture
from .price import price_notes
from .runs import cards
from .serve_json import knees, leading, of_best, run_as_json, seen_usd, setting_inputs
from .serve_rate import BUSY, at_rate
from .serve_study import Asked, Study
from .text import count, number, percent, plural, seconds, size

OF_SETTING = ("model", "gpu", "weights", "KV", "policy")
FIGURES = ("batch", "users", "GPUs", "TTFT", "TPOT", "gap", "tokens/s", "$/M out", "used")


def report(studies: list[Study], asked: Asked, seen: float | None, body: dict[str, Any]) -> Report:
    """The screen: the best point in a line, every point, what explains them, the curve of the JSON `body`."""
    single = studies[0] if len(studies) == 1 else None
    table, notes = without_constant(_points(studies, asked), (*OF_SETTING, "users", "GPUs", "gap", "used"))
    notes += _notes(studies, asked, seen)
    if single is None:
        return Report({}, _answers(studies, asked), [table], notes)
    final = Report({}, _answers(studies, asked), [table, *_explained(single, asked)], notes)
    chart = throughput_chart("", body["points"], rows=12)
    if chart is not None:
        final.picture, final.coloured = picture(chart), coloured(chart)
    return final


def _answers(studies: list[Study], asked: Asked) -> list[str]:
    """What a rate takes where one is asked, then the most that can be had."""
    led = leading(studies, asked)
    if asked.rate is None or led is None:
        return [_answer(studies, asked)]
    found, each = at_rate(*led, asked.rate, asked), led[0]
    usd = found.usd_per_million_output
    cost = f", {usd:,.3g} dollars a million tokens out" if usd is not None else ""
    name = each.setting.model.called
    pace = f"a token every {seconds(found.steady.tpot_s)}" if found.steady.tpot_s else "one token each"
    first = (
        f"{name}, {_lengths(each)}, {asked.rate:g} requests/s: {found.devices} x {each.setting.gpu.title}, "
        f"{100 * found.busy:.0f} % busy{cost}; first token after {seconds(found.steady.ttft_s)}, {pace}"
    )
    return [first, f"at most, of a unit: {_answer(studies, asked)}"]


def _answer(studies: list[Study], asked: Asked) -> str:
    led = leading(studies, asked)
    first = (led or (studies[0], None))[0]
    limits = [f"{name} {seconds(v)}" for name, v in (("TTFT", asked.ttft_s), ("TPOT", asked.tpot_s)) if v]
    kept = f" within {' and '.join(limits)}" if limits else ""
    name = first.setting.model.called
    what = f"{name}, {_lengths(first)}, on {cards(first.setting)}"
    if led is None:
        if any(point.fits is not False for each in studies for point in each.points):
            return f"{what}: no batch is{kept}"
        most = max(each.most or 0 for each in studies)
        return (
            f"{what}: no batch asked for fits, {most:,} at most" if most else f"{what}: not one sequence fits"
        )
    at = led[1].steady
    usd = first.usd(at)
    cost = f", {usd:,.3g} dollars a million tokens out" if usd is not None else ""
    many = f"{at.batch:,} at once" if at.policy != "disaggregated" else f"{at.batch:,} decoding at once"
    return f"{what}: {rate(at.output_tokens_per_s)} tokens/s{cost}, {many}{kept} ({at.policy})"


def _lengths(each: Study) -> str:
    lengths = each.work.lengths
    kind = "" if lengths.kind == "fixed" else f" in the mean ({lengths.kind})"
    return f"{round(lengths.prompt):,} tokens in, {round(lengths.gen):,} out{kind}"


def _points(studies: list[Study], asked: Asked) -> Table:
    table = Table((*OF_SETTING, *FIGURES, "a step is", ""), "<<<<<>>>>>>>>><<")
    led = leading(studies, asked)
    queued, several = asked.users is not None, len(asked.policies) > 1
    for each in studies:
        bends = knees(each)
        for point in each.points:
            at = point.steady
            usd = each.usd(at)
            marks = [
                word
                for word, said in (
                    ("best", led is not None and point is led[1]),
                    ("knee", bends.get(at.policy) is at),
                    ("too much memory", point.fits is False),
                    ("late", not point.meets),
                )
                if said
            ]
            table.rows.append(
                (
                    *setting_inputs(each).values(),
                    at.policy,
                    count(at.batch),
                    count(at.users) if queued else "-",
                    f"{at.devices:.3g}",
                    seconds(at.ttft_s),
                    seconds(at.tpot_s),
                    seconds(at.gap_s) if several else "-",
                    rate(at.output_tokens_per_s),
                    "-" if usd is None else f"{usd:,.3g}",
                    percent(at.used),
                    step_verdict(each.setting, at.step),
                    ", ".join(marks),
                )
            )
    return table


def _explained(each: Study, asked: Asked) -> list[Table]:
    tables = []
    if each.chunks:
        tables.append(_chunk_table(each, asked))
    if each.handover:
        tables.append(_handover_table(each))
    if each.runs:
        tables.append(_run_table(each, asked))
    tables.append(_cache_table(each))
    return tables


def _cache_table(each: Study) -> Table:
    table = Table(("cache of a request", "", "used", "most at once"), "<>>>")
    names = {"paged": "paged, whole blocks", "static": "contiguous, reserved"}
    for taken, most in each.allocators:
        fitting = "any" if most is None else count(most)
        used = percent(taken.utilisation)
        table.rows.append((names[taken.policy], size(taken.allocated_bytes), used, fitting))
    if each.prefix:
        without = each.prefix.most_without
        table.rows.append(
            (
                f"shared prefix, {count(each.work.shared)} tokens",
                f"{size(each.prefix.bytes_once)} once",
                "",
                f"without it {'any' if without is None else count(without)}",
            )
        )
    return table


def _chunk_table(each: Study, asked: Asked) -> Table:
    assert each.chunks is not None
    bill, batch = each.chunks.bill, plural(each.chunks.batch, "decode")
    table = Table((f"prompt in chunks of {count(bill.chunk)}", "", ""), "<><")
    hidden = "hidden behind" if bill.hidden else "more than"
    arithmetic = f"{hidden} {seconds(bill.linear_s)} of matrices + {seconds(bill.attention_s)} of attention"
    passes = "1 pass" if bill.pieces == 1 else f"{count(bill.pieces)} passes"
    within = (
        "a step within --tpot" if asked.tpot_s is not None else f"a step at most {asked.slack:.0%} longer"
    )
    table.rows += [
        (
            "weights, read again",
            seconds(bill.weights_s),
            f"{passes}; {arithmetic}",
        ),
        ("cache, read again", size(bill.reread_bytes), "by later chunks"),
        ("prefill alone", seconds(bill.chunked_s), f"in one step {seconds(bill.whole_s)}"),
        ("hides its weights", f"{bill.ridge_tokens:,.0f} tokens", "ridge x bytes of a weight / 2"),
        (f"rides free with {batch}", f"{count(each.chunks.free)} tokens", "the step still waits for memory"),
        (f"rides with {batch}", f"{count(each.chunks.within)} tokens", within),
    ]
    return table


def _handover_table(each: Study) -> Table:
    assert each.handover is not None
    got = each.handover
    table = Table(("disaggregated prefill", "", ""), "<><")
    table.rows += [
        ("cache sent", size(got.kv_bytes), f"{seconds(got.seconds)} over the link, between the first tokens"),
        ("devices that prefill", f"{got.prefill_units:.3g}", "for each that decodes"),
        ("link, in the mean", f"{got.link_bytes_per_s / 1e9:,.3g} GB/s", "from the prefilling devices"),
    ]
    return table


def _run_table(each: Study, asked: Asked) -> Table:
    columns = ("policy", "batch", "", "TTFT", "p99", "TPOT", "p99", "tokens/s", "used", "in limits")
    table = Table(columns, "<><>>>>>>>")
    for run in each.runs:
        at, got = run.point.steady, run_as_json(run, asked, each.setting.replicas)
        lengths, share = each.work.lengths, got["used"]
        closed = percent(lengths.utilisation(at.batch)) if at.policy == "static" else percent(at.used)
        table.rows.append(
            (
                at.policy,
                count(at.batch),
                "closed form, full",
                seconds(at.ttft_s),
                "-",
                seconds(at.tpot_s),
                "-",
                rate(at.output_tokens_per_s),
                closed,
                "-",
            )
        )
        half = f" ± {100 * share['half_width']:.1f}" if share["half_width"] is not None else ""
        tpot = got["tpot_s"] or {"mean": None, "p99": None}
        table.rows.append(
            (
                at.policy,
                count(at.batch),
                f"{count(got['requests'])} simulated",
                seconds(got["ttft_s"]["mean"]),
                seconds(got["ttft_s"]["p99"]),
                seconds(tpot["mean"]),
                seconds(tpot["p99"]),
                rate(got["output_tokens_per_s"]),
                f"{100 * share['value']:.1f}{half} %",
                "-" if got["within_limits"] is None else percent(got["within_limits"]),
            )
        )
    return without_constant(table, ("policy", "batch", "in limits"))[0]


def _static_note(each: Study) -> list[str]:
    """What the longest of a static batch costs, in the textbook's form beside the exact one."""
    lengths = each.work.lengths
    batches = [point.steady.batch for point in each.points if point.steady.policy == "static"]
    if not batches or lengths.kind == "fixed":
        return []
    slots = plural(batches[-1], "static slot")
    used, limit = lengths.utilisation(batches[-1]), lengths.limit(batches[-1])
    forms = {"exponential": "1/H_B", "uniform": "(B+1)/2B"}
    form = f", {forms[lengths.kind]} = {percent(limit)} of long outputs" if limit is not None else ""
    return [
        f"of {slots} {percent(used)} yield a token (E[length] / E[longest]{form}): "
        f"refilling them gains at most {1 / used:.2f} times"
    ]


def _notes(studies: list[Study], asked: Asked, seen: float | None) -> list[str]:
    first = studies[0]
    work, setting = first.work, first.setting
    notes = limit_notes([(each.setting.model, work.held_tokens) for each in studies])
    notes += inferred_notes(setting.model) if len(studies) == 1 else []
    if len(studies) == 1:
        got = first.asymptote
        most = number(got.kv if got.kv is not None else got.all_bytes)
        notes.append(
            f"decode tends to {most} FLOP/byte as the batch grows, at {work.lengths.mean_context:,.0f} "
            f"tokens: {got.verdict}"
        )
        notes += _static_note(first)
    kept = "" if first.points[0].steady.confidence is None else f": {first.points[0].steady.confidence}"
    kinds = "expected times" if kept else "floors"
    host = (
        f"as requests of {setting.engine.title} took" if setting.engine else "the host's time is not in them"
    )
    notes.append(f"{kinds}{kept}; steady states in closed form, {host}")
    led = leading(studies, asked)
    if led and led[1].steady.tpot_s:
        at = led[1].steady
        alone = float(at.step.best)
        notes.append(
            f"TPOT has what a token waits for others' prompts in it: of {count(at.batch)} at once a step "
            f"alone takes {seconds(alone)}, as `infercost request` has it; dollars pay for the prompts too"
        )
    if asked.rate is not None and led:
        found, at = at_rate(*led, asked.rate, asked), led[1].steady
        notes.append(
            f"{asked.rate:g} requests/s: {plural(found.units, 'unit')} of {at.devices:.3g}, each {BUSY:.0%} "
            f"busy at most, about {count(found.running)} at once in each where {count(at.batch)} would serve "
            f"{at.requests_per_s:,.3g} a second ({at.policy}); no queue is in the TTFT, --simulate has it"
        )
    notes += price_notes((each.setting.gpu for each in studies), asked.price)
    if seen is not None:
        for each in studies:
            usd, part = seen_usd(each, seen), of_best(each, seen)
            of = f", {percent(part)} of the best" if part is not None else ""
            cost = f": {usd:,.4g} dollars a million" if usd is not None else ""
            notes.append(f"seen on {each.setting.gpu.name}: {seen:,.6g} tokens/s{of}{cost}")
    if setting.replicas > 1:
        notes.append(f"--batch is of each of the {setting.replicas} ranks (--ep without --tp)")
    return notes
