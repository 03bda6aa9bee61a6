"""Hooks of mkdocs (mkdocs.yml): pages that are made while the site builds, so that nothing is written twice.

A page for each command from its section of the README and its `--help`; the README's chapters on conventions,
models of one's own and scripts; a table of all formulas of `infercost explain`; a reference of the Python
functions and the keys of their results. Links between the README and docs/ are turned to these pages.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any, get_args

import typer
from mkdocs.structure.files import File

import infercost
from infercost.cli import api
from infercost.cli.app import COMMANDS, CONTEXT
from infercost.cli.result import Key, Result
from infercost.cli.topics.index import ENTRIES, GROUPS

ROOT = Path(__file__).parent.parent.parent
CHAPTERS = {
    "Conventions": "conventions.md",
    "Your own model": "own-model.md",
    "For scripts and CI": "scripts.md",
    "How it is built": "how-it-is-built.md",
}
"""Chapters of the README that are pages of the site."""
KINDS = (Result, *Result.__subclasses__())
TYPES = ("Count", "Counts", "Name", "Names", "Models", "Gpus", "Option")
"""Aliases that the signatures use."""


def on_config(config: Any) -> Any:
    """The commands in the order of `infercost --help`."""
    for item in config.nav:
        if "Commands" in item:
            item["Commands"] = [{name: f"commands/{name}.md"} for name in COMMANDS]
    return config


def on_files(files: Any, config: Any) -> Any:
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """docs/*.md link to the README's sections, where GitHub has them; the site has pages of them."""
    here = os.path.dirname(page.file.src_uri)
    return re.sub(
        r"\]\(\.\./README\.md(?:#([^)]*))?\)",
        lambda match: f"]({os.path.relpath(places()[match[1]] if match[1] else 'index.md', here or '.')})",
        markdown,
    )


def generated() -> dict[str, str]:
    """Text of every made page by its path."""
    pages = {f"commands/{name}.md": command_page(name) for name in COMMANDS}
    for title, path in CHAPTERS.items():
        pages[path] = f"# {title}\n{turned(readme()[title], path)}"
    return {**pages, "formulas.md": formulas(), "python-reference.md": reference()}


def readme() -> dict[str, str]:
    """The README's chapters and sections by their headings, without them."""
    parts = re.split(r"^###? (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def section_of(command: str) -> tuple[str, str]:
    """Heading and text of the README's section on a command."""
    for heading, text in readme().items():
        if f"`{command}`" in heading.partition(":")[0]:
            return heading, text
    raise KeyError(f"the README has no section on {command}")


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def places() -> dict[str, str]:
    """The page of each of the README's anchors."""
    found = {anchor(title): path for title, path in CHAPTERS.items()}
    for name in reversed(list(COMMANDS)):
        found[anchor(section_of(name)[0])] = f"commands/{name}.md"
    return found


def turned(text: str, path: str) -> str:
    """The README's links, from the page at `path`."""
    here = os.path.dirname(path) or "."
    text = re.sub(r"\]\(docs/([^)]+)\)", lambda m: f"]({os.path.relpath(m[1], here)})", text)
    pages = places()
    return re.sub(r"\]\(#([^)]+)\)", lambda m: f"]({os.path.relpath(pages[m[1]], here)})", text)


def command_page(name: str) -> str:
    heading, text = section_of(name)
    command = typer.main.get_command(importlib.import_module(f"infercost.cli.{name}").app)
    parts = [f"# {heading}", turned(text, f"commands/{name}.md"), "## Help"]
    for title, each in inside(f"infercost {name}", command):
        context = each.context_class(each, info_name=title, **CONTEXT)
        parts += [f"```text\n$ {title} --help\n{each.get_help(context)}\n```"]
    schema = f"[Schema of its JSON](../schemas/{name}.json), [all schemas](../schemas.md)."
    return "\n\n".join([*parts, schema]) + "\n"


def inside(title: str, command: Any) -> list[tuple[str, Any]]:
    found = [(title, command)]
    for name, each in getattr(command, "commands", {}).items():
        found += inside(f"{title} {name}", each)
    return found


def cell(text: str) -> str:
    """Text that a table of Markdown leaves as it is."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))


def formulas() -> str:
    """Every topic of `infercost explain` at its defaults."""
    found = [(entry, infercost.run("explain", entry.name).document) for entry in ENTRIES]
    out = [
        "# Formulas",
        "One line for each topic of `infercost explain`, which fills the letters in for any model, GPU and "
        "length, says where textbooks and reality differ, and what the topic changes in the bill.",
    ]
    for group in dict.fromkeys(document["group"] for _, document in found):
        rows = [
            f"| `{entry.name}` | {cell(document['title'])} | {cell(document['formula'])} "
            f"| {cell(document['unit'] or '')} | {cell(document['source'])} |"
            for entry, document in found
            if document["group"] == group
        ]
        title = GROUPS.get(group, group)
        head = "| topic | what | formula | unit | source |\n|---|---|---|---|---|"
        out += [f"## {title[0].upper()}{title[1:]}", "\n".join([head, *rows])]
    return "\n\n".join(out) + "\n"


def reference() -> str:
    """Functions with their signatures, results with their keys."""
    out = [
        "# Python reference",
        "What `import infercost` offers; [a tour](api.md) comes first.",
        "## Functions",
    ]
    for name in infercost.__all__:
        value = getattr(infercost, name)
        if inspect.isfunction(inspect.unwrap(value)):
            about = inspect.getdoc(value) or ""
            out += [f"### `{name}`", f"```python\n{name}{signature(value)}\n```", escaped(about)]
    out += ["## Types of arguments", "Numbers and names may be given as on the command line; a list sweeps."]
    rows = [f"| `{name}` | `{in_code(getattr(api, name))}` |" for name in TYPES]
    out += ["\n".join(["| name | what it takes |\n|---|---|", *rows]), "## Results"]
    for kind in KINDS:
        keys = [(name, key) for name, key in vars(kind).items() if isinstance(key, Key)]
        rows = [f"| `{name}` | `{in_code(type_of(key))}` | {cell(key.meaning)} |" for name, key in keys]
        out += [f"### `{kind.__name__}`", escaped(inspect.getdoc(kind) or "")]
        out.append("\n".join(["| key | type | what |\n|---|---|---|", *rows]))
    return "\n\n".join(out) + "\n"


def type_of(key: Any) -> Any:
    """int of Key[int]("...")."""
    return get_args(key.__orig_class__)[0]


def in_code(annotation: Any) -> str:
    """A type as it is written, without the modules, for a code span in a table."""
    return re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(annotation)).replace("|", "\\|")


def signature(function: Any) -> str:
    """One argument a line where there are many."""
    given = inspect.signature(inspect.unwrap(function))
    short = str(given).replace("'", "")
    if len(short) < 80:
        return short
    shown = [str(each).replace("'", "") for each in given.parameters.values()]
    keyword = next(
        (i for i, each in enumerate(given.parameters.values()) if each.kind is each.KEYWORD_ONLY), None
    )
    if keyword is not None:
        shown.insert(keyword, "*")
    lines = "".join(f"    {each},\n" for each in shown)
    return f"(\n{lines}) -> {given.return_annotation!s}"


def escaped(text: str) -> str:
    return text.replace("<", "&lt;")
