"""An engine's step: laws of its parts, and the two kinds of engines on works counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import shipped_clock
from infercost.costmodel.offload import Offload
from infercost.costmodel.parallel import rank_step
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Run, decode, prefill
from infercost.costmodel.times.engine import engine_s, launches, step_parts
from infercost.hardware.catalogue import load_gpu
from infercost.hardware.engine import EngineTimes, Machine, engine_from_text, engine_names, load_engine
from infercost.models.catalogue import load_model
from infercost.models.recipes import find_recipe

H100 = load_gpu("h100")
NOTHING = EngineTimes("", 0.1, 0.1)


def setting(model: str = "llama-3-8b", engine: str | None = None, **more: object) -> Setting:
    built = Setting(load_model(model), Run(), H100, Parallel(), shipped_clock(H100))
    if engine:
        built = built._replace(engine=load_engine(engine))
    return built._replace(**more)


def parts_of(built: Setting, step: object) -> object:
    plan, kernels, links = next(iter(built.stages(step)))  # type: ignore[arg-type]
    return step_parts(plan, kernels, links, built.gpu, built.clock, built.parallel.tp)


def test_no_constants_are_kernels_back_to_back() -> None:
    built = setting()
    parts = parts_of(built, decode(4, 1000))
    assert engine_s(parts, NOTHING, "h100-sxm") == pytest.approx(step_cost(built, decode(4, 1000)).expected)


@given(layer=st.floats(0, 1e3), sequence=st.floats(0, 1e3), batch=st.integers(1, 256))
def test_the_host_adds_up(layer: float, sequence: float, batch: int) -> None:
    parts = parts_of(setting(), decode(batch, 1000))
    times = replace(NOTHING, layer_us=layer, sequence_us=sequence)
    host = engine_s(parts, times, "x") - engine_s(parts, NOTHING, "x")
    assert host == pytest.approx(1e-6 * (32 * layer + batch * sequence), abs=1e-12)


def test_beside_the_device_the_longer_counts() -> None:
    parts = parts_of(setting(), decode(1, 1000))
    device = engine_s(parts, NOTHING, "x")
    slow = engine_s(parts, replace(NOTHING, layer_us=1e4, overlapped=True), "x")
    assert 0.32 <= slow < 0.32 * 1.001
    none = engine_s(parts, replace(NOTHING, layer_us=0.001, overlapped=True), "x")
    assert device <= none < device * 1.001


def test_weights_at_a_share_of_the_bandwidth() -> None:
    """Llama 3 8B in 16 bit reads 15.01 GB a step; at half of 3.35 TB/s, everything else next to nothing."""
    parts = parts_of(setting(), decode(1, 2))
    own = replace(NOTHING, kernels="own", read_share_16=0.5)
    read = 7_504_924_672 * 2 / (0.5 * 3.35e12)
    assert engine_s(parts, own, "x") == pytest.approx(read, rel=0.01)
    loaded = replace(own, load_bytes_per_clock=1.0)
    roof = 7_504_924_672 * 2 / (132 * H100.compute.clock_ghz * 1e9)  # type: ignore[operator]
    assert engine_s(parts, loaded, "x") == pytest.approx(roof, rel=0.02)


def test_a_machine_is_a_factor() -> None:
    parts = parts_of(setting(), decode(1, 1000))
    seen = replace(NOTHING, layer_us=100, machines=(Machine("fast", decode=0.5, host=2.0),))
    device = engine_s(parts, NOTHING, "fast")
    assert engine_s(parts, seen, "fast") == pytest.approx(0.5 * device + 2 * 32e-4)
    assert engine_s(parts, seen, "other") == pytest.approx(device + 32e-4)


def test_layer_norms_launch_more() -> None:
    """Two adds and two biases a layer that engines fuse for RMSNorm alone."""
    for name, extra in (("llama-2-7b", 0), ("opt-6.7b", 4 * 32)):
        built = setting(name)
        plan, kernels, links = next(iter(built.stages(decode(1, 10))))
        assert launches(plan, (*kernels, *links)) == sum(op.count for op in kernels) + extra


@pytest.mark.parametrize("engine", [name for name in engine_names() if load_engine(name).times])
def test_never_below_the_floor_and_arrays_agree(engine: str) -> None:
    built = setting(engine=engine)
    contexts = np.array([10, 1000, 8000])
    costs = step_cost(built, decode(4, contexts))
    for i, context in enumerate(contexts):
        one = step_cost(built, decode(4, int(context)))
        assert one.expected >= one.floor
        assert costs.expected[i] == pytest.approx(one.expected, rel=1e-12)
    read = step_cost(built, prefill(1, 1000))
    assert read.expected >= read.floor
    confidence = step_cost(built, decode(1, 10)).confidence
    assert confidence is not None
    assert confidence.kind in ("calibrated", "transferred", "assumed")


def test_profiles_are_held_to_sense() -> None:
    head = "name: x\ntitle: X\ntimes: {source: s, error: 0.1, gpu_error: 0.1"
    for bad, word in (
        ("gap: 99", "gap"),
        ("read_share_16: 2", "read_share_16"),
        ("layer_us: -1", "layer_us"),
        ("kernels: fast", "calibrated or own"),
        ("machines: {a100: {decode: 0}}", "decode"),
        ("machines: {a100: {speed: 1}}", "speed"),
        ("load_bytes_per_clock: 0", "load_bytes_per_clock"),
    ):
        with pytest.raises(InputError, match=word):
            engine_from_text(f"{head}, {bad}}}\n", "x.yaml")
    counts = "block_tokens: 1, chunk_tokens: 1, context_mib: 0, graphs_mib: 0, nccl_mib: 0"
    memory = f"{{version: '1', source: s, share: 0.9, share_of: all, {counts}}}"
    with pytest.raises(InputError, match="share_of"):
        engine_from_text(f"name: x\ntitle: X\nmemory: {memory}\n", "x.yaml")
    with pytest.raises(InputError, match="vllm"):
        load_engine("vlm")


def test_layers_on_the_host_come_over_the_link() -> None:
    """Half of Llama 2 7B's layers in 16 bit, 3.24 GB, over 32 GB/s: 101.2 ms a step, whatever the card."""
    per_layer = 2 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096)
    left = Offload(16, False, 32e9)
    built = setting("llama-2-7b", offload=left)
    cost = step_cost(built, decode(1, 100))
    assert cost.bound == pytest.approx(16 * per_layer / 32e9)
    assert cost.floor == pytest.approx(16 * per_layer / 32e9)
    assert cost.expected == pytest.approx(16 * per_layer / 32e9 / 0.85)
    plan = built.plan(decode(1, 100))
    assert left.saved_bytes(plan) == 14 * per_layer
    cached = step_cost(setting("llama-2-7b", offload=Offload(0, True, 32e9)), decode(8, 8192))
    assert cached.bound == pytest.approx(8 * 8192 * 524288 / 32e9, rel=1e-3)
    with pytest.raises(InputError, match="32 layers"):
        Offload(33, False, 32e9).checked(load_model("llama-2-7b"))


@given(tokens=st.integers(64, 100_000), cp=st.sampled_from([2, 4, 8]))
def test_context_parallel_pairs_are_a_share(tokens: int, cp: int) -> None:
    """new x past + new (new + 1) / 2 of a group, against a cp-th of T (T + 1) / 2."""
    (part,) = rank_step(prefill(1, tokens), Parallel(cp=cp)).segments
    pairs = part.new * part.past + part.new * (part.new + 1) // 2
    # A group has whole tokens: up to one more than its share, and half a pair each for the halved past.
    assert pairs == pytest.approx(tokens * (tokens + 1) / 2 / cp, rel=1.5 * cp / tokens)
    (token,) = rank_step(decode(3, tokens), Parallel(cp=cp)).segments
    assert token.past == -(-(tokens - 1) // cp)
    assert (token.new, token.count) == (1, 3)


def test_context_parallel_shares_time_and_memory() -> None:
    alone, shared = setting(), setting(parallel=Parallel(cp=4))
    one, four = (step_cost(built, prefill(1, 65536)) for built in (alone, shared))
    assert one.floor / 4 < four.floor < 1.1 * one.floor / 4
    assert shared.devices == 4
    names = {op.name for _, _, links in shared.stages(prefill(1, 65536)) for op in links}
    assert names == {"context_gather"}


def test_formats_of_weights_tell_the_shares_apart() -> None:
    for recipe, which in (("bf16", "read_16_s"), ("int8-row", "read_8_s"), ("q4_0", "read_4_s")):
        built = setting(run=Run(recipe=find_recipe(recipe)))
        parts = parts_of(built, decode(1, 10))
        sizes = {name: getattr(parts, name) for name in ("read_16_s", "read_8_s", "read_4_s")}
        assert max(sizes, key=lambda name: sizes[name]) == which
