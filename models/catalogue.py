"""The models infercost knows by name, and a model from whatever a person has."""

from __future__ import annotations

import os
import re
import sys
from functools import cache, partial
from pathlib import Path

from .. import InputError
from ..sheets import AT_HAND, MAX_CONFIG_BYTES, decode, nearest, read_file
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
            known = find_named(name.partition("/")[2].removesuffix("-instruct"))
            if known is not None:
                return known
            raise InputError(f"no file {given}; a model of the Hugging Face hub is hf:{given}")
        return load_path(Path(given))
    known = find_named(name)
    if known is not None:
        return known
    hint = nearest(name, [*model_names(), *model_aliases()]) or "; `infercost models` lists them"
    raise InputError(f"unknown model '{given}'{hint}")


def find_named(name: str) -> Model | None:
    """The built-in model of a name or an alias, or None; no file of that name is read."""
    found = name if name in model_names() else model_aliases().get(name)
    return None if found is None else load_builtin(found)


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
