"""`infercost check`: costs held to a budgets file, for CI."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import DeviceError, InfercostError, InputError
from ..sheets import nearest
from .assertions import values_at
from .budgets import Budgets, Check, read_budgets, unit_of, with_baselines
from .groups import grouped
from .judging import Judged, judge, shown
from .output.report import Report, Sink, Table, emit, write_file
from .sizes import words
from .subcommand import document_of
from .text import number, plural

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "run": "a command of infercost, run in the folder of the budgets file; it reads no standard input and "
    "writes no file",
    "expr": "a key of its JSON; where lists were given, every point's, and value is the one furthest off",
    "limit": "base units (bytes, seconds, dollars); max and min belong to what is allowed",
    "tolerance": "share of the limit; without one, whole numbers are exact and others to 1e-9",
    "passed": "false, too, where the command failed or gave no such value: why says which",
}


class CheckFailedError(InfercostError):
    """A value left its budget."""

    exit_code = 1


@app.command()
@grouped
def check(
    *,
    file: Annotated[str, typer.Argument(help="The budgets file.")] = "budgets.yaml",
    only: Annotated[str | None, typer.Option("--only", help="These checks alone, by name: a,b.")] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the values of now over the baselines in the file.")
    ] = False,
    junit: Annotated[
        str | None, typer.Option("--junit", help="Write JUnit XML to this file, besides.")
    ] = None,
    github: Annotated[
        bool | None,
        typer.Option(
            "--github/--no-github",
            help="Annotate failures on GitHub (standard error; default where GITHUB_ACTIONS is true).",
        ),
    ] = None,
    sink: Sink,
) -> None:
    """Hold costs to budgets: a file of checks, each a command, a key of its JSON and a limit.

    \b
    infercost check
    infercost check ci/budgets.yaml --junit costs.xml
    infercost check --only kv-per-token,ttft
    infercost check --update
    infercost check --json -o checks.json

    \b
    checks:
      kv-per-token:
        run: kv --model config.json --seq 1
        expr: bytes_per_token
        max: 144 KiB            # or min, equals, or baseline (with --update)
        note: why the budget is what it is
    """
    sink.chosen()
    budgets = read_budgets(Path(file))
    chosen = _chosen(budgets, only)
    results, sources = _run(budgets, chosen)
    if update:
        results = _updated(budgets, results)
    if junit is not None:
        from .junit import junit_xml

        write_file(Path(junit), junit_xml(file, results))
    on_github = os.environ.get("GITHUB_ACTIONS") == "true" if github is None else github
    if on_github and sys.stderr is not None:
        from .github import annotation_lines

        for line in annotation_lines(budgets.path, results):
            print(line, file=sys.stderr)
    asked = {"command": "check", "file": file, "only": [each.name for each in chosen], "update": update}
    emit(_report(file, results, {"inputs": asked, "conventions": CONVENTIONS, "sources": sources}), sink)
    _leave(file, results)


def _chosen(budgets: Budgets, only: str | None) -> list[Check]:
    if only is None:
        return list(budgets.checks)
    names = {each.name: each for each in budgets.checks}
    wanted = words(only, "--only")
    for name in wanted:
        if name not in names:
            hint = nearest(name, names) or f"; checks: {', '.join(list(names)[:12])}"
            raise InputError(f"--only: {budgets.path} has no check '{name[:80]}'{hint}")
    return [each for each in budgets.checks if each.name in wanted]


def _run(budgets: Budgets, chosen: list[Check]) -> tuple[list[Judged], dict[str, str]]:
    """Every check judged, and the sources of its numbers; a command several checks share is run once."""
    found: dict[tuple[str, ...], dict[str, Any] | InfercostError] = {}
    results, sources = [], {}
    with contextlib.chdir(budgets.path.parent):
        for each in chosen:
            if each.words not in found:
                found[each.words] = _document(each.words)
            document = found[each.words]
            if isinstance(document, InfercostError):
                results.append(_broken(each, document))
                continue
            sources.update(document.get("sources", {}))
            try:
                results.append(judge(each, values_at(document, each.expr, "expr")))
            except InputError as error:
                results.append(_broken(each, error))
    return results, sources


def _document(line: tuple[str, ...]) -> dict[str, Any] | InfercostError:
    try:
        return document_of(line)
    except InfercostError as error:
        return error


def _broken(each: Check, error: InfercostError) -> Judged:
    """A check without a value. Where its command itself says no (exit 1), it failed; else it is in error."""
    return Judged(each, why=str(error), error=error.exit_code != 1, exit_code=error.exit_code)


def _updated(budgets: Budgets, results: list[Judged]) -> list[Judged]:
    """The results with baselines of now, which are written to the file: all of them or, on an error, none."""
    recorded = [each for each in results if each.check.rule == "baseline" and each.value is not None]
    if not any(each.check.rule == "baseline" for each in results):
        raise InputError(f"--update: no check chosen of {budgets.path} has a baseline")
    if any(each.error for each in results):
        return results
    new = {each.check.name: each.value for each in recorded if each.value != each.check.limit}
    if new:
        _record(budgets, new)
    return [
        Judged(each.check._replace(limit=each.value), each.value, True, before=each.check.limit, updated=True)
        if each.check.name in new
        else each
        for each in results
    ]


MOST_WAITING = 20.0
"""Seconds for which another --update of the same file is waited for: it takes a moment."""


def _record(budgets: Budgets, new: dict[str, Any]) -> None:
    """Write baselines into the file as it is now: others may have been written since it was read."""
    from .output.files import only_writer

    with only_writer(budgets.path, "another check --update", MOST_WAITING):
        now = read_budgets(budgets.path)
        asked = {each.name: each for each in budgets.checks}
        there = {each.name: each for each in now.checks}
        for name in new:
            # Its line and its baseline may be others by now, the question may not.
            each = there.get(name)
            if each is None or each._replace(line=0, limit=0) != asked[name]._replace(line=0, limit=0):
                raise InputError(f"--update: {name} of {budgets.path} was changed meanwhile: run it again")
        write_file(budgets.path, with_baselines(now, new))


def _report(file: str, results: list[Judged], head: dict[str, Any]) -> Report:
    bad = [each for each in results if not each.passed]
    broken = sum(1 for each in bad if each.error)
    changed = sum(1 for each in results if each.updated)
    answer = f"{file}: {plural(len(results), 'check')} passed"
    if bad:
        first = ", ".join(each.check.name for each in bad[:3]) + (", ..." if len(bad) > 3 else "")
        in_error = f", {broken:,} in error" if broken else ""
        answer = f"{file}: {len(bad) - broken:,} of {plural(len(results), 'check')} failed{in_error}: {first}"
    if changed:
        answer += f", {plural(changed, 'baseline')} updated"
    table = Table(("check", "value", "limit", "off by", "verdict"), "<><><")
    table.rows = [_row(each) for each in results]
    notes = []
    for each in bad:
        notes.append(f"{file}:{each.check.line}: {each.check.name}: {each.why}")
        notes += [f"  {each.check.note}"] if each.check.note else []
        notes.append(f"  $ {each.check.command_line}")
    if any(each.check.rule == "baseline" and not each.error for each in bad):
        notes.append("where a new baseline is meant, --update writes it")
    records = [_as_json(each) for each in results]
    document = {
        "schema": "infercost.check/1",
        **head,
        "passed": not bad,
        "failed": len(bad) - broken,
        "errors": broken,
        "updated": changed,
        "checks": records,
    }
    return Report(document, [answer], [table], notes, records=records, quiet=[str(len(bad))])


def _row(judged: Judged) -> tuple[str, ...]:
    each, unit = judged.check, unit_of(judged.check.expr)
    around = f" ± {100 * each.tolerance:g} %" if each.tolerance else ""
    limit = "-" if each.rule == "baseline" and each.limit is None else shown(each.limit, unit)
    off = judged.off
    verdict = "updated" if judged.updated else "passed" if judged.passed else "FAILED"
    return (
        each.name,
        "-" if judged.value is None else shown(judged.value, unit),
        f"{each.rule} {limit}{around}",
        "-" if off is None else f"{'+' if off > 0 else ''}{number(100 * off)} %",
        "ERROR" if judged.error else verdict,
    )


def _as_json(judged: Judged) -> dict[str, Any]:
    each = judged.check
    return {
        "name": each.name,
        "run": each.command_line,
        "expr": each.expr,
        "value": judged.value,
        "rule": each.rule,
        "limit": each.limit,
        "tolerance": each.tolerance,
        "passed": judged.passed,
        "why": judged.why or None,
        "error": judged.error,
        "before": judged.before,
        "updated": judged.updated,
        "note": each.note or None,
        "line": each.line,
    }


def _leave(file: str, results: list[Judged]) -> None:
    """Raise what the exit code is to say: an error in a check before a budget that was broken."""
    bad = [each for each in results if not each.passed]
    if not bad:
        return
    first = next((each for each in bad if each.error), bad[0])
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    if not first.error:
        raise CheckFailedError(f"failed: {first.check.name}: {first.why}{more}")
    kind = DeviceError if first.exit_code == DeviceError.exit_code else InputError
    raise kind(f"{file}:{first.check.line}: {first.check.name}: {first.why}{more}")
