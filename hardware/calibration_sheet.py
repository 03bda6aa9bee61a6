"""Calibrations as YAML: those that ship, and the reading and writing of any other."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from .. import InputError
from ..sheets import Section, read_file, read_yaml
from .calibration import FAMILIES, SCHEMA, Calibration, Group, Key, Spread

FOLDER = Path(__file__).parent / "calibrations"
MOST_PARAMETERS = 32


@cache
def calibrated_names() -> tuple[str, ...]:
    """GPUs that a shipped calibration is of; no file is read."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def shipped(name: str) -> Calibration | None:
    """The calibration that ships for the GPU sheet `name`, or None."""
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        return None
    return calibration_from_text(path.read_text(encoding="utf-8"), path.name, trusted=True)


def user_folder() -> Path:
    """Where `infercost probe --save` keeps this machine's calibrations (XDG_DATA_HOME, or ~/.local/share).

    Raises InputError for a user without a home folder.
    """
    # A relative path is no base folder (XDG Base Directory Specification).
    bases = (os.environ.get("XDG_DATA_HOME", ""), os.path.expanduser("~/.local/share"))
    base = next((each for each in bases if os.path.isabs(each)), None)
    if base is None:
        raise InputError("there is no home folder; set XDG_DATA_HOME to the folder for calibrations")
    return Path(base) / "infercost" / "calibrations"


def saved(name: str) -> Calibration | None:
    """The calibration that was probed on this machine for the GPU sheet `name`, or None."""
    try:
        path = user_folder() / f"{name}.yaml"
    except InputError:
        return None
    return load_calibration(str(path)) if os.path.isfile(path) else None


def all_shipped() -> dict[str, Calibration]:
    """Every shipped calibration by GPU."""
    found = {name: shipped(name) for name in calibrated_names()}
    return {name: one for name, one in found.items() if one is not None}


def load_calibration(path: str) -> Calibration:
    """A calibration from a file. Raises SheetError naming file, line and what is allowed."""
    return calibration_from_text(read_file(Path(path)), path)


def calibration_from_text(text: str, origin: str, trusted: bool = False) -> Calibration:
    """The calibration a YAML text holds."""
    sheet = Section(read_yaml(text, origin, trusted), origin, text)
    schema = sheet.take("schema", "str")
    if schema != SCHEMA:
        raise sheet.error(f"schema is '{schema}'; this version reads {SCHEMA}", "schema")
    families = sheet.section("families")
    ceilings = sheet.section("ceilings")
    read: dict[str, tuple[Group, ...]] = {}
    for name in families.data if families else ():
        section = families.section(name) if families else None
        if section is not None:
            read[name] = tuple(_group(section, key) for key in section.data)
    limits = {name: ceilings.take(name, "float") for name in ceilings.data} if ceilings else {}
    return sheet.build(Calibration, families=read, ceilings=limits)


def _group(section: Section, name: str) -> Group:
    one = section.section(name)
    assert one is not None
    fields = {part: one.take(part, "str", "") for part in ("stack", "kernel", "op", "dtype", "kv")}
    key = Key(**fields, world=one.take("world", "int", 0))
    params = one.section("params")
    if params is None or not params.data:
        raise one.error("'params' is missing; it is required")
    if len(params.data) > MOST_PARAMETERS:
        raise params.error(f"{len(params.data)} parameters; at most {MOST_PARAMETERS} are read")
    values = tuple((each, params.take(each, "float")) for each in params.data)
    if bad := [each for each, value in values if not 0 <= value <= 1e9]:
        raise params.error("is not between 0 and 1e9", bad[0])
    error, abroad = _spread(one, "error"), _spread(one, "abroad")
    if error is None:
        raise one.error("'error' is missing; it is required")
    rows = one.take("rows", "int")
    if rows < 1:
        raise one.error("must be at least 1", "rows")
    group = Group(
        key,
        one.take("form", "str"),
        values,
        rows,
        error,
        abroad,
        one.take("default", "bool", False),
    )
    one.close()
    return group


def _spread(section: Section, name: str) -> Spread | None:
    part = section.section(name)
    if part is None:
        return None
    read = Spread(*(part.take(each, "float") for each in Spread._fields))
    if not all(0 <= each <= 1e6 for each in read):
        raise part.error("errors are shares of zero or more")
    part.close()
    return read


def calibration_text(calibration: Calibration) -> str:
    """The YAML of a calibration; reading it back gives the same one."""
    import yaml

    document: dict[str, Any] = {
        "schema": SCHEMA,
        "device": calibration.device,
        "source": calibration.source,
        "date": calibration.date,
        "software": calibration.software,
        "conditions": calibration.conditions,
    }
    if calibration.partial:
        document["partial"] = True
    if calibration.ceilings:
        document["ceilings"] = dict(calibration.ceilings)
    document["families"] = {
        name: {str(group.key): _as_mapping(group) for group in calibration.groups(name)}
        for name in FAMILIES
        if calibration.groups(name)
    }
    return yaml.dump(document, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def _as_mapping(group: Group) -> dict[str, Any]:
    out: dict[str, Any] = {part: value for part, value in group.key._asdict().items() if value}
    if group.default:
        out["default"] = True
    out |= {"form": group.form, "rows": group.rows, "params": dict(group.params)}
    out["error"] = group.error._asdict()
    if group.abroad is not None:
        out["abroad"] = group.abroad._asdict()
    return out
