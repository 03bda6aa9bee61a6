"""The JSON of `infercost serve`, and the point that leads."""

from __future__ import annotations

from typing import Any

from ..costmodel.serving import Steady, compulsory_intensity, knee, step_verdict, usd_per_million
from .price import price_json
from .serve_rate import AtRate, at_rate
from .serve_study import Asked, Point, Simulated, Study

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
Led = tuple[Study, Point]


def leading(studies: list[Study], asked: Asked) -> Led | None:
    """The cheapest of the settings' best points; of most tokens per device where a price is not known. With
    --rate, the setting whose whole units serve that rate for least."""
    good = [(each, each.best) for each in studies]
    found = [(each, point) for each, point in good if point is not None]
    priced = all(each.price is not None for each, _ in found)

    def cost(led: Led) -> float:
        each, at = led[0], led[1].steady
        price = each.price.usd_per_hour if priced and each.price else 1.0
        if asked.rate is not None:
            return price * at_rate(each, led[1], asked.rate, asked).devices
        return price * at.devices / at.output_tokens_per_s

    return min(found, key=cost, default=None)


def as_json(studies: list[Study], asked: Asked, seen: float | None) -> dict[str, Any]:
    """The keys beside inputs and conventions; what is of a setting stands at the top, of several in
    `settings`."""
    led = leading(studies, asked)
    out: dict[str, Any] = {
        "points": [point_as_json(each, point) for each in studies for point in each.points],
        "best": point_as_json(*led) if led else None,
    }
    if asked.rate is not None:
        found = at_rate(*led, asked.rate, asked) if led else None
        out["devices_needed"] = found and found.devices
        out["at_rate"] = found and rate_as_json(found)
    if seen is not None:
        out["actual"] = [
            {
                **setting_inputs(each),
                "output_tokens_per_s": seen,
                "usd_per_million_output": seen_usd(each, seen),
                "of_best": of_best(each, seen),
            }
            for each in studies
        ]
    own = [setting_as_json(each, asked) for each in studies]
    more: dict[str, Any] = own[0] if len(own) == 1 else {"settings": own}
    return {**out, **more}


def rate_as_json(found: AtRate) -> dict[str, Any]:
    at = found.steady
    return {
        **{name: value for name, value in found._asdict().items() if name != "steady"},
        "ttft_s": at.ttft_s,
        "tpot_s": at.tpot_s,
        "e2e_s": at.e2e_s,
    }


def setting_inputs(each: Study) -> dict[str, Any]:
    setting = each.setting
    return {
        "model": setting.model.name,
        "gpu": setting.gpu.name,
        "weights": setting.recipe.name,
        "kv": setting.run.kv.name,
    }


def seen_usd(each: Study, seen: float) -> float | None:
    return (
        None if each.price is None else usd_per_million(each.price.usd_per_hour, each.setting.devices, seen)
    )


def of_best(each: Study, seen: float) -> float | None:
    """What was seen over the best point, a device of each."""
    if each.best is None:
        return None
    at = each.best.steady
    return seen / each.setting.devices / (at.output_tokens_per_s / at.devices)


def point_as_json(each: Study, point: Point) -> dict[str, Any]:
    at = point.steady
    sure = at.confidence
    return {
        "inputs": setting_inputs(each),
        "policy": at.policy,
        "batch": at.batch,
        "concurrency": at.users,
        "queue_s": at.queue_s,
        "ttft_s": at.ttft_s,
        "tpot_s": at.tpot_s,
        "gap_s": at.gap_s,
        "e2e_s": at.e2e_s,
        "requests_per_s": at.requests_per_s,
        "output_tokens_per_s": at.output_tokens_per_s,
        "devices": at.devices,
        "usd_per_million_output": each.usd(at),
        "used": at.used,
        "intensity": compulsory_intensity(each.setting, at.step),
        "verdict": step_verdict(each.setting, at.step),
        "fits": point.fits,
        "meets_limits": point.meets,
        "confidence": sure.as_json() if sure else None,
    }


def setting_as_json(each: Study, asked: Asked) -> dict[str, Any]:
    lengths, work = each.work.lengths, each.work
    batches = sorted({point.steady.batch for point in each.points})
    return {
        "inputs": setting_inputs(each),
        "price": price_json(each.price),
        "most_batch": each.most,
        "knee": {policy: bend.batch for policy, bend in knees(each).items()},
        "mean_context": lengths.mean_context,
        "batching": [
            {
                "batch": batch,
                "longest": lengths.longest(batch),
                "utilisation": lengths.utilisation(batch),
                "utilisation_limit": lengths.limit(batch),
                "speedup_bound": 1 / lengths.utilisation(batch),
            }
            for batch in batches
        ],
        "asymptote": each.asymptote._asdict(),
        "allocators": [{**taken._asdict(), "most_batch": most} for taken, most in each.allocators],
        "prefix": each.prefix and each.prefix._asdict() | {"shared_tokens": work.shared},
        "chunk": each.chunks
        and {
            **each.chunks.bill._asdict(),
            "hidden": each.chunks.bill.hidden,
            "decodes": each.chunks.batch,
            "free_tokens": each.chunks.free,
            "limit_s": each.chunks.limit_s,
            "within_tokens": each.chunks.within,
        },
        "handover": each.handover and each.handover._asdict(),
        "simulation": [run_as_json(run, asked, each.setting.replicas) for run in each.runs] or None,
    }


def knees(each: Study) -> dict[str, Steady]:
    """The knee of every policy's curve that has more than one point."""
    curves: dict[str, list[Steady]] = {}
    for point in each.points:
        curves.setdefault(point.steady.policy, []).append(point.steady)
    return {policy: knee(points) for policy, points in curves.items() if len(points) > 1}


def run_as_json(run: Simulated, asked: Asked, replicas: int) -> dict[str, Any]:
    """A simulated point; rates are of all replicas, one of which was run."""
    outcome, at, times = run.outcome, run.point.steady, run.outcome.times
    limited = asked.ttft_s is not None or asked.tpot_s is not None
    kept = sum(asked.within(*each) for each in times) / len(times) if limited else None
    return {
        "policy": at.policy,
        "batch": at.batch,
        "requests": len(outcome.jobs),
        "seconds": outcome.seconds,
        "requests_per_s": outcome.requests_per_s * replicas,
        "output_tokens_per_s": outcome.output_tokens_per_s * replicas,
        "ttft_s": _spread([each.ttft_s for each in times]),
        "tpot_s": _spread([each.tpot_s for each in times if each.tpot_s is not None]),
        "used": outcome.used._asdict(),
        "within_limits": kept,
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    """Mean and percentiles (nearest rank)."""
    if not values:
        return None
    ranked = sorted(values)
    at = {
        name: ranked[max(0, -(-int(share * 100) * len(ranked) // 100) - 1)]
        for name, share in PERCENTILES.items()
    }
    return {"mean": sum(values) / len(values), **at}
