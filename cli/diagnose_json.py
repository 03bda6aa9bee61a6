"""The document of `infercost diagnose`: verdicts, levers with before, after and gain, plans side by side."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ..costmodel.deployment import FIGURES, Deployment, Figures, largest_batch
from ..costmodel.diagnosis import Diagnosis, Effect, Limits, reason
from ..models.recipes import sixteen_bit

if TYPE_CHECKING:
    from .diagnose import Answer


def figures_as_json(figures: Figures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in FIGURES}


def _limits_as_json(limits: Limits | None, share: float) -> dict[str, Any] | None:
    if limits is None:
        return None
    return {
        "seconds": limits.seconds,
        "share_of_request": share,
        "verdict": limits.verdict,
        "binds": limits.binds,
        "shares": limits.shares,
    }


def verdicts_as_json(found: Diagnosis) -> dict[str, Any]:
    memory, budget = found.figures.memory, found.plan.budget_bytes
    return {
        "prefill": _limits_as_json(found.prefill, found.prefill_share),
        "decode": _limits_as_json(found.decode, 1 - found.prefill_share),
        "memory": {
            "total_bytes": memory.total,
            "budget_bytes": budget,
            "fits": found.fits,
            "largest_batch": largest_batch(found.plan),
            "binds": next(iter(found.memory)),
            "shares": found.memory,
            **{f"{name}_bytes": value for name, value in memory._asdict().items()},
        },
    }


def plan_as_json(name: str, levers: list[str], found: Diagnosis) -> dict[str, Any]:
    at = found.figures.steady
    return {
        "name": name,
        "levers": levers,
        **figures_as_json(found.figures),
        "e2e_s": float(at.e2e_s),
        "output_tokens_per_s": float(at.output_tokens_per_s),
        "devices": at.devices,
        "verdicts": verdicts_as_json(found),
    }


def effect_as_json(answer: Answer, one: Effect) -> dict[str, Any]:
    return {
        "name": one.name,
        "attacks": list(one.lever.attacks),
        "before": figures_as_json(one.before),
        "after": figures_as_json(one.after),
        "gain": {name: one.gain(name) for name in FIGURES},
        "gain_share": {name: one.saved(name) for name in FIGURES},
        "fits": one.fits,
        "why": reason(answer.chosen, one, answer.objective),
        "price": one.lever.price,
        "command": command_of(answer, one),
    }


def command_of(answer: Answer, one: Effect) -> str:
    """The infercost command that goes into a lever, of this very deployment as far as that takes options."""
    plan = answer.chosen.plan
    _, _, value = one.name.partition("=")
    first, _, rest = value.partition("/")
    second, _, third = rest.partition("/")
    work, ranks = plan.work, plan.setting.parallel.tp
    model, gpu = f"--model {shlex.quote(answer.given)}", f"--gpu {shlex.quote(plan.setting.gpu.name)}"
    formats = _formats(plan)
    run = f"{formats} --tp {ranks}" if ranks > 1 else formats
    timed = f"--engine {plan.setting.engine.name}" if plan.setting.engine else ""
    tokens = f"--prompt {work.lengths.prompt:.0f} --gen {work.lengths.gen:.0f}"
    lengths = f"{tokens} {timed}" if timed else tokens
    fields = {
        "name": shlex.quote(answer.given),
        "model": model,
        "gpu": gpu,
        "formats": formats,
        "run": run,
        "tokens": tokens,
        "lengths": lengths,
        "requests": f"{model} {gpu} {run} {lengths} --batch {plan.batch}",
        "decoding": f"{model} {gpu} {run} --batch {plan.batch} --seq {work.lengths.mean_context:.0f}",
        "prompt": f"{work.lengths.prompt:.0f}",
        "held": work.held_tokens,
        "batch": plan.batch,
        "reserved": plan.reserved,
        "value": shlex.quote(value),
        "alpha": first,
        "chance": first,
        "gamma": second,
        "every": second,
        "draft": shlex.quote(third or "eagle"),
        "heads": ",".join(value.split("/")),
    }
    return "infercost " + " ".join(one.lever.command.format(**fields).split())


def _formats(plan: Deployment) -> str:
    """--weights and --kv where others than the checkpoint's own were asked for."""
    recipe, kv = plan.setting.run.recipe, plan.setting.run.kv.name
    out = f"--weights {shlex.quote(recipe.name)}" if recipe is not None else ""
    return out if kv == sixteen_bit(plan.setting.model) else f"{out} --kv {shlex.quote(kv)}"


def point_of(answer: Answer) -> dict[str, Any]:
    plan = answer.base.plan
    setting, work = plan.setting, plan.work
    confidence = answer.chosen.figures.steady.confidence
    plans = []
    if answer.steps or answer.other:
        plans = [plan_as_json("now", [], answer.base)]
        names = [name for name, _ in answer.steps]
        plans += [
            plan_as_json(f"+{name}", names[: i + 1], found) for i, (name, found) in enumerate(answer.steps)
        ]
        if answer.other:
            plans.append(plan_as_json("vs", answer.against.split(","), answer.other))
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": setting.gpu.name,
            "prompt": round(work.lengths.prompt),
            "gen": round(work.lengths.gen),
            "batch": plan.batch,
            "encoder_seq": work.encoder or None,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "cp": setting.parallel.cp,
            "usd_per_hour": plan.usd_per_hour,
        },
        "objective": answer.objective,
        "confidence": {**confidence._asdict(), "text": str(confidence)} if confidence else None,
        "figures": figures_as_json(answer.chosen.figures),
        "verdicts": verdicts_as_json(answer.chosen),
        "levers": [effect_as_json(answer, one) for one in answer.effects],
        "not_applicable": [one._asdict() for one in answer.refused],
        "plans": plans,
    }


def flat(point: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each lever."""
    rows = []
    for one in point["levers"]:
        row = {**point["inputs"], "objective": point["objective"], "lever": one["name"]}
        for part in ("before", "after", "gain", "gain_share"):
            row |= {f"{part}.{name}": value for name, value in one[part].items()}
        rows.append(row | {name: one[name] for name in ("fits", "why", "price", "command")})
    return rows
