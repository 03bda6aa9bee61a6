"""A record of options as one parameter: what Typer sees, and what the function is handed."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import pytest
import typer

from infercost.cli.groups import Without, grouped


class Shape(NamedTuple):
    layers: Annotated[int | None, typer.Option("--layers", "-l")] = None
    names: Annotated[list[str] | None, typer.Option("--name")] = None
    wide: Annotated[bool, typer.Option("--wide")] = False


seen: list[object] = []


@grouped
def command(
    *,
    first: Annotated[str, typer.Option("--first")] = "a",
    shape: Shape,
    last: Annotated[str, typer.Option("--last")] = "z",
) -> None:
    """Words."""
    seen.append((first, shape, last))


@grouped
def narrow(name: Annotated[str, typer.Argument()], shape: Annotated[Shape, Without("names")]) -> None:
    seen.append((name, shape))


def of(function: object) -> object:
    app = typer.Typer(add_completion=False)
    # Typer wants a function; `object` keeps the callers below free of a cast each.
    app.command()(function)  # type: ignore[type-var]
    return typer.main.get_command(app)


def test_options_stand_in_the_record_s_place() -> None:
    made = of(command)
    assert [one.opts[0] for one in made.params] == ["--first", "--layers", "--name", "--wide", "--last"]
    assert made.help == "Words."


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], ("a", Shape(), "z")),
        (["-l", "3", "--last", "y", "--wide"], ("a", Shape(layers=3, wide=True), "y")),
        (["--name", "x", "--name", "y"], ("a", Shape(names=["x", "y"]), "z")),
    ],
)
def test_the_function_is_handed_the_record(words: list[str], wanted: object) -> None:
    of(command)(words, standalone_mode=False)
    assert seen.pop() == wanted


def test_a_field_left_out_is_no_option_and_keeps_its_default() -> None:
    made = of(narrow)
    assert [one.name for one in made.params] == ["name", "layers", "wide"]
    made(["x", "--layers", "2"], standalone_mode=False)
    assert seen.pop() == ("x", Shape(layers=2))


@grouped
def apart(*, wide: Annotated[bool, typer.Option("--wide")] = False, shape: Shape) -> None:
    seen.append((wide, shape))


def test_a_field_that_the_command_has_itself_stands_there_and_is_in_the_record() -> None:
    made = of(apart)
    assert [one.name for one in made.params] == ["wide", "layers", "names"]
    made(["--wide", "--layers", "2"], standalone_mode=False)
    assert seen.pop() == (True, Shape(layers=2, wide=True))
