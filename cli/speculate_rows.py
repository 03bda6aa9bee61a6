"""`infercost speculate --rows`: speed-ups predicted from accepted lengths, held to measured ones."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from .. import InputError
from ..costmodel.setting import Setting
from ..costmodel.speculative import OUTSIDE_LAYERS
from ..costmodel.speculative_methods import (
    CONTEXT,
    EAGER_HOST_US_PER_LAYER,
    Case,
    Errors,
    errors,
    find_method,
    method_left_out,
)
from ..costmodel.step import Run
from ..hardware.catalogue import is_known, load_gpu
from ..models.catalogue import load_model, model_aliases, model_names
from ..models.recipes import find_recipe
from ..probes.speculation_rows import cases
from .calibrations import clock_of
from .inputs import document
from .output.report import Report, Table
from .speculate_options import Asked, between
from .text import count, plural

MOST_REASONS = 8
SWEPT_US = (0.0, 200.0, 450.0, 700.0, 1000.0)
CONVENTIONS = {
    "predicted": "accepted tokens x plain step / round; a step is the longer of its kernels (expected times) "
    "and its launches, 16-bit weights",
    "host_us_per_layer": f"one constant for all methods; a pass has {OUTSIDE_LAYERS} layers' worth of "
    "launches outside its layers, a round those once more",
    "default host": "fitted to Spec-Bench's 26 rows with an accepted length, all methods together",
    "method_left_out": "each method with the constant that the other methods' rows want (least mean error)",
    "methods": "draft passes and verified tokens as Spec-Bench runs each; nothing is fitted to a method",
    "context": f"{CONTEXT} tokens: an assumption",
    "error": "|predicted / measured - 1|; bias is the median of predicted / measured - 1",
}


def rows_report(asked: Asked) -> Report:
    """Errors by method, and of each row."""
    assert asked.rows is not None
    host = EAGER_HOST_US_PER_LAYER
    if asked.host_us_per_layer is not None:
        host = between(asked.host_us_per_layer, "--host-us-per-layer", 0, 1e6)

    @cache
    def setting(model: str, gpu: str) -> Setting:
        device = load_gpu(_gpu_name(gpu))
        run = Run(recipe=find_recipe("fp16"))
        return Setting(load_model(_model_name(model)), run, device, clock=clock_of(asked.calibration, device))

    found, excluded = cases(asked.rows, setting)
    if not found:
        reasons = "; ".join(f"{n:,} {why}" for why, n in excluded.most_common(MOST_REASONS)) or "no rows"
        raise InputError(f"{asked.rows}: nothing to predict: {reasons}")
    left_out = method_left_out(found)
    point: dict[str, Any] = {
        "inputs": {"rows": asked.rows, "host_us_per_layer": host},
        "total": errors(case.error(host) for case in found)._asdict(),
        "method_left_out": errors(one for _, each in left_out.values() for one in each)._asdict(),
        "kernels_only": errors(case.error(0) for case in found)._asdict(),
        "by_host": [
            {"host_us_per_layer": each, **errors(case.error(each) for case in found)._asdict()}
            for each in SWEPT_US
        ],
        "methods": _methods(found, host, left_out),
        "cases": [
            {
                "line": case.line,
                "target": case.target,
                "gpu": case.gpu,
                "method": case.method,
                "tokens_per_round": case.tokens,
                "measured": case.measured,
                "predicted": case.predicted(host),
                "error": case.error(host),
            }
            for case in found
        ],
        "excluded": dict(excluded),
    }
    final = _screen(point)
    inputs = {"command": "speculate", "calibration": asked.calibration}
    sources = {asked.rows: "measured speed-ups"} | {
        case.method: method.source for case in found if (method := find_method(case.method))
    }
    final.document = document("speculate", inputs, CONVENTIONS, sources, [point], False)
    final.records = point["cases"]
    final.quiet = [repr(point["total"]["median"])]
    return final


def _gpu_name(text: str) -> str:
    """A GPU as a file calls it: `A100-80GB`, `RTX 3090`. A file names built-in sheets, not other files."""
    plain = re.sub(r"(\d)gb\b", r"\1g", text.strip().lower().replace(" ", ""))
    if not is_known(plain):
        raise InputError(f"no sheet for the GPU '{text[:40]}'")
    return plain


def _model_name(text: str) -> str:
    """A model as a file calls it, an owner left off: `JackFram/llama-68m`."""
    plain = text.strip().lower().rsplit("/", 1)[-1]
    if plain not in model_names() and plain not in model_aliases():
        raise InputError(f"no sheet for the model '{text[:40]}'")
    return plain


def _methods(
    found: list[Case], host: float, left_out: dict[str, tuple[float, list[float]]]
) -> list[dict[str, Any]]:
    out = []
    for name, (others, apart) in left_out.items():
        here: Errors = errors(case.error(host) for case in found if case.method == name)
        out.append(
            {
                "method": name,
                **here._asdict(),
                "left_out_host_us_per_layer": others,
                "left_out_median": errors(apart).median,
            }
        )
    return sorted(out, key=lambda line: (-line["rows"], line["method"]))


def _screen(point: dict[str, Any]) -> Report:
    total, apart, host = point["total"], point["method_left_out"], point["inputs"]["host_us_per_layer"]
    head = (
        f"{plural(total['rows'], 'speed-up')} predicted from accepted lengths: off by "
        f"{_share(total['median'])} % in the median, {_share(total['mean'])} % in the mean, with one host "
        f"constant of {host:g} us a layer"
    )
    table = Table(("method", "rows", "median", "mean", "bias", "left out"), "<>>>>>", title="errors in %")
    for line in point["methods"]:
        table.rows.append(
            (
                line["method"],
                count(line["rows"]),
                _share(line["median"]),
                _share(line["mean"]),
                _signed(line["bias"]),
                _share(line["left_out_median"]),
            )
        )
    hosts = Table(("us a layer", "median", "mean", "bias"), ">>>>", title="all rows, by host constant, in %")
    for line in point["by_host"]:
        hosts.rows.append(
            (
                f"{line['host_us_per_layer']:g}",
                _share(line["median"]),
                _share(line["mean"]),
                _signed(line["bias"]),
            )
        )
    notes = [
        f"left out: the method predicted with the constant its others want; all methods so: "
        f"{_share(apart['median'])} % in the median, {_share(apart['mean'])} % in the mean",
        "draft passes and verified tokens are published settings (--json: sources); no constant is fitted to "
        f"a method; {OUTSIDE_LAYERS} layers' worth of launches outside the layers and a context of {CONTEXT} "
        "are assumed",
        "a lookup's own time on the host (retrieval, suffix automata) and tree building are not in it",
    ]
    reasons = sorted(point["excluded"].items(), key=lambda each: -each[1])
    notes += [f"not predicted: {plural(n, 'row')}, {why}" for why, n in reasons[:MOST_REASONS]]
    return Report({}, [head], [table, hosts], notes)


def _share(value: float) -> str:
    return f"{100 * value:.1f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}"
