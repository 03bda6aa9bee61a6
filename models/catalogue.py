"""The models infercost knows by name, and a model from whatever a person has."""

from __future__ import annotations

import os
import re
import sys
from functools import cache, partial
from pathlib import Path

from .. import InputError
from ..sheets import AT_HAND, MAX_CONFIG_BYTES, decode, near, read_file
from .sheet import model_from_text
from .spec import Model

# Beside this file and not through importlib.resources, whose import alone costs 2 ms of start-up.
SHEETS = Path(__file__).parent / "sheets"


@cache
def model_names() -> tuple[str, ...]:
    """Names of the built-in sheets, sorted; no sheet is read."""
    return tuple(sorted(path.stem for path in SHEETS.glob("*.yaml")))


@cache
def load_builtin(name: str) -> Model:
    """A built-in model by its exact name."""
    text = (SHEETS / f"{name}.yaml").read_text(encoding="utf-8")
    return model_from_text(text, f"{name}.yaml", trusted=True)


@cache
def model_aliases() -> dict[str, str]:
    """Every alias to its model's name, from the one line of each sheet that lists them."""
    out: dict[str, str] = {}
    for name in model_names():
        for line in (SHEETS / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
            if line.startswith("aliases: ["):
                listed = line.removeprefix("aliases: [").removesuffix("]").split(",")
                out.update((alias.strip().strip('"'), name) for alias in listed)
    return out


def load_model(given: str) -> Model:
    """A model by name, alias, path (sheet, config.json, GGUF, folder), `-` or `hf:owner/name`.

    `owner/name` as the hub spells it is the sheet of that name where there is one.
    `-` reads a sheet or a config.json from standard input. Raises InputError for an unknown name
    (with the nearest) and SheetError for a bad sheet.
    """
    held = AT_HAND.get().get(given)
    if isinstance(held, Model):
        return held
    if given == "-":
        return _from_stdin()
    if given.startswith("hf:"):
        from .hub import model_from_hub

        return model_from_hub(given.removeprefix("hf:"))
    name = given.strip().lower()
    if name in model_names():
        return load_builtin(name)
    if _looks_like_path(given):
        if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", given) and not os.path.exists(given):
            known = _find_tuned(name.partition("/")[2])
            if known is not None:
                return known
            hint = _way_to(name.partition("/")[2], "; the nearest that ships is ")
            raise InputError(f"no file {given}{hint}; a model of the Hugging Face hub is hf:{given}")
        return load_path(Path(given))
    known = _find_tuned(name.replace(" ", "-"))
    if known is not None:
        return known
    hint = _way_to(name, "; did you mean ") or "; `infercost models` lists them"
    raise InputError(f"unknown model '{given}'{hint}")


def find_named(name: str) -> Model | None:
    """The built-in model of a name or an alias, or None; no file of that name is read."""
    found = name if name in model_names() else model_aliases().get(name)
    return None if found is None else load_builtin(found)


TUNED = r"[-_](?:instruct|chat|it|hf)(?=[-_]|$)"
"""What a name has more than its base model's where training alone differs."""
FORMATS = (
    (r"(?:unsloth-)?bnb-4bit", "bnb-nf4"),
    (r"gptq(?:-.*)?", "gptq"),
    (r"awq(?:-.*)?", "awq"),
    (r"(?:i1-)?gguf", "q4_k_m"),
    (r"fp8-dynamic", "fp8-row"),
    (r"fp8(?:-.*)?", "fp8"),
    (r"nvfp4(?:-.*)?", "nvfp4"),
    (r"(?:quantized\.)?w8a8|int8", "int8-row"),
    (r"(?:quantized\.)?w4a16|int4", "int4-g128"),
    (r"(?:mlx-)?4bit", "int4-g64"),
    (r"(?:mlx-)?8bit", "int8-g64"),
)
"""Formats at the end of a checkpoint's name, and --weights of each: said, and never taken unasked."""


def _find_tuned(name: str) -> Model | None:
    """The built-in model of a name, or of the name without the words that say how it was trained on."""
    return find_named(name) or find_named(re.sub(TUNED, "", name).removeprefix("meta-"))


def _way_to(name: str, lead: str) -> str:
    """Where to go from a name that is not known: the model and the format in it, or the nearest names."""
    for ending, weights in FORMATS:
        match = re.fullmatch(rf"(.+?)[-_.]{ending}", name)
        known = _find_tuned(match[1]) if match else None
        if known is not None:
            return f"; it is --model {known.name} --weights {weights}"
    import difflib

    aliases = model_aliases()
    plain = re.sub(TUNED, "", re.sub(r"[:\s]", "-", name)).removeprefix("meta-")
    sizes = set(SIZE.findall(plain))
    every = [*model_names(), *aliases]
    as_large = [each for each in every if sizes & set(SIZE.findall(each))]
    kin = [each for each in as_large if _words(plain) & _words(each)]
    shared = {each: len(_pieces(plain) & _pieces(each)) for each in kin}
    close = [each for each in kin if shared[each] == max(shared.values())]
    close = sorted(close, key=lambda each: len(_pieces(each)))[:MOST_NAMED]
    if not close and as_large and _words(plain):
        sized = [each for each in every if SIZE.search(each)]
        close = difflib.get_close_matches(plain, sized, n=3, cutoff=0.8)
        if not close:
            large = [each for each in as_large if each not in aliases]
            return f"; of {' and '.join(sorted(sizes))} are {', '.join(large[:6])}"
    close = close or near(plain, every)
    # Of a model and its aliases the name.
    listed = [aliases[each] if aliases.get(each) in close else each for each in close]
    return _said(lead, list(dict.fromkeys(listed)))


SIZE = re.compile(r"(?<![a-z0-9.])[0-9]+(?:\.[0-9]+)?[bm](?![a-z0-9])")
"""A size in a model's name: `8b`, and not the `3b` of `a3b`."""
MOST_NAMED = 4


def _pieces(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[0-9]+(?:\.[0-9]+)?", name))


def _words(name: str) -> set[str]:
    """The words of a name that say whose it is."""
    return {word for word in re.findall(r"[a-z]{2,}", name) if word not in ("base", "preview", "distill")}


def _said(lead: str, names: list[str]) -> str:
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f"{lead}{listed}{'?' if lead.endswith('mean ') else ''}"


def load_path(path: Path) -> Model:
    """The model in a file (sheet, config.json, GGUF) or in a model's folder."""
    if os.path.isdir(path):
        return _from_folder(path)
    if path.suffix.lower() == ".gguf":
        from .gguf import model_from_gguf

        return model_from_gguf(path)
    if path.suffix == ".safetensors":
        raise InputError(f"{path} says nothing of the model; give its folder, with config.json in it")
    if path.suffix.lower() == ".json":
        return _from_config(_read_config(path), str(path), path)
    return model_from_text(read_file(path), str(path))


def _from_folder(path: Path) -> Model:
    config = path / "config.json"
    if os.path.isfile(config):
        return _from_config(_read_config(config), str(config), config)
    held = gguf_in(path)
    if held is not None:
        return load_path(held)
    raise InputError(f"{path} holds neither a config.json nor a GGUF file; one of them is needed")


def gguf_in(folder: Path) -> Path | None:
    """The GGUF file that a folder without a config.json is; InputError where there are several."""
    files = [] if os.path.isfile(folder / "config.json") else sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        listed = ", ".join(file.name for file in files[:4])
        raise InputError(f"{folder} holds {len(files)} GGUF files ({listed} ...); give one of them")
    return files[0] if files else None


def _read_config(path: Path) -> str:
    return read_file(path, MAX_CONFIG_BYTES, "a config.json")


def _from_config(text: str, origin: str, path: Path | None = None) -> Model:
    from .huggingface import QUANTISATION_FILE, model_from_config, read_config, with_quantisation

    data = read_config(text, origin)
    beside = path.parent / QUANTISATION_FILE if path is not None else None
    if beside is not None and os.path.isfile(beside):
        data = with_quantisation(data, partial(_read_config, beside), str(beside))
    folder = path.parent.name if path is not None and path.name == "config.json" else ""
    name = folder or (path.stem if path is not None else "")
    return model_from_config(data, origin, name if name.isprintable() else "")


def _looks_like_path(given: str) -> bool:
    if "\0" in given:
        return False
    if given.lower().endswith((".yaml", ".yml", ".json", ".gguf")) or "/" in given or "\\" in given:
        return True
    return given in (".", "..") or os.path.isdir(given)


def _from_stdin() -> Model:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "'-' reads a sheet or a config.json from standard input, which is a terminal; pipe one into it"
        )
    text = decode(sys.stdin.buffer.read(MAX_CONFIG_BYTES + 1), "<stdin>", MAX_CONFIG_BYTES, "a config.json")
    if not text.strip():
        raise InputError("standard input is empty; pipe a sheet or a config.json into it")
    # A sheet may be written in braces too; it has no key in quotes first.
    if re.match(r'\s*\{\s*(["}])', text):
        return _from_config(text, "<stdin>")
    return model_from_text(text, "<stdin>")
