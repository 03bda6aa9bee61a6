"""A YAML sheet into dataclasses: strict keys, required source, did-you-mean, and no trust.

A sheet may come from anyone. Size, depth and node count are bounded before anything is built,
aliases are refused, and every value is checked against the annotation of the field it fills.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar

from . import InputError

AT_HAND: ContextVar[Mapping[str, Any]] = ContextVar("at_hand", default=MappingProxyType({}))
"""Models and GPUs that a Python caller holds as objects, by the names the catalogues find them under."""
_ONLY_FILES: ContextVar[bool] = ContextVar("only_files", default=False)
MAX_SHEET_BYTES = 1 << 20
MAX_CONFIG_BYTES = 4 << 20
MAX_LINE = 1 << 16
MAX_DEPTH = 24
MAX_NODES = 100_000
MAX_JSON_BYTES = 32 << 20
MAX_PARTS = 1_000_000


class Dataclass(Protocol):
    """What `build` fills."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T", bound=Dataclass)


class SheetError(InputError):
    """A sheet is wrong: the text names the file, the line where known, and the way out."""


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean a, b or c?`, or nothing where no name is near."""
    close = near(name, names)
    if not close:
        return ""
    listed = close[0] if len(close) == 1 else f"{', '.join(close[:-1])} or {close[-1]}"
    return f"; did you mean {listed}?"


MOST_HOLDING = 9
"""Names listed that hold what was given: it is no typo then, and one of them is meant."""


def near(name: str, names: Iterable[str]) -> list[str]:
    """The name of the same letters, else those that hold `name`, the longest it holds, or spelled alike."""
    import difflib

    known, key = list(dict.fromkeys(names)), _dashed(name)
    same = [each for each in known if _dashed(each).replace("-", "") == key.replace("-", "")]
    if same:
        return same[:1]
    if len(key) > 1:
        holding = [each for each in known if _holds(_dashed(each), key)]
        if holding:
            return sorted(holding, key=lambda each: (not _dashed(each).startswith(key), len(each)))[
                :MOST_HOLDING
            ]
        held = [each for each in known if len(each) > 3 and _holds(key, _dashed(each))]
        if held:
            return [max(held, key=len)]
    # A part's own word first: `h100-80gb` is nearer to h100-sxm than to a100-80g, whatever the letters say.
    word = re.split(r"[-_ .]", name.lower())[0]
    kin = [each for each in known if re.split(r"[-_ .]", each)[0] == word] if len(word) > 2 else []
    close = difflib.get_close_matches(name.lower(), kin, cutoff=0.3)
    return close or difflib.get_close_matches(name.lower(), known, cutoff=0.6)


def _dashed(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _holds(whole: str, part: str) -> bool:
    """Whether the words `part` stand in `whole`: `70b` not in `170b`, `m3` not in `m30`."""
    return re.search(rf"(?<![a-z0-9.]){re.escape(part)}(?![a-z0-9.])", whole) is not None


def read_file(path: Path, most: int = MAX_SHEET_BYTES, kind: str = "a sheet") -> str:
    """Text of a file of at most `most` bytes. Raises InputError for anything that cannot be read."""
    with opened(path) as file:
        data = file.read(most + 1)
    return decode(data, str(path), most, kind)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read from. Raises InputError for what is none, or fails while it is read.

    What it is, is asked of the opened file, whatever its name: named pipes, terminals and other devices would
    be waited for, or never end. A pipe without a name that is open here already, as a shell's `<(...)`, is
    read, but standard input is not: `-` reads that, where anything does.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the file in it")
        # No `with` here: what fails while it is opened and while it is read are two messages; closed below.
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file system takes
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        with file:
            problem = _unfit(path, file.fileno())
            if problem:
                raise InputError(f"{path} is {problem}; give a file")
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def only_files() -> Iterator[None]:
    """For as long as this lasts pipes are not read either: who names what is read is not trusted."""
    before = _ONLY_FILES.set(True)
    try:
        yield
    finally:
        _ONLY_FILES.reset(before)


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe, and without taking a terminal for ours."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _unfit(path: Path, number: int) -> str:
    """What an opened file is, where that is nothing to read from."""
    found = os.fstat(number)
    standard = _of_descriptor(found, 0) and descriptor_of(path) == 0
    if standard:
        return "standard input"
    if stat.S_ISREG(found.st_mode):
        return ""
    if not stat.S_ISFIFO(found.st_mode):
        return "a device or a socket, not a file"
    nameless = _nameless_pipe(found) and descriptor_of(path) is not None
    if not nameless or _ONLY_FILES.get():
        return "a named pipe" if not nameless else "a pipe"
    if hasattr(os, "set_blocking"):
        os.set_blocking(number, True)
    return ""


def _of_descriptor(found: os.stat_result, number: int) -> bool:
    try:
        return os.path.samestat(found, os.fstat(number))
    except OSError:
        return False


def _nameless_pipe(found: os.stat_result) -> bool:
    """Whether a pipe stands in no folder: it then is of the same device as one that is made here."""
    ends = os.pipe()
    try:
        return os.fstat(ends[0]).st_dev == found.st_dev
    finally:
        for end in ends:
            os.close(end)


def descriptor_of(path: Path) -> int | None:
    """The number of this process's open file that a path names, through links: `/dev/stdin` is 0."""
    name = os.fspath(path)
    for _ in range(40):
        folder, last = os.path.split(name)
        folder = os.path.realpath(folder or ".")
        if last.isascii() and last.isdigit() and len(last) < 10 and folder.startswith(("/dev/", "/proc/")):
            own = ("/dev/fd", *map(os.path.realpath, ("/proc/self/fd", "/proc/thread-self/fd")))
            return int(last) if folder in own else None
        try:
            name = os.path.join(folder, os.readlink(os.path.join(folder, last)))
        except (OSError, ValueError, AttributeError):
            return None
    return None


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a text file of any length, whatever its line ends, read one by one.

    Raises InputError for a line of more than 65,536 characters, and as `read_file` does.
    """
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig")
        number = 0
        try:
            while line := text.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise InputError(f"{path}:{number}: a line of more than {MAX_LINE:,} characters")
                yield line
        except UnicodeDecodeError:
            raise InputError(f"{path}:{number + 1}: not UTF-8 text") from None


def decode(data: bytes, origin: str, most: int = MAX_SHEET_BYTES, kind: str = "a sheet") -> str:
    if len(data) > most:
        raise InputError(f"{origin}: larger than {kind} may be ({most:,} bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{origin}: not UTF-8 text (byte {error.start})") from None


def parse_json(text: str, origin: str, parse_int: Callable[[str], int] = int) -> Any:
    """The value that a JSON text holds. Raises SheetError for what is none, or has too many parts in it.

    A list takes 2 bytes of text and 88 of memory; numbers and words take 16 times their text at most.
    """
    if text.count("[") + text.count("{") > MAX_PARTS:
        raise SheetError(f"{origin}: more than {MAX_PARTS:,} lists and objects")
    try:
        return json.loads(text, parse_int=parse_int)
    except RecursionError:
        raise SheetError(f"{origin}: nested too deeply") from None
    except ValueError as error:
        raise SheetError(f"{origin}: not valid JSON: {error}") from None


def read_yaml(text: str, origin: str, trusted: bool = False) -> dict[str, Any]:
    """The mapping that `text` holds. `trusted` (our own sheets) skips the scan for bombs.

    Raises SheetError for anything but one plain mapping of bounded size.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if not trusted:
            _scan(text, origin)
        data = yaml.load(text, Loader=loader)
    except SheetError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{origin}:{mark.line + 1}" if mark else origin
        raise SheetError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise SheetError(f"{origin}: not valid YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        raise SheetError(f"{origin}: a value cannot be read: {said[0]}") from None
    if not isinstance(data, dict):
        raise SheetError(f"{origin}: a sheet is a mapping of keys to values, not {kind_of(data)}")
    return data


def _scan(text: str, origin: str) -> None:
    import yaml

    if len(text) > MAX_SHEET_BYTES:
        raise SheetError(f"{origin}: {len(text):,} characters; a sheet has at most {MAX_SHEET_BYTES:,}")
    open_maps: list[_Open] = []
    # The event parser never builds a tree, so a bomb costs no more than its own text.
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for nodes, event in enumerate(events):
        where = f"{origin}:{event.start_mark.line + 1 if event.start_mark else 0}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SheetError(f"{where}: anchors and aliases (& and *) are not allowed in sheets")
        tag = getattr(event, "tag", None)
        if tag:
            raise SheetError(f"{where}: tags ({str(tag)[:40]}) are not allowed in sheets")
        if nodes > MAX_NODES:
            raise SheetError(f"{where}: more than {MAX_NODES:,} values")
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            open_maps.pop()
            continue
        starts = isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent))
        scalar = event.value if isinstance(event, yaml.ScalarEvent) else None
        if (starts or scalar is not None) and open_maps:
            problem = open_maps[-1].step(scalar)
            if problem:
                raise SheetError(f"{where}: {problem}")
        plain = not getattr(event, "style", None)
        if scalar is not None and plain and _OLD_NUMBER.fullmatch(scalar):
            raise SheetError(f"{where}: '{scalar}' reads as base 8 or 60; write it plainly, or in quotes")
        if starts:
            open_maps.append(_Open(isinstance(event, yaml.MappingStartEvent)))
        if len(open_maps) > MAX_DEPTH:
            raise SheetError(f"{where}: nested deeper than {MAX_DEPTH} levels")


_OLD_NUMBER = re.compile(r"[-+]?0[0-9]+|[-+]?[0-9]+(:[0-5]?[0-9])+")
"""Octal and sexagesimal integers of YAML 1.1, which nobody writes on purpose."""


class _Open:
    """A mapping or list being scanned: in a mapping, every other value is a key, and is there once."""

    def __init__(self, mapping: bool) -> None:
        self.keys: set[str] | None = set() if mapping else None
        self.at_key = True

    def step(self, scalar: str | None) -> str:
        """Take the next value (None: a nested one); what is wrong with it, or nothing."""
        if self.keys is None:
            return ""
        was_key, self.at_key = self.at_key, not self.at_key
        if not was_key or scalar is None:
            return ""
        if scalar in self.keys:
            return f"the key '{scalar[:60]}' stands twice"
        self.keys.add(scalar)
        return ""


class Section:
    """One mapping of a sheet being taken apart: what was not taken is an unknown key.

    Every error carries the sheet's name and, where `text` is at hand, the line of the key.
    """

    def __init__(self, data: Any, origin: str, text: str = "", path: tuple[str, ...] = ()) -> None:
        self.origin, self.text, self.path = origin, text, path
        if not isinstance(data, Mapping):
            raise self.error(f"expected a mapping, not {kind_of(data)}")
        self.data: dict[str, Any] = {}
        for key, value in data.items():
            if not isinstance(key, str):
                raise self.error(f"keys are words, not {kind_of(key)}")
            self.data[key] = value
        self.known: set[str] = set()

    def error(self, problem: str, key: str | None = None) -> SheetError:
        path = self.path if key is None else (*self.path, key)
        line = line_of(self.text, path) if self.text else None
        where = self.origin if line is None else f"{self.origin}:{line}"
        named = f" {'.'.join(path)}:" if path else ""
        return SheetError(f"{where}:{named} {problem}")

    def take(self, key: str, annotation: str, default: Any = ...) -> Any:
        """Value of `key`, checked against `annotation` (int, float, bool, str, `| None`, lists)."""
        self.known.add(key)
        if key not in self.data:
            if default is ...:
                raise self.error(f"'{key}' is missing; it is required", None)
            return default
        value = self.data[key]
        if isinstance(value, str) and "\n" in value and key != "notes":
            raise self.error("must be one line", key)
        try:
            return check(value, annotation)
        except ValueError as error:
            raise self.error(str(error), key) from None

    def section(self, key: str) -> Section | None:
        """The mapping under `key`, or None where it is absent."""
        self.known.add(key)
        if key not in self.data:
            return None
        return Section(self.data[key], self.origin, self.text, (*self.path, key))

    def rest(self) -> list[str]:
        return [key for key in self.data if key not in self.known]

    def close(self) -> None:
        """Refuse the keys nobody took."""
        for key in self.rest():
            hint = nearest(key, sorted(self.known)) or f"; allowed: {', '.join(sorted(self.known))}"
            raise self.error(f"unknown key '{key}'{hint}")

    def build(self, cls: type[T], **given: Any) -> T:
        """A dataclass from this mapping: one key per field not in `given`, unknown keys refused."""
        from dataclasses import MISSING

        fields = cls.__dataclass_fields__
        self.known.update(fields)
        self.close()
        values = dict(given)
        for name, field in fields.items():
            if name in given:
                continue
            required = field.default is MISSING and field.default_factory is MISSING
            value = self.take(name, str(field.type), ... if required else _ABSENT)
            if value is not _ABSENT:
                values[name] = value
        try:
            return cls(**values)
        except InputError as error:
            said = str(error)
            raise self.error(said.removeprefix(f"{self.path[-1]}: ") if self.path else said) from None


_ABSENT: Any = object()


MAX_TEXT = 4000
MAX_INTEGER = 1 << 62


def check(value: Any, annotation: str) -> Any:
    """`value` if it is what `annotation` says; ValueError, with what it is, where not."""
    if annotation.endswith(" | None"):
        return None if value is None else check(value, annotation.removesuffix(" | None"))
    if annotation == "tuple[str, ...]":
        if not isinstance(value, list):
            raise ValueError(f"must be a list of words, not {kind_of(value)}")
        return tuple(check(item, "str") for item in value)
    if annotation == "bool":
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {kind_of(value)}")
        return value
    if annotation == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {kind_of(value)}")
        if abs(value) > MAX_INTEGER:
            raise ValueError("is too large a number")
        return value
    if annotation == "float":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a number, not {kind_of(value)}")
        if abs(value) > 1e30 or not math.isfinite(value):
            raise ValueError("must be a finite number of sensible size")
        return float(value)
    if annotation == "str":
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {kind_of(value)}")
        if len(value) > MAX_TEXT:
            raise ValueError(f"is longer than {MAX_TEXT} characters")
        if any(not ch.isprintable() and ch != "\n" for ch in value):
            raise ValueError("holds control characters")
        return value
    raise TypeError(f"no check for fields of type {annotation}")


def kind_of(value: Any) -> str:
    """What a YAML value is, in a person's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a switch)"
    if isinstance(value, (int, float)):
        shown = f"{value:g}" if isinstance(value, float) or abs(value) < 10**15 else "a huge number"
        return f"the number {shown}"
    if isinstance(value, str):
        return f"the text '{value[:40]}'"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a {type(value).__name__}"


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Line (from 1) of the key at `path`, found only once an error needs it."""
    import yaml

    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    line: int | None = None
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            break
        for key_node, value_node in node.value:
            if key_node.value == key:
                line, node = key_node.start_mark.line + 1, value_node
                break
        else:
            break
    return line
