"""Tables of the page: the figures behind its pictures, from the documents of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from .text import clean, count, number, percent, seconds, size

MOST_POINTS = 40
MOST_LEVERS = 10
OBJECTIVES = {
    "ttft": "the time to first token",
    "tpot": "the time per output token",
    "usd": "the dollars per million tokens out",
}
GAINS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "memory_bytes": "memory", "usd_per_million_output": "$/M out"}


def text(value: object) -> str:
    """`value` as text of a page: nothing in it is markup, nothing in it is hidden."""
    return escape(clean(str(value)))


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], words: Iterable[int] = ()
) -> str:
    """An HTML table in a box that scrolls; columns in `words` hold sentences."""
    wide = set(words)
    kind = [' class="words"' if i in wide else "" for i in range(len(columns))]
    head = "".join(f'<th scope="col"{kind[i]}>{text(name)}</th>' for i, name in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td{kind[i]}>{text(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bill_table(fit: dict[str, Any]) -> str:
    budget = fit["budget_bytes"]
    terms = [(term["name"], term["bytes"]) for term in fit["terms"]]
    rows = [*terms, ("together", fit["total_bytes"]), ("budget", budget)]
    cells = [(name, size(value), percent(value / budget) if budget else "-") for name, value in rows]
    reach = (
        ("longest context", "max_seq"),
        ("most sequences", "max_batch"),
        ("GPUs it needs", "gpus_needed"),
    )
    cells += [(name, "any" if fit[key] is None else count(fit[key]), "") for name, key in reach]
    got = fit["inputs"]
    caption = f"Memory of the fullest rank, {count(got['batch'])} x {count(got['seq'])} tokens"
    return table(caption, ("", "", "of the budget"), cells)


def times_table(request: dict[str, Any]) -> str:
    names = {"ttft_s": "time to first token", "tpot_s": "per output token", "e2e_s": "end to end"}
    kinds = ("bound", "floor", "expected")
    rows = [(name, *(seconds(request[key][kind]) for kind in kinds)) for key, name in names.items()]
    return table("The request", ("", *kinds), rows)


def ops_table(roofline: dict[str, Any]) -> str:
    columns = ("op", "phase", "FLOP/byte", "verdict", "floor", "expected")
    rows = [
        (
            f"{op['name']} ×{op['count']}" if op["count"] > 1 else op["name"],
            op["phase"],
            number(op["intensity"]),
            op["verdict"],
            seconds(op["floor_s"]),
            seconds(op["expected_s"]),
        )
        for op in roofline["ops"]
    ]
    return table("Operations of a prefill and a decode step, on one GPU", columns, rows)


def points_table(serve: dict[str, Any]) -> str:
    columns = ("at once", "TTFT", "TPOT", "tokens/s", "$ per million out", "decode is", "")
    rows = []
    for point in serve["points"][:MOST_POINTS]:
        usd = point["usd_per_million_output"]
        marks = ["best"] * (point == serve["best"]) + ["too much memory"] * (point["fits"] is False)
        marks += ["late"] * (not point["meets_limits"])
        rows.append(
            (
                count(point["batch"]),
                seconds(point["ttft_s"]),
                seconds(point["tpot_s"]),
                f"{point['output_tokens_per_s']:,.4g}",
                "-" if usd is None else f"{usd:,.3g}",
                point["verdict"],
                ", ".join(marks),
            )
        )
    return table("Many requests, continuous batching, prompts paid by the output", columns, rows)


def levers_html(diagnose: dict[str, Any]) -> str:
    """What binds, and the levers in the order of `infercost diagnose`."""
    bound = [
        f"<p>{text(name)}: {text(said['verdict'])}, it goes to {text(said['binds'])}</p>"
        for name, said in diagnose["verdicts"].items()
        if said and "verdict" in said
    ]
    levers = diagnose["levers"]
    caption = f"Levers by what they save of {OBJECTIVES.get(diagnose['objective'], diagnose['objective'])}"
    out = "".join(bound) + _lever_table(caption, levers[:MOST_LEVERS]) + _reasons(levers[:MOST_LEVERS])
    rest = levers[MOST_LEVERS:]
    if rest:
        more = _lever_table("The other levers", rest) + _reasons(rest)
        out += f"<details><summary>{len(rest)} more</summary>{more}</details>"
    return out


def _lever_table(caption: str, levers: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            one["name"] if one["fits"] is not False else f"{one['name']} (does not fit)",
            *(_change(one["before"][key], one["after"][key]) for key in GAINS),
            one["price"].split(":")[0],
        )
        for one in levers
    ]
    return table(caption, ("lever", *GAINS.values(), "price"), rows)


def _reasons(levers: Sequence[dict[str, Any]]) -> str:
    """Of each lever the reason, the price in words, and the command that goes into it."""
    return (
        '<dl class="sources">'
        + "".join(
            f"<dt>{text(one['name'])}</dt><dd>{text(one['why'])}. Price: {text(one['price'])}.<br>"
            f"<code>{text(one['command'])}</code></dd>"
            for one in levers
        )
        + "</dl>"
    )


def _change(before: float | None, after: float | None) -> str:
    """The change of a figure, as a share of what it was."""
    if not before or after is None:
        return "-"
    change = round(100 * (after / before - 1))
    return f"{change:+,} %" if change else "0 %"
