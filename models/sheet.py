"""A model sheet into a `Model`, and a `Model` back into a sheet.

A uniform model writes its layer once::

    layers: 32
    layer:
      attention: {heads: 32, kv_heads: 8, head_dim: 128}
      dense: {width: 14336}

A mixed one names kinds of layers and a pattern, repeated (and cut) to `layers`::

    layers: 62
    kinds:
      sliding: {attention: {heads: 32, kv_heads: 16, head_dim: 128, window: 1024}, ...}
      full: {...}
    pattern: sliding*5 full

A layer that reads another one's cache names it, or says how far before it that stands: `shared_from: -1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import InputError
from ..sheets import Section, read_yaml
from .block import Block
from .formats import find_format
from .kinds import KINDS
from .recipes import find_recipe
from .spec import MAX_LAYERS, Encoder, Layer, Model, Norm, Stem, Tower, usual_norms


def model_from_text(text: str, origin: str, trusted: bool = False) -> Model:
    """The model a sheet describes. Raises SheetError naming file, line and what is allowed."""
    sheet = Section(read_yaml(text, origin, trusted), origin, text)
    layers = _layers(sheet)
    given: dict[str, Any] = {"layers": layers, "stored": (), "input_end": True, "output_end": True}
    norm = sheet.section("norm")
    if norm is not None:
        given["norm"] = norm.build(Norm)
    encoder = sheet.section("encoder")
    if encoder is not None:
        stem = encoder.section("stem")
        convolutions = tuple(_present(stem, name).build(Stem) for name in stem.data) if stem else ()
        given["encoder"] = encoder.build(Encoder, layers=_layers(encoder), stem=convolutions)
    else:
        given["encoder"] = None
    towers = sheet.section("towers")
    if towers is not None:
        given["towers"] = tuple(Tower(name, towers.take(name, "int")) for name in towers.data)
    model = sheet.build(Model, **given)
    if not model.source.strip():
        raise sheet.error("'source' is empty; a sheet says where its figures come from", "source")
    if model.weights:
        try:
            find_recipe(model.weights)
        except InputError as error:
            raise sheet.error(str(error), "weights") from None
    if model.kv:
        try:
            find_format(model.kv)
        except InputError as error:
            raise sheet.error(str(error), "kv") from None
    return model


def _layers(sheet: Section) -> tuple[Layer, ...]:
    count: int = sheet.take("layers", "int")
    if not 1 <= count <= MAX_LAYERS:
        raise sheet.error(f"must be between 1 and {MAX_LAYERS}, not {count}", "layers")
    single, kinds = sheet.section("layer"), sheet.section("kinds")
    pattern = sheet.take("pattern", "str", "")
    if (single is None) == (kinds is None):
        raise sheet.error("give either 'layer' (all alike) or 'kinds' with a 'pattern'")
    if single is not None:
        if pattern:
            raise sheet.error("a 'pattern' needs 'kinds'", "pattern")
        layer = _layer(single)
        return tuple(_placed(layer, i) for i in range(count))
    assert kinds is not None
    built = {name: _layer(_present(kinds, name)) for name in kinds.data}
    order = [built[name] for name in _expand(pattern, built, sheet)]
    return tuple(_placed(order[i % len(order)], i) for i in range(count))


def _placed(layer: Layer, index: int) -> Layer:
    """`layer` as the one of that index: a cache it shares with the n-th layer before it (-n) has a number."""
    return _moved(layer, lambda source: source + index if source < 0 else source)


def unplaced(layer: Layer, index: int) -> Layer:
    """The layer as a sheet may write it at any index: what it shares is -n, the n-th layer before it."""
    return _moved(layer, lambda source: source - index)


def _moved(layer: Layer, to: Callable[[int], int]) -> Layer:
    if all(getattr(block, "shared_from", None) is None for block in layer.blocks):
        return layer

    def moved(block: Block) -> Block:
        source: int | None = getattr(block, "shared_from", None)
        change: dict[str, Any] = {} if source is None else {"shared_from": to(source)}
        return replace(block, **change)

    return replace(layer, blocks=tuple(moved(block) for block in layer.blocks))


def _present(section: Section, key: str) -> Section:
    inner = section.section(key)
    assert inner is not None
    return inner


def _layer(section: Section) -> Layer:
    blocks: list[Block] = []
    for key in list(section.data):
        if key in KINDS:
            given = {"total": None} if key == "experts" else {}
            blocks.append(_present(section, key).build(KINDS[key], **given))
    if not blocks:
        raise section.error(f"a layer needs at least one of: {', '.join(KINDS)}")
    section.known.update(KINDS)
    norms = section.take("norms", "int", usual_norms(tuple(blocks)))
    if not 0 <= norms <= 16:
        raise section.error(f"must be between 0 and 16, not {norms}", "norms")
    parallel = section.take("parallel", "bool", False)
    section.close()
    return Layer(tuple(blocks), norms, parallel)


def _expand(pattern: str, kinds: dict[str, Layer], sheet: Section) -> list[str]:
    """`a*5 b` to five names a and one b."""
    names: list[str] = []
    for word in pattern.split():
        match = re.fullmatch(r"([^*\s]+)(?:\*([1-9]\d{0,3}))?", word)
        if match is None or match[1] not in kinds:
            allowed = ", ".join(kinds)
            raise sheet.error(f"'{word}' is not a kind, or kind*times; the kinds are {allowed}", "pattern")
        names += [match[1]] * int(match[2] or 1)
    if not names:
        raise sheet.error("'kinds' need a 'pattern', such as 'sliding*5 full'")
    unused = set(kinds) - set(names)
    if unused:
        raise sheet.error(f"kinds never used in the pattern: {', '.join(sorted(unused))}", "pattern")
    return names
