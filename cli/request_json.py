"""A request as JSON: a point of `infercost request`."""

from __future__ import annotations

from typing import Any

from .price import price_json, price_of
from .request_answer import Answer


def point_of(answer: Answer, price: float | None) -> dict[str, Any]:
    setting, asked, whole = answer.setting, answer.request, answer.whole
    gpu, passes = setting.gpu, answer.no_cache
    confidence = whole.confidence
    single = asked.prompt + 1 if answer.phase == "decode" else asked.prompt
    nothing: dict[str, float | None] = {"bound": None, "floor": None, "expected": None}
    steps = asked.decode_steps
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": gpu.name,
            "prompt": single,
            "gen": asked.gen if answer.ttft else None,
            "batch": asked.batch,
            "cached": asked.cached,
            "encoder_seq": asked.encoder or None,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "cp": setting.parallel.cp,
            "prefill_gpu": answer.prefiller.setting.gpu.name if answer.prefiller else None,
            "prefill_tp": answer.prefiller.setting.parallel.tp if answer.prefiller else None,
        },
        "ttft_s": answer.ttft.times() if answer.ttft else nothing,
        "tpot_s": answer.tpot,
        "kv_transfer_s": answer.prefiller.transfer_s(asked) if answer.prefiller else None,
        "e2e_s": whole.times(),
        "confidence": confidence.as_json() if confidence else None,
        "decode_steps": steps,
        "token_passes": asked.token_passes() if answer.ttft else steps,
        "output_tokens_per_s": asked.batch
        * setting.replicas
        * (asked.gen if answer.ttft else 1)
        / whole.best,
        "mfu": whole.mfu,
        "mbu": whole.mbu,
        "phases": {
            name: {
                "matmul_flops": cost.matmul_flops,
                "bytes": cost.moved_bytes,
                "weight_bytes": cost.weight_bytes,
                "mfu": cost.mfu,
                "mbu": cost.mbu,
                "host_link_share": float(cost.host_link_s / cost.best),
                "s": cost.times(),
            }
            for name, cost in (("prefill", answer.ttft), ("decode", answer.decoding))
            if cost
        },
        "devices": setting.devices,
        "peak_memory_bytes": answer.memory.total,
        "memory": {f"{name}_bytes": value for name, value in answer.memory._asdict().items()},
        "fits": answer.fits,
        "energy_j": answer.energy_j,
        "usd": answer.usd.request if answer.usd else None,
        "usd_per_million": (
            {k: v for k, v in answer.usd._asdict().items() if k != "request"} if answer.usd else None
        ),
        "price": price_json(price_of(gpu, price)),
        "no_cache": passes and {"token_passes": asked.token_passes(cache=False), "e2e_s": passes.times()},
        "timeline": [block._asdict() for block in answer.blocks],
    }
