"""The document of `infercost diagnose`: verdicts, levers with before, after and gain, plans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..costmodel.deployment import FIGURES, Figures, largest_batch
from ..costmodel.diagnosis import Diagnosis, Effect, Limits, reason
from .diagnose_command import command_of

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
        "intensity": limits.intensity,
        "intensity_verdict": limits.intensity_verdict,
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
        "confidence": confidence.as_json() if confidence else None,
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
