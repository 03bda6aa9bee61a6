"""How a pruned model is shown: what shrank, what it gains, what the training takes."""

from __future__ import annotations

from typing import Any

from ..costmodel.setting import Setting
from . import training as t
from .flat import flat
from .inputs import inferred_notes, limit_notes, without_constant
from .output.report import Report, Table
from .price import price_notes
from .pruning import Answer, runs_as, what_was_done
from .room import too_much
from .runs import cards
from .text import count, number, params, percent, plural, seconds, si, size
from .zeros import DENSE, storage_table


def screen(answer: Answer, point: dict[str, Any]) -> Report:
    setting, before, after = answer.before.setting, point["before"], point["after"]
    name = setting.model.called
    gained = f"{size(before['stored_bytes'])} to {size(after['stored_bytes'])} of weights"
    key = "expected" if answer.before.whole.expected is not None else "floor"
    if answer.after:
        slow, fast = before["e2e_s"][key], after["e2e_s"][key]
        sure = answer.after.whole.confidence
        gained += f", a request {seconds(slow)} to {seconds(fast)} ({_times(slow, fast)}, {sure or 'floor'})"
    tables = [_sizes(answer, point)]
    if answer.after:
        tables.append(_times_table(point))
    if point["storages"]:
        tables.append(storage_table(point["storages"]))
    notes = limit_notes([(setting.model, answer.asked.held_tokens)]) + inferred_notes(setting.model)
    if answer.run:
        tables.append(_training_table(answer, point))
    if answer.after:
        notes.append(
            f"{plural(answer.asked.batch, 'request')} of {count(answer.asked.prompt)} tokens in, "
            f"{count(answer.asked.gen)} out, on {cards(setting)}; weights {after['weights']}, "
            f"KV {setting.run.kv.name}"
        )
    notes += [*_misfit(point, setting), *_why(answer)]
    if answer.run:
        notes.append(t.mfu_note(answer.terms))
    notes += price_notes([answer.terms.gpu], answer.terms.price)
    return Report({}, [f"{name}, {what_was_done(answer)}: {gained}"], tables, notes)


def _misfit(point: dict[str, Any], setting: Setting) -> list[str]:
    """A word where a side is more than a rank holds."""
    lacking = [side for side in ("before", "after") if point[side]["fits"] is False]
    return [
        f"{side}: does not fit, {too_much(point[side]['peak_memory_bytes'], setting.gpu)}; "
        "times are as if it did"
        for side in lacking
    ]


def _times(slow: float, fast: float) -> str:
    return f"{slow / fast:.2f} times as fast"


def _why(answer: Answer) -> list[str]:
    """Why it is no faster, or what was assumed where it is."""
    zeros, gpu = answer.zeros, answer.before.setting.gpu
    if answer.after is None:
        return [
            "of a size alone only bytes follow; --to a model, or --keep-..., says the shapes that times need"
        ]
    if not zeros.sparsity:
        return []
    runs = runs_as(answer)
    if runs == DENSE and zeros.kind == DENSE:
        return [
            "zeros stored like any value save nothing: the same bytes are read and the same products done"
        ]
    if runs == DENSE and zeros.kind == "2:4" and gpu.sparsity is None:
        return [
            f"{gpu.name} has no sparsity factor on its sheet: 2:4 runs as dense there (--kernel assumes one)"
        ]
    if runs == DENSE and zeros.kind == "2:4":
        return ["without a kernel for 2:4 (--no-kernel) it runs as dense: only the file is smaller"]
    if runs == DENSE:
        return [
            "runs as dense: only the file is smaller; --kernel assumes a kernel that reads it as it is stored"
        ]
    if zeros.kind == "2:4" and gpu.sparsity is not None:
        return [
            f"2:4 products run at {gpu.sparsity:g} times the dense peak of {gpu.name}; FLOPs are those of "
            "the dense product; no such kernel was measured"
        ]
    return ["a kernel that reads the zeros as stored is assumed; it multiplies as if dense, so FLOPs stay"]


def _sizes(answer: Answer, point: dict[str, Any]) -> Table:
    table = Table(("", "before", "after", "after / before"), "<>>>")
    rows: list[tuple[str, str, Any]] = [
        ("parameters", "parameters", params),
        ("weights in memory", "weight_bytes", size),
        ("weights in the file", "stored_bytes", size),
        ("fullest rank" if answer.before.setting.devices > 1 else "peak memory", "peak_memory_bytes", size),
        (f"KV and state, {count(answer.asked.held_tokens)} tokens", "cache_bytes", size),
        ("prefill FLOPs", "prefill_matmul_flops", lambda value: si(value, "FLOP")),
        (f"decode FLOPs, {plural(answer.asked.decode_steps, 'step')}", "decode_matmul_flops", _flops),
    ]
    for label, key, show in rows:
        after = point["after"]
        alike = key == "stored_bytes" and after[key] == after["weight_bytes"]
        if after[key] is None or alike:
            continue
        cells = (show(point["before"][key]), show(after[key]))
        table.rows.append((label, *cells, number(point["ratios"][key])))
    return table


def _flops(value: float) -> str:
    return si(value, "FLOP") if value else "0"


def _times_table(point: dict[str, Any]) -> Table:
    table = Table(("", "bound", "floor", "expected"), "<>>>")
    names = {"ttft_s": "time to first token", "tpot_s": "per output token", "e2e_s": "end to end"}
    for key, name in names.items():
        for side in ("before", "after"):
            each = point[side][key]
            cells = (seconds(each["bound"]), seconds(each["floor"]), seconds(each["expected"]))
            table.rows.append((f"{name}, {side}", *cells))
    return table


def _training_table(answer: Answer, point: dict[str, Any]) -> Table:
    assert answer.run is not None
    run, found = answer.run, point["training"]
    table = Table((f"training, {params(run.tokens)} tokens", "FLOPs", "GPU hours", "dollars"), "<>>>")
    table.rows.append(("the smaller model", *t.compute_cells(run.student)))
    if run.teacher.flops:
        table.rows.append(("its teacher", *t.compute_cells(run.teacher)))
        table.rows.append(("together", *t.compute_cells(run.whole)))
    if found["vs_pretraining"] is not None:
        table.rows.append(("of the pre-training", percent(found["vs_pretraining"]), "", ""))
    if answer.repaid is not None:
        table.rows.append(("repaid after", plural(round(answer.repaid), "request"), "", ""))
    return table


def sweep(answers: list[Answer], points: list[dict[str, Any]]) -> Report:
    columns = ("model", "gpu", "prompt", "gen", "batch", "weights", "KV", "sparsity", "storage")
    found = ("runs as", "parameters", "in the file", "in memory", "TTFT", "TPOT", "end to end", "gain")
    table = Table((*columns, *found), "<<>>><<><<>>>>>>>")
    key = "expected" if answers[0].before.whole.expected is not None else "floor"
    for answer, point in zip(answers, points, strict=True):
        got, after = point["inputs"], point["after"]
        timed = answer.after is not None
        table.rows.append(
            (
                got["model"],
                got["gpu"],
                count(got["prompt"]),
                count(got["gen"]),
                count(got["batch"]),
                got["weights"],
                got["kv"],
                percent(got["sparsity"]) if got["sparsity"] else "-",
                got["storage"] if got["sparsity"] else "-",
                point["runs_as"] or "-",
                params(after["parameters"]),
                size(after["stored_bytes"]),
                size(after["weight_bytes"]),
                seconds(after["ttft_s"][key]) if timed else "-",
                seconds(after["tpot_s"][key]) if timed else "-",
                seconds(after["e2e_s"][key]) if timed else "-",
                f"{point['before']['e2e_s'][key] / after['e2e_s'][key]:.2f}x" if timed else "-",
            )
        )
    table, notes = without_constant(table, (*columns, *found[:4]))
    notes += list(
        dict.fromkeys(
            n for a in answers for n in limit_notes([(a.before.setting.model, a.asked.held_tokens)])
        )
    )
    notes.append(f"times after, {key}; gain: end to end before / after")
    gains = [p["before"]["e2e_s"][key] / p["after"]["e2e_s"][key] for p in points if p["after"]["e2e_s"]]
    said = f": {min(gains):.2f} to {max(gains):.2f} times as fast, end to end" if gains else ""
    return Report({}, [f"{plural(len(points), 'point')}{said}"], [table], notes)


def row(point: dict[str, Any]) -> dict[str, Any]:
    """A point as one CSV row: both sides, the training, and what runs."""
    out = dict(point["inputs"])
    for side in ("before", "after"):
        out |= {f"{side}.{key}": value for key, value in flat(point[side]).items()}
    out |= {f"training.{key}": value for key, value in (point["training"] or {}).items()}
    return out | {"runs_as": point["runs_as"], "repaid_after_requests": point["repaid_after_requests"]}
