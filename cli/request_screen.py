"""What `infercost request` shows: one request in full, several in a table, time lines."""

from __future__ import annotations

from typing import Any

from .. import InputError
from ..costmodel.memory import within_room
from ..costmodel.offload import Offload
from .inputs import (
    inferred_notes,
    limit_notes,
    without_constant,
)
from .output.report import Report, Table
from .pace import pace
from .placed import placed_table, three
from .price import price_notes
from .request_answer import Answer
from .room import TOO_MUCH, too_much
from .runs import cards
from .stand_ins import maths_of, substitutions
from .text import count, percent, plain, plural, seconds, si, size, size_both
from .timeline import picture

MOST_LINES = 12
"""Time lines in one picture."""


def screen(answer: Answer, point: dict[str, Any], price: float | None) -> Report:
    setting, asked, whole = answer.setting, answer.request, answer.whole
    gpu, got = setting.gpu, point["inputs"]
    many = f"{plural(asked.batch, 'request')} of" if asked.batch > 1 else ""
    on = cards(setting)
    if answer.phase == "decode":
        what = f"one decode step at {count(got['prompt'])} tokens"
    else:
        read = f", {count(asked.encoder)} encoder positions" if asked.encoder else ""
        what = f"{plural(asked.prompt, 'token')} in{read}, {count(asked.gen)} out"
    sure = f" {whole.confidence}" if whole.confidence else " (floor)"
    name = setting.model.called
    beyond = ", but it does not fit" if point["fits"] is False else ""
    lines = [f"{name}, {many + ' ' if many else ''}{what}, on {on}: {seconds(whole.best)}{sure}{beyond}"]
    lines.append(pace(point))
    table = Table(("", "bound", "floor", "expected", "MFU", "MBU"), "<>>>>>")
    if answer.ttft:
        table.rows.append(
            (
                "time to first token",
                *three(answer.ttft.times()),
                percent(answer.ttft.mfu),
                percent(answer.ttft.mbu),
            )
        )
    if answer.prefiller:
        over = seconds(answer.prefiller.transfer_s(asked))
        table.rows.append(("cache to the decoding GPUs", over, over, over, "-", "-"))
    if answer.decoding:
        label = f"per output token (x {count(asked.decode_steps)})"
        mfu, mbu = percent(answer.decoding.mfu), percent(answer.decoding.mbu)
        table.rows.append((label, *three(answer.tpot), mfu, mbu))
    if answer.ttft:
        table.rows.append(("end to end", *three(whole.times()), percent(whole.mfu), percent(whole.mbu)))
    if answer.no_cache:
        table.rows.append(("end to end, no KV cache", *three(answer.no_cache.times()), "-", "-"))
    tables = [table, _bill(answer)]
    if "measured" in point:
        tables.insert(1, placed_table(point["measured"]))
    notes = limit_notes([(setting.model, asked.held_tokens)]) + inferred_notes(setting.model)
    notes.append(
        f"weights {got['weights']}, KV {got['kv']}; "
        + (
            f"expected as requests of {setting.engine.title} took, host included"
            if setting.engine and whole.expected is not None
            else "kernels only, one after the other: an engine hides part of their starts and its host takes "
            "time of its own (--engine)"
        )
    )
    if asked.batch > 1 and answer.ttft:
        notes.append(
            f"the {count(asked.batch)} prompts are computed together, then all decode: `infercost serve` has "
            "requests that come and go"
        )
    notes += substitutions(maths_of(setting.model, setting.recipe), gpu)
    if answer.prefiller:
        there = answer.prefiller.setting
        notes.append(f"prefill on {there.devices} x {there.gpu.title}, which are paid for their own time")
    if setting.offload:
        notes.append(_offload_note(setting.offload))
    if setting.replicas > 1:
        notes.append(
            f"each of the {setting.replicas} ranks has so many requests of its own (--ep without --tp)"
        )
    if answer.no_cache:
        saved = asked.token_passes(cache=False) / asked.token_passes()
        notes.append(
            f"without a KV cache {count(asked.token_passes(cache=False))} tokens pass the model, with it "
            f"{count(asked.token_passes())}: {saved:,.0f} times fewer"
        )
    notes += price_notes([gpu, answer.prefiller.setting.gpu] if answer.prefiller else [gpu], price)
    if point["fits"] is False:
        for held, card in (
            (answer.memory, gpu),
            (answer.filling, answer.prefiller and answer.prefiller.setting.gpu),
        ):
            if held and card and within_room(held.total, card.capacity_bytes) is False:
                notes.append(
                    f"does not fit {card.name}: {too_much(held.total, card)}; times are as if it did"
                )
    return Report({}, lines, tables, notes, picture=picture(answer.blocks, setting.devices))


def _offload_note(left: Offload) -> str:
    parts = [f"weights of {plural(left.layers, 'layer')}"] if left.layers else []
    parts += ["the cache"] if left.cache else []
    return (
        f"{' and '.join(parts)} in the host's memory, over {left.link_bytes_per_s / 1e9:g} GB/s in every step"
    )


def _bill(answer: Answer) -> Table:
    table = Table(("bill", "", ""), "<><")
    memory, usd = answer.memory, answer.usd
    rank = "fullest rank" if answer.setting.devices > 1 else "peak memory"
    parts = f"weights {size(memory.weights)}, KV {size(memory.cache)}, activations {size(memory.activations)}"
    table.rows.append((rank, size_both(memory.total), parts))
    joules = answer.energy_j
    if joules is not None:
        table.rows.append(("energy, at most", si(joules, "J"), "a request, at the board's full power"))
    if usd:
        kinds = (("input", usd.input), ("cached input", usd.cached_input), ("output", usd.output))
        rates = [f"{kind} {each:,.3g}" for kind, each in kinds if each is not None]
        table.rows.append(
            ("dollars", plain(usd.request), f"a request; per million tokens: {', '.join(rates)}")
        )
    return table


def several(answers: list[Answer], points: list[dict[str, Any]], price: float | None) -> Report:
    columns = ("model", "gpu", "prompt", "gen", "batch", "weights", "KV", "TTFT", "TPOT", "end to end", "±")
    table = Table((*columns, "memory", "dollars"), "<<>>><<>>>>>>")
    for answer, point in zip(answers, points, strict=True):
        got = point["inputs"]
        key = "expected" if answer.whole.expected is not None else "floor"
        sure = answer.whole.confidence
        table.rows.append(
            (
                got["model"],
                got["gpu"],
                count(got["prompt"]),
                "-" if got["gen"] is None else count(got["gen"]),
                count(got["batch"]),
                got["weights"],
                got["kv"],
                seconds(point["ttft_s"][key]),
                seconds(point["tpot_s"][key]),
                seconds(point["e2e_s"][key]),
                f"{sure.error:.0%}" if sure else "-",
                size(point["peak_memory_bytes"]) + ("" if point["fits"] is not False else " !"),
                f"{point['usd']:.3g}" if point["usd"] is not None else "-",
            )
        )
    table, notes = without_constant(table, columns[:7])
    if any(point["fits"] is False for point in points):
        notes.append(TOO_MUCH)
    notes += list(
        dict.fromkeys(n for a in answers for n in limit_notes([(a.setting.model, a.request.held_tokens)]))
    )
    wanted = {(a.setting.gpu, math) for a in answers for math in maths_of(a.setting.model, a.setting.recipe)}
    notes += [note for gpu, math in sorted(wanted, key=str) for note in substitutions({math}, gpu)]
    notes += price_notes((a.setting.gpu for a in answers), price)
    kinds = "expected times" if answers[0].whole.expected is not None else "floors"
    engine = answers[0].setting.engine
    host = f"as {engine.title} took" if engine else "of kernels, host time not in them"
    return Report({}, [f"{plural(len(points), 'request')}: {kinds} {host}"], [table], notes)


def draw_timelines(path: str, answers: list[Answer], points: list[dict[str, Any]]) -> None:
    """A time line of every request."""
    from .pictures.file import draw
    from .pictures.serving import timeline_chart

    if len(answers) > MOST_LINES:
        raise InputError(f"--plot: at most {MOST_LINES} time lines, not {len(answers)}")
    charts = []
    for answer, point in zip(answers, points, strict=True):
        got, setting = point["inputs"], answer.setting
        name, where = setting.model.called, setting.gpu.title
        lengths = f"{count(got['prompt'])} tokens in" + (f", {count(got['gen'])} out" if got["gen"] else "")
        many = f"{plural(got['batch'], 'request')}, " if got["batch"] > 1 else ""
        charts.append(timeline_chart(f"Time line: {name} on {where}, {many}{lengths}", point["timeline"]))
    draw(path, charts)
