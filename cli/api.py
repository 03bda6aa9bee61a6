"""The Python functions: each is its command, with options as arguments and a result in place of a screen.

A call is turned into the words of the command line and takes that command's own way from there, so that the
two cannot differ: `kv("llama-7b", 32768, kv="fp8").document` is what
`infercost kv --model llama-7b --seq 32768 --kv fp8 --json` prints. Every option of a command is an argument,
its long name with underscores (`kv_heads=8`; `with_` and `from_` for Python's own words); None leaves the
command's default. A list sweeps, as commas do.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from .. import InputError
from ..hardware.spec import Gpu
from ..models.spec import Model
from ..sheets import AT_HAND, nearest
from .app import COMMANDS
from .output.report import Report
from .result import Diagnose, Fit, Kv, Ops, Request, Result, Roofline, Serve, Weights
from .sizes import LENGTHS, grouped
from .subcommand import as_printed, command_of, report_of
from .synonyms import called_here

Count = int | str
Name = str | os.PathLike[str]
Counts = Count | Sequence[Count]
Names = Name | Sequence[Name]
Models = Name | Model | Sequence[Name | Model]
Gpus = Name | Gpu | Sequence[Name | Gpu]
Option = Count | float | Name | Model | Gpu | Sequence[Count | float | Name | Model | Gpu] | None
R = TypeVar("R", bound=Result)
LIMITS = ("ttft", "tpot", "e2e")
"""Times, which are seconds where they are numbers, as everywhere in Python; a command line names the unit."""


def kv(
    model: Models,
    seq: Counts | None = None,
    *,
    batch: Counts | None = None,
    kv: Names | None = None,
    tp: int | None = None,
    engine: str | None = None,
    **options: Option,
) -> Kv:
    """Bytes of the KV cache and state of `seq` tokens in each of `batch` sequences."""
    return _result(Kv, "kv", model=model, seq=seq, batch=batch, kv=kv, tp=tp, engine=engine, **options)


def weights(
    model: Models | None = None,
    weights: Names | None = None,
    *,
    batch: Counts | None = None,
    **options: Option,
) -> Weights:
    """Bytes of the weights by component, in a format or recipe (default: the checkpoint's own)."""
    return _result(Weights, "weights", model=model, weights=weights, batch=batch, **options)


def ops(
    model: Models,
    seq: Counts | None = None,
    *,
    gpu: Gpus | None = None,
    batch: Counts | None = None,
    phase: str | None = None,
    weights: Names | None = None,
    kv: Names | None = None,
    **options: Option,
) -> Ops:
    """Every operation of a prefill of `seq` tokens and of a decode step there."""
    return _result(
        Ops, "ops", model=model, seq=seq, gpu=gpu, batch=batch, phase=phase, weights=weights, kv=kv, **options
    )


def roofline(
    gpu: Gpus | None = None,
    *,
    model: Models | None = None,
    seq: Counts | None = None,
    batch: Counts | None = None,
    dtype: str | None = None,
    **options: Option,
) -> Roofline:
    """Ridge points of a GPU; with a model and a length its operations under the roof."""
    return _result(Roofline, "roofline", gpu=gpu, model=model, seq=seq, batch=batch, dtype=dtype, **options)


def request(
    model: Models,
    prompt: Counts | None = None,
    gen: Counts | None = None,
    *,
    gpu: Gpus | None = None,
    batch: Counts | None = None,
    tp: int | None = None,
    weights: Names | None = None,
    kv: Names | None = None,
    engine: str | None = None,
    price: float | None = None,
    **options: Option,
) -> Request:
    """Times, memory, energy and dollars of requests of `prompt` tokens in and `gen` out."""
    given = {"tp": tp, "weights": weights, "kv": kv, "engine": engine, "price": price}
    return _result(
        Request, "request", model=model, prompt=prompt, gen=gen, gpu=gpu, batch=batch, **given, **options
    )


def fit(
    model: Models,
    seq: Counts | None = None,
    *,
    gpu: Gpus | None = None,
    batch: Counts | None = None,
    tp: int | None = None,
    weights: Names | None = None,
    kv: Names | None = None,
    engine: str | None = None,
    share: float | None = None,
    **options: Option,
) -> Fit:
    """Whether `batch` sequences of `seq` tokens fit, how long, how many, on how many GPUs."""
    given = {"tp": tp, "weights": weights, "kv": kv, "engine": engine, "share": share}
    return _result(Fit, "fit", model=model, seq=seq, gpu=gpu, batch=batch, **given, **options)


def serve(
    model: Models,
    prompt: Count | None = None,
    gen: Count | None = None,
    *,
    gpu: Gpus | None = None,
    batch: Counts | None = None,
    tp: int | None = None,
    weights: Names | None = None,
    kv: Names | None = None,
    engine: str | None = None,
    ttft: float | str | None = None,
    tpot: float | str | None = None,
    price: float | None = None,
    **options: Option,
) -> Serve:
    """Throughput, latency and dollars over batches; `ttft` and `tpot` are limits (seconds, or '50ms')."""
    given = {"tp": tp, "weights": weights, "kv": kv, "engine": engine, "price": price}
    given |= {"ttft": ttft, "tpot": tpot}
    return _result(
        Serve, "serve", model=model, prompt=prompt, gen=gen, gpu=gpu, batch=batch, **given, **options
    )


def diagnose(
    model: Models,
    prompt: Counts | None = None,
    gen: Counts | None = None,
    *,
    gpu: Gpus | None = None,
    batch: Counts | None = None,
    **options: Option,
) -> Diagnose:
    """What binds prefill, decode and memory, and every lever ranked by what it would gain."""
    return _result(Diagnose, "diagnose", model=model, prompt=prompt, gen=gen, gpu=gpu, batch=batch, **options)


def run(command: str, *words: Name, **options: Option) -> Result:
    """Any command: `run("explain", "kv", model="llama-7b")`, `run("models", "show", "llama-7b")`.

    Raises InputError for an unknown command, and what the command raises.
    """
    return _result(Result, command, *words, **options)


def _result(kind: type[R], name: str, *words: Name, **options: Option) -> R:
    """The command's report as a result. Raises InfercostError, with the line the command line would say."""
    if name not in COMMANDS:
        hint = nearest(str(name), COMMANDS) or f"; there is {', '.join(COMMANDS)}"
        raise InputError(f"there is no command '{str(name)[:60]}'{hint}")
    plain = [os.fspath(word) for word in words]
    for word in plain:
        if word.startswith("-") and word != "-":
            raise InputError(f"'{word[:60]}': options are named arguments, such as seq=4096")
    known = _options_of(name, plain)
    if "json" not in known:
        raise InputError(f"infercost {' '.join((name, *plain))[:60]} has no JSON")
    held: dict[str, Model | Gpu] = {}
    line = [*plain, *_as_words(name, known, options, held)]

    def asked(*more: str) -> Report:
        before = AT_HAND.set(held)
        try:
            return report_of(name, (*line, *more))
        finally:
            AT_HAND.reset(before)

    report = asked()
    # What a call writes it writes once, and does not draw again.
    written = [key for key in ("plot", "output") if options.get(key) is not None]
    draw = partial(_svg, asked) if "plot" in known and not written else None
    return kind(shlex.join(["infercost", name, *line]), as_printed(report), report, draw)


def _svg(asked: Callable[..., Report]) -> str:
    """The picture that the command draws with --plot."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        asked("--plot", str(path))
        return path.read_text(encoding="utf-8")


def _options_of(name: str, words: list[str]) -> dict[str, Any]:
    """Options of a command (of the one inside, where it is a group) by the argument that stands for each."""
    command = command_of(name)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return {
        spelled.removeprefix("--").replace("-", "_"): parameter
        for parameter in command.params
        for spelled in parameter.opts
        if spelled.startswith("--")
    }


def _as_words(
    name: str, known: dict[str, Any], given: dict[str, Option], held: dict[str, Model | Gpu]
) -> list[str]:
    out: list[str] = []
    for argument, value in given.items():
        if value is None:
            continue
        key = argument.rstrip("_")
        if key not in known:
            own = {f"--{each.replace('_', '-')}": each for each in known}
            here = called_here(f"--{key.replace('_', '-')}", own)
            hint = f"; here it is {' or '.join(here)}" if here else nearest(key, known)
            hint = hint or f"; its options are {', '.join(known)}"
            raise InputError(f"{name} has no option '{argument[:60]}'{hint}")
        option = f"--{key.replace('_', '-')}"
        if known[key].is_flag:
            if not isinstance(value, bool):
                raise InputError(f"{argument} is True or False, not {value!r:.60}")
            off = known[key].secondary_opts
            out += [option] if value else off[:1]
            continue
        values = list(value) if isinstance(value, (list, tuple, range)) else [value]
        texts = [_as_word(argument, one, held) for one in values]
        if key in LIMITS and not isinstance(value, (str, os.PathLike)):
            texts = [f"{float(text):.12f}".rstrip("0").rstrip(".") + "s" for text in texts]
        # Numbers that commas alone would run together (`grouped`) are told apart by a space too.
        between = ", " if known[key].opts[0] in LENGTHS and grouped(texts) else ","
        for text in texts if known[key].multiple else [between.join(texts)]:
            out += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return out


def _as_word(argument: str, value: Any, held: dict[str, Model | Gpu]) -> str:
    """One value as a person would type it; an object as its name in angle brackets, for the catalogues to
    find: a text of the same name is still the sheet that ships."""
    if isinstance(value, (Model, Gpu)):
        name = re.sub(r"[^\w.-]", "-", value.name)
        while held.get(f"<{name}>", value) is not value:
            name += "+"
        held[f"<{name}>"] = value
        return f"<{name}>"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if not isinstance(value, bool) and (isinstance(value, float) or hasattr(value, "__index__")):
        return str(value)
    raise InputError(f"{argument} takes text, numbers, or a list of them, not {value!r:.60}")
