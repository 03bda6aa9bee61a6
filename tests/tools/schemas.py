"""Write docs/schemas/*.json: JSON Schemas of sheets and of every command's `--json`.

`python tests/tools/schemas.py` writes them, `--check` fails where one is stale. Those of sheets follow from
the dataclasses that the sheets fill: keys, types and what is required are theirs. Those of documents state
the contract: keys that a script may rely on. A document may hold more.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from infercost.hardware.calibration import FAMILIES, SCHEMA, Calibration, Key, Spread
from infercost.hardware.calibration_sheet import MOST_PARAMETERS
from infercost.hardware.engine import KERNELS, SHARES_OF, Card, Engine, EngineMemory, EngineTimes, Machine
from infercost.hardware.spec import DTYPES, GENERATIONS, Compute, Gpu, Memory, Price
from infercost.models.kinds import KINDS
from infercost.models.recipes import recipe_names
from infercost.models.spec import MAX_LAYERS, Encoder, Model, Norm, Stem

FOLDER = Path(__file__).parent.parent.parent / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
PLAIN: dict[str, Schema] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "tuple[str, ...]": {"type": "array", "items": {"type": "string"}},
}
WORDS: dict[tuple[type, str], list[str]] = {
    (Norm, "kind"): ["rms", "layer", "none"],
    (Model, "dtype"): ["fp16", "bf16", "fp32"],
    (Memory, "driver_basis"): ["", "seen", "recalled"],
    (Gpu, "link"): ["", "bridge"],
    (Gpu, "generation"): ["", *GENERATIONS],
    (Gpu, "confidence"): ["high", "medium", "low"],
    (EngineTimes, "kernels"): list(KERNELS),
    (EngineMemory, "share_of"): list(SHARES_OF),
}
"""Fields of a dataclass that take one of few words."""


def of_fields(cls: type, skipped: tuple[str, ...] = (), **given: Schema) -> Schema:
    """The mapping that fills `cls`: a key per field, those of `given` as they say, no others."""
    properties: dict[str, Schema] = {}
    required = []
    for field in fields(cls):
        if field.name in skipped:
            continue
        if field.name not in given:
            text = str(field.type)
            kind = PLAIN[text.removesuffix(" | None")]
            if (cls, field.name) in WORDS:
                kind = {"enum": WORDS[cls, field.name]}
            properties[field.name] = {"anyOf": [kind, {"type": "null"}]} if text.endswith("None") else kind
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
    properties |= given
    about = " ".join((cls.__doc__ or "").split())
    return closed(properties, [name for name in required if name in properties]) | {"description": about}


def closed(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def mapping(of: Schema, names: tuple[str, ...] | None = None) -> Schema:
    """Names chosen by the writer (or some of `names`), each with a value like `of`."""
    if names is not None:
        return closed(dict.fromkeys(names, of), [])
    return {"type": "object", "additionalProperties": of}


def model_sheet() -> Schema:
    """`layers` with one `layer`, or with `kinds` and a `pattern`."""
    known = {"anyOf": [{"enum": recipe_names()}, {"type": "string"}]}
    layers: dict[str, Schema] = {
        "layers": {"type": "integer", "minimum": 1, "maximum": MAX_LAYERS},
        "layer": {"$ref": "#/$defs/layer"},
        "kinds": mapping({"$ref": "#/$defs/layer"}),
        "pattern": {"type": "string", "description": "names of kinds in order, repeated to layers: a*5 b"},
    }
    either = {"oneOf": [{"required": ["layer"]}, {"required": ["kinds", "pattern"]}]}
    stem = mapping(of_fields(Stem))
    sheet = of_fields(
        Model,
        ("input_end", "output_end", "stored"),
        **layers,
        norm=of_fields(Norm),
        encoder=of_fields(Encoder, **layers, stem=stem) | either,
        towers=mapping({"type": "integer"})
        | {"description": "parameters of each part beside the text model"},
        weights=known,
    )
    sheet["properties"]["source"] = {"type": "string", "minLength": 1}
    blocks = {name: of_fields(block, ("total",)) for name, block in KINDS.items()}
    layer = closed(
        {
            **{name: {"$ref": f"#/$defs/{name}"} for name in blocks},
            "norms": {"type": "integer", "minimum": 0, "maximum": 16},
            "parallel": {"type": "boolean"},
        },
        [],
    )
    return sheet | either | {"$defs": {"layer": layer | {"description": "blocks in order"}, **blocks}}


def gpu_sheet() -> Schema:
    peaks = mapping({"type": "number"}, DTYPES) | {"description": "dense TFLOP/s by dtype"}
    sheet = of_fields(
        Gpu,
        ("peaks", "fp16_accumulate_peaks"),
        memory=of_fields(Memory),
        compute=of_fields(Compute),
        price=of_fields(Price),
        peak_tflops=peaks,
        fp16_accumulate_tflops=peaks,
    )
    sheet["required"].append("peak_tflops")
    return sheet


def engine_sheet() -> Schema:
    factors = {name: {"type": "number", "minimum": 0.01, "maximum": 100} for name in Machine._fields[1:]}
    times = of_fields(EngineTimes, machines=mapping(closed(factors, [])))
    count = {"type": "integer", "minimum": 1, "maximum": 1 << 20}
    gib, counts = {"type": "integer", "minimum": 0}, ("chunk_tokens", "sequences")
    card = dict.fromkeys(counts, count) | {"from_gib": gib, "below_gib": gib, "named": {"type": "string"}}
    cards = mapping(closed(card, list(counts))) | {"description": " ".join((Card.__doc__ or "").split())}
    return of_fields(Engine, times=times, memory=of_fields(EngineMemory, cards=cards))


def calibration_sheet() -> Schema:
    spread = closed({name: {"type": "number", "minimum": 0} for name in Spread._fields}, list(Spread._fields))
    constants = mapping({"type": "number", "minimum": 0, "maximum": 1e9})
    group = closed(
        {
            **{name: {"type": "string"} for name in Key._fields if name != "world"},
            "world": {"type": "integer"},
            "default": {"type": "boolean"},
            "form": {"type": "string"},
            "rows": {"type": "integer", "minimum": 1},
            "params": constants | {"minProperties": 1, "maxProperties": MOST_PARAMETERS},
            "error": spread,
            "abroad": spread,
        },
        ["form", "rows", "params", "error"],
    )
    sheet = of_fields(
        Calibration, ceilings=mapping({"type": "number"}), families=mapping(mapping(group), FAMILIES)
    )
    sheet["properties"] = {"schema": {"const": SCHEMA}, **sheet["properties"]}
    sheet["required"] = ["schema", *sheet["required"]]
    return sheet


def budgets_file() -> Schema:
    figure = {"anyOf": [{"type": "number"}, {"type": "string"}]}
    check = closed(
        {
            "run": {"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]},
            "expr": {"type": "string"},
            "max": figure,
            "min": figure,
            "equals": {"anyOf": [*figure["anyOf"], {"type": "boolean"}]},
            "baseline": {"anyOf": [*figure["anyOf"], {"type": ["boolean", "null"]}]},
            "tolerance": figure,
            "note": {"type": "string"},
        },
        ["run", "expr"],
    )
    check["oneOf"] = [{"required": [rule]} for rule in ("max", "min", "equals", "baseline")]
    about = "named checks: a command, a key of its JSON and one limit"
    return closed({"checks": mapping(check) | {"minProperties": 1}}, ["checks"]) | {"description": about}


SHEETS = {
    "model": model_sheet,
    "gpu": gpu_sheet,
    "engine": engine_sheet,
    "calibration": calibration_sheet,
    "budgets": budgets_file,
}

TIMES = {"bound": "number?", "floor": "number?", "expected": "number?"}
FIGURES = {
    "ttft_s": "number?",
    "tpot_s": "number?",
    "memory_bytes": "number?",
    "usd_per_million_output": "number?",
}
OPERATION = {
    "phase": "string",
    "name": "string",
    "work": "string",
    "count": "integer",
    "matmul_flops": "number",
    "vector_flops": "number",
    "bytes": "number",
    "bytes_by_class": "object",
    "intensity": "number?",
    "verdict": "string",
    "floor_s": "number",
    "expected_s": "number?",
}
TOTALS = {
    "matmul_flops": "number",
    "vector_flops": "number",
    "bytes": "number",
    "bound_s": "number",
    "floor_s": "number",
    "expected_s": "number?",
}
COMPONENT = {"name": "string", "parameters": "integer", "format": "string", "bytes": "integer"}
WEIGHTS = {
    "parameters": "integer",
    "active_parameters": "integer",
    "weight_bytes": "integer",
    "read_bytes_per_step": "number?",
    "components": [COMPONENT],
}
SIDE = {"parameters": "integer", "weight_bytes": "integer", "ttft_s": TIMES, "tpot_s": TIMES}
ROUND = {
    "gamma": "integer",
    "tokens_per_round": "number",
    "speedup": "number",
    "break_even_draft_cost": "number",
}
DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "kv": [
        {
            "logical_bytes": "integer",
            "bytes_per_token": "integer",
            "state_bytes": "integer",
            "groups": [{"kind": "string", "layers": "integer", "window": "integer?", "bytes": "integer"}],
        }
    ],
    "weights": [WEIGHTS, {"formats": [{"name": "string", "use": "string", "bits_per_value": "number?"}]}],
    "ops": [{"ops": [OPERATION], "totals": {"*": TOTALS}}, {"ops": ["object"], "totals": "object"}],
    "roofline": [
        {
            "gpu": "string",
            "dtype": "string",
            "peak_flops_per_s": "number",
            "bandwidth_bytes_per_s": "number",
            "ridge": {
                "headline": "number",
                "textbook": "number",
                "datasheet": "number",
                "calibrated": "number?",
            },
            "ops": ["object"],
            "measured": ["object"],
        }
    ],
    "request": [
        {
            "ttft_s": TIMES,
            "tpot_s": TIMES,
            "e2e_s": TIMES,
            "confidence": "object?",
            "decode_steps": "integer",
            "mfu": "number?",
            "mbu": "number?",
            "peak_memory_bytes": "integer",
            "energy_j": "number?",
            "usd": "number?",
            "timeline": ["object"],
        }
    ],
    "fit": [
        {
            "fits": "boolean",
            "budget_bytes": "integer",
            "terms": [{"name": "string", "bytes": "integer"}],
            "free_bytes": "integer",
            "max_seq": "integer?",
            "max_batch": "integer?",
            "max_concurrency": "number?",
            "gpus_needed": "integer?",
        }
    ],
    "serve": [
        {
            "points": [
                {
                    "batch": "integer",
                    "ttft_s": "number?",
                    "tpot_s": "number?",
                    "output_tokens_per_s": "number",
                    "usd_per_million_output": "number?",
                    "verdict": "string",
                }
            ],
            "best": "object?",
        },
        {"usd_per_million_output": "number"},
    ],
    "diagnose": [
        {
            "verdicts": "object",
            "levers": [
                {
                    "name": "string",
                    "before": FIGURES,
                    "after": FIGURES,
                    "gain": FIGURES,
                    "why": "string",
                    "price": "string",
                    "command": "string",
                }
            ],
            "objective": "string",
            "figures": FIGURES,
        }
    ],
    "quant": [
        {"scale": "number?", "zero_point": "number?", "max_abs_error": "number", "mse": "number"},
        {
            "weight_bytes": "integer",
            "kv_bytes": "integer",
            "memory_bytes": "integer",
            "tpot_s": TIMES,
            "prefill_s": TIMES,
        },
        {"weight_bytes": "integer", "rivals": ["object"]},
        {"formats": [{"name": "string"}]},
        {"scheme": "string", "bits": "number", "stored_bits": "number", "source": "string"},
        {"products": ["object"], "outlier_columns": "integer", "outlier_share": "number"},
    ],
    "compress": [
        {"bits_per_weight": "number", "of_dense": "number", "storages": ["object"]},
        {"before": SIDE, "after": SIDE, "ratios": "object"},
        {"student_parameters": "number", "flops_per_token": "object", "training": "object"},
    ],
    "speculate": [
        {"tokens_per_round": "number", "speedup": "number"},
        {"mean_cost": "number", "saving": "number", "tiers": ["object"]},
        {"break_even_layer": "number?", "speedup": "number", "exits": ["object"]},
        {"cases": ["object"], "excluded": "object"},
    ],
    "explain": [
        {
            "topic": "string",
            "formula": "string",
            "letters": "object",
            "value": "number?",
            "unit": "string",
            "source": "string",
            "bill": ["object"],
            "commands": ["string"],
        },
        {"topics": [{"name": "string", "title": "string", "group": "string", "aliases": ["string"]}]},
    ],
    "sweep": [
        {
            "grid_points": "integer",
            "impossible_points": "integer",
            "points": [{"inputs": "object", "ttft_s": TIMES, "tpot_s": TIMES, "e2e_s": TIMES}],
        }
    ],
    "probe": [
        {
            "device": "object",
            "conditions": "object?",
            "ceilings": "object",
            "results": [
                {
                    "id": "string",
                    "op": "string",
                    "ceiling_floor_s": "number?",
                    "expected_s": "number?",
                    "measured_s": "number?",
                    "verdict": "string",
                    "why": "string",
                }
            ],
            "partial": "boolean",
        },
        {"probes": [{"id": "string", "class": "string", "work": "string"}]},
    ],
    "validate": [
        {"groups": ["object"], "totals": "object", "flagged": ["object"], "excluded": "object"},
    ],
    "calibrate": [{"groups": ["object"], "accepted": "integer", "excluded": "object", "written": "string?"}],
    "report": [
        {
            "answer": "object",
            "budget_bytes": "integer",
            "fit": "object",
            "request": "object",
            "roofline": "object",
            "serve": "object?",
            "diagnose": "object?",
            "absent": "object",
            "lattice": {
                "formats": ["object"],
                "prompts": ["integer"],
                "batches": ["integer"],
            },
        }
    ],
    "check": [
        {
            "passed": "boolean",
            "checks": [
                {"name": "string", "expr": "string", "value": "any", "limit": "any", "passed": "boolean"}
            ],
        }
    ],
    "models": [
        {"models": [{"name": "string", "parameters": "integer", "active_parameters": "integer"}]},
        {"name": "string", "parameters": "integer", "active_parameters": "integer", "groups": ["object"]},
        {"checked": [{"sheet": "string", "parameters": "integer", "layers": "integer"}]},
        {"same": "boolean", "differences": [{"fact": "string"}]},
    ],
    "gpus": [
        {"gpus": [{"name": "string", "title": "string"}]},
        {
            "name": "string",
            "peaks_flops_per_s": "object",
            "bandwidth_bytes_per_s": "number",
            "ridge": "object",
        },
        {"checked": [{"name": "string", "problems": ["string"], "absent": ["string"]}]},
    ],
}
"""Shapes of each command's answer: `?` may be null, `*` is any key. Lists make `points` of them."""


def shape(of: Any) -> Schema:
    if isinstance(of, list):
        return {"type": "array", "items": shape(of[0])}
    if isinstance(of, dict):
        if "*" in of:
            return {"type": "object", "additionalProperties": shape(of["*"])}
        return {
            "type": "object",
            "properties": {key: shape(value) for key, value in of.items()},
            "required": list(of),
        }
    if of == "any":
        return {}
    return {"type": [of.removesuffix("?"), "null"] if of.endswith("?") else of}


def document(command: str) -> Schema:
    """What `infercost COMMAND --json` prints: a header, and one of the shapes or a list of points."""
    shapes = [shape(of) for of in DOCUMENTS[command]]
    one = {"$ref": "#/$defs/answer"}
    point = {"allOf": [one, {"required": ["inputs"], "properties": {"inputs": {"type": "object"}}}]}
    points = {"required": ["points"], "properties": {"points": {"type": "array", "items": point}}}
    words = mapping({"type": "string"})
    return {
        "description": f"`infercost {command} --json`: raw numbers, base units, the unit in each key's name",
        "type": "object",
        "properties": {
            "schema": {"const": f"infercost.{command}/1"},
            "inputs": {"type": "object"},
            "conventions": words,
            "sources": words,
            "inferred": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        },
        "required": ["schema", "inputs", "conventions", "sources"],
        "anyOf": [one, points],
        "$defs": {"answer": {"anyOf": shapes} if len(shapes) > 1 else shapes[0]},
    }


def all_schemas() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    made = {f"{name}-sheet.json": make() for name, make in SHEETS.items()}
    made |= {f"{command}.json": document(command) for command in DOCUMENTS}
    return {
        name: {"$schema": DIALECT, "title": f"infercost: {name.removesuffix('.json')}", **schema}
        for name, schema in made.items()
    }


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    texts = {name: json.dumps(schema, indent=1) + "\n" for name, schema in all_schemas().items()}
    held = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(name for name in texts.keys() | held.keys() if texts.get(name) != held.get(name))
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"stale: {', '.join(stale)}; run `python tests/tools/schemas.py`")
        return int(bool(stale))
    for name in stale:
        if name in texts:
            (FOLDER / name).write_text(texts[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(texts)} schemas, {len(stale)} rewritten")
    return 0


if __name__ == "__main__":
    sys.exit(main())
