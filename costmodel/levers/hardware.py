"""Levers on what it runs on: more ranks, the host's memory, another engine or GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ... import InputError
from ...hardware.engine import Engine
from ...hardware.spec import Gpu
from ...models.ffn import Experts
from ..deployment import Deployment
from ..offload import Offload
from ..times.expected import Clock
from .registry import lever, with_setting


class Part(NamedTuple):
    """The value of `gpu`: a part, the clock of its expected times, and what an hour of it costs."""

    gpu: Gpu
    clock: Clock | None
    usd_per_hour: float | None


def _ranks(plan: Deployment) -> list[str]:
    now = plan.setting.parallel.tp
    return [str(now * times) for times in (2, 4, 8) if now * times <= 8]


@lever(
    "tp",
    takes="count",
    tries=_ranks,
    attacks="weights arithmetic cache scores activations",
    does="ranks share every matrix and the cache: each does its part, and they add up over the link",
    price="hardware: so many times the GPUs, and a fast link between them",
    options="--tp {value}",
)
def tp(plan: Deployment, ranks: int) -> Deployment:
    own = plan.setting.parallel
    if ranks <= own.tp:
        raise InputError(f"there are {own.tp} tensor-parallel ranks already")
    together = own.ep > 1 and own.ep == own.tp
    return with_setting(plan, parallel=replace(own, tp=ranks, ep=ranks if together else own.ep))


@lever(
    "pp",
    takes="count",
    tries=("2",),
    attacks="weights cache",
    does="stages share out the layers: each holds its part, and a request passes them in turn",
    price="hardware: so many times the GPUs, which one request keeps busy one at a time",
)
def pp(plan: Deployment, stages: int) -> Deployment:
    own = plan.setting.parallel
    if stages <= own.pp:
        raise InputError(f"there are {own.pp} pipeline stages already")
    return with_setting(plan, parallel=replace(own, pp=stages))


@lever(
    "cp",
    takes="count",
    tries=("2",),
    attacks="arithmetic scores cache activations",
    does="groups of ranks share out each sequence's tokens: its prefill and its cache, not the weights",
    price="hardware: so many times the GPUs, and a fast link between them",
)
def cp(plan: Deployment, groups: int) -> Deployment:
    own = plan.setting.parallel
    if groups <= own.cp:
        raise InputError(f"there are {own.cp} groups of context parallelism already")
    return with_setting(plan, parallel=replace(own, cp=groups))


@lever(
    "ep",
    takes="count",
    tries=lambda plan: [str(plan.setting.parallel.tp if plan.setting.parallel.tp > 1 else 8)],
    attacks="weights",
    does="ranks share out the experts: each holds and reads its own (without tp, with a batch of its own)",
    price="hardware: so many GPUs, and a link that carries every token to its experts and back",
    options="--ep {value}",
)
def ep(plan: Deployment, ranks: int) -> Deployment:
    if ranks <= plan.setting.parallel.ep:
        raise InputError(f"experts are shared out over {plan.setting.parallel.ep} ranks already")
    if not any(isinstance(b, Experts) for layer in plan.setting.model.layers for b in layer.blocks):
        raise InputError(f"{plan.setting.model.name} has no experts to share out")
    return with_setting(plan, parallel=replace(plan.setting.parallel, ep=ranks))


HOST_LINK_BYTES_PER_S = 32e9
"""PCIe 4.0 x16, one way."""


@lever(
    "offload",
    takes="count",
    tries=lambda plan: [str(max(1, len(plan.setting.model.layers) // 2))],
    attacks="weights",
    does="weights of so many layers stay in the host's memory and cross a 32 GB/s link in every step",
    price="latency: a step takes as long as the link; the host's memory",
)
def offload(plan: Deployment, layers: int) -> Deployment:
    left = plan.setting.offload.layers if plan.setting.offload else 0
    if layers <= left:
        raise InputError(f"{left} layers are on the host already")
    return with_setting(
        plan, offload=Offload(layers, False, HOST_LINK_BYTES_PER_S).checked(plan.setting.model)
    )


@lever(
    "engine",
    takes="engine",
    tries=lambda plan: ("vllm", "sglang", "tensorrt-llm") if plan.setting.engine else (),
    attacks="host launches links",
    does="another engine: what its host takes between kernels (CUDA graphs), and its gaps",
    price="none: another program; quality and features are its own",
    options="--engine {value}",
)
def engine(plan: Deployment, other: Engine) -> Deployment:
    if other == plan.setting.engine:
        raise InputError(f"it runs on {other.name} already")
    return with_setting(plan, engine=other)


@lever(
    "gpu",
    takes="gpu",
    tries=("a100", "l40s", "h100", "h200", "b200", "mi300x"),
    attacks="weights arithmetic cache scores activations launches",
    does="another GPU: its bandwidth, its peaks, its memory, its price",
    price="hardware: the GPU, at its sheet's price",
    options="--gpu {value}",
)
def gpu(plan: Deployment, part: Part) -> Deployment:
    if part.gpu == plan.setting.gpu:
        raise InputError(f"it runs on {part.gpu.name} already")
    return with_setting(plan, gpu=part.gpu, clock=part.clock)._replace(usd_per_hour=part.usd_per_hour)
