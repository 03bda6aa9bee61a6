"""A record of options as one parameter of a command: its fields and their texts are one definition.

Typer takes a function's parameters one by one. `grouped` shows it every field of a record as a parameter of
its own, in the record's place, and hands the function the record: the same twelve options are written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Without:
    """Names of fields that a command does not offer: `sink: Annotated[Sink, Without("quiet")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer is to see it: a parameter that is a NamedTuple of options stands for its fields.

    A field that the command also has as a parameter stands where that does, and is in the record too.
    """
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    records: dict[str, tuple[Any, list[str]]] = {}
    options: list[inspect.Parameter] = []
    for name, one in own.items():
        kind, absent = _record(hints[name])
        if kind is None:
            options.append(one.replace(annotation=hints[name], kind=one.KEYWORD_ONLY))
            continue
        fields = [field for field in kind._fields if field not in absent]
        records[name] = (kind, fields)
        texts = get_type_hints(kind, include_extras=True)
        defaults = kind._field_defaults
        options += [
            inspect.Parameter(
                field, one.KEYWORD_ONLY, default=defaults.get(field, one.empty), annotation=texts[field]
            )
            for field in fields
            if field not in own
        ]

    @wraps(command)
    def spelled(**given: Any) -> None:
        for name, (kind, fields) in records.items():
            take = {field: given[field] if field in own else given.pop(field) for field in fields}
            given[name] = kind(**take)
        command(**given)

    del spelled.__dict__["__wrapped__"]
    # A function may have a signature of its own, which inspect and Typer read; its type does not say so.
    spelled.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    spelled.__annotations__ = {option.name: option.annotation for option in options}
    return spelled


def _record(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The NamedTuple that a parameter is, with the fields left out; None where it is an option."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    kind = get_args(hint)[0] if extras else hint
    absent = tuple(name for extra in extras if isinstance(extra, Without) for name in extra.names)
    return (kind, absent) if hasattr(kind, "_fields") else (None, ())
