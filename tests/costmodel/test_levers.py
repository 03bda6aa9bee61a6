"""Levers: each reaches the deployment that is written without it, and what it gains is their difference."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import clock_of
from infercost.costmodel.batching import Lengths
from infercost.costmodel.compression import Kept, pruned
from infercost.costmodel.deployment import FIGURES, Deployment, evaluate, largest_batch, memory_of
from infercost.costmodel.diagnosis import diagnose, effect, ranked, reason, step_shares
from infercost.costmodel.early_exit import at_every, early_exit
from infercost.costmodel.levers import LEVERS, RESOURCES, Guess, Part
from infercost.costmodel.memory import peak_memory
from infercost.costmodel.offload import Offload
from infercost.costmodel.request import Request
from infercost.costmodel.serving import Workload, steady, usd_per_million
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.speculative import Speculation, layer_draft, medusa_draft
from infercost.costmodel.step import Run
from infercost.hardware.calibration_sheet import calibrated_names
from infercost.hardware.catalogue import load_gpu
from infercost.hardware.engine import load_engine
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe

DOCS = Path(__file__).parents[2] / "docs" / "levers.md"
PROMPT, GEN, BATCH, PRICE = 2048, 257, 4, 2.0


def setting(model: str = "llama-7b", gpu: str = "h100", run: Run | None = None, **ranks: int) -> Setting:
    one = load_gpu(gpu)
    return Setting(load_model(model), run or Run(), one, Parallel(**ranks), clock_of("auto", one))


def deployment(base: Setting, batch: int = BATCH, prompt: int = PROMPT, **more: Any) -> Deployment:
    work = Workload(Lengths("fixed", prompt, GEN))
    return Deployment(base, work, batch, usd_per_hour=more.pop("price", PRICE), **more)


class Direct(NamedTuple):
    """A deployment by its parts, evaluated without a `Deployment`."""

    setting: Setting
    batch: int = BATCH
    policy: str = "continuous"
    chunk: int = 512
    shared: int = 0
    price: float | None = PRICE
    speedup: float = 1.0
    held: int = PROMPT + GEN - 1

    def figures(self) -> dict[str, float | None]:
        work = Workload(Lengths("fixed", PROMPT, GEN), self.shared)
        at = steady(self.policy, self.setting, work, self.batch, chunk=self.chunk)
        tpot, rate = at.tpot_s, at.requests_per_s
        assert tpot is not None
        if self.speedup != 1:
            step = step_cost(self.setting, work.decode(self.batch)).best
            reading = step_cost(self.setting, work.prefill()).best
            # Continuous batching: B·t_prefill + (G - 1)·t_decode for B requests.
            tpot = step / self.speedup + (self.batch - 1) * reading / (GEN - 1)
            rate = self.batch / (self.batch * reading + (GEN - 1) * step / self.speedup)
        usd = None if self.price is None else usd_per_million(self.price, at.devices, rate * GEN)
        prompts = {"static": self.batch}.get(self.policy, 1)
        filling = work.mixed(self.batch - 1, 1, self.chunk, self.shared)
        steps = [filling if self.policy == "chunked" else work.prefill(prompts), work.decode(self.batch)]
        bills = [
            peak_memory(self.setting, self.held, self.batch, step, shared=self.shared).total for step in steps
        ]
        found = (at.ttft_s, tpot, max(bills), usd)
        return dict(zip(FIGURES, found, strict=True))


def stored(base: Setting, recipe: str) -> Setting:
    return base._replace(run=replace(base.run, recipe=find_recipe(recipe)))


def cached(base: Setting, fmt: str) -> Setting:
    return base._replace(run=replace(base.run, kv=find_format(fmt)))


def shaped(base: Setting, **changes: int) -> Setting:
    return base._replace(model=base.model.with_attention(**changes))


def kept(base: Setting, **sizes: int) -> Setting:
    return base._replace(model=pruned(base.model, Kept(**sizes)))


def part(name: str) -> Part:
    gpu = load_gpu(name)
    return Part(gpu, clock_of("auto", gpu), 3.0)


def speculated(base: Setting, alpha: float, gamma: int) -> float:
    spec = Speculation(base, layer_draft(base, "eagle"), BATCH, PROMPT + round(GEN / 2))
    return spec.lengths(alpha, [gamma])[0].best.speedup


def guessed(base: Setting) -> float:
    """Two heads at 0.75 and 0.5: seed ledger, sp.medusa, 1 + 0.75 + 0.75·0.5 = 2.125 tokens a pass."""
    spec = Speculation(base, medusa_draft(base, 2), BATCH, PROMPT + round(GEN / 2))
    return spec.verified(2.125, 2, 3, spec.passes(3)).best.speedup


def left_early(base: Setting) -> float:
    found = early_exit(base, at_every(32, 4, 0.1), BATCH, PROMPT + round(GEN / 2)).speedup("expected")
    assert found is not None
    return found


LLAMA = setting()
EAGER = setting(run=Run(attention="eager", fusion="none"))
MIXTRAL = setting("mixtral-8x7b")
B200 = setting(gpu="b200")
SERVED = LLAMA._replace(engine=load_engine("vllm"))

CASES: dict[str, tuple[Setting, Any, Callable[[Setting], Direct]]] = {
    "fp8": (LLAMA, None, lambda s: Direct(stored(s, "fp8-row"))),
    "int8": (LLAMA, None, lambda s: Direct(stored(s, "int8-row"))),
    "int4": (LLAMA, None, lambda s: Direct(stored(s, "gptq"))),
    "fp4": (B200, None, lambda s: Direct(stored(s, "nvfp4"))),
    "weights": (LLAMA, find_recipe("bnb-nf4"), lambda s: Direct(stored(s, "bnb-nf4"))),
    "2:4": (LLAMA, None, lambda s: Direct(stored(s, "fp16-2:4"))),
    "sparse": (LLAMA, 0.6, lambda s: Direct(stored(s, "fp16-bitmap-0.6"))),
    "layers": (LLAMA, 24, lambda s: Direct(s._replace(model=s.model.with_layers(24)))),
    "ffn": (LLAMA, 8192, lambda s: Direct(kept(s, ffn=8192))),
    "model": (LLAMA, load_model("llama-68m"), lambda s: Direct(s._replace(model=load_model("llama-68m")))),
    "kv-fp8": (LLAMA, None, lambda s: Direct(cached(s, "fp8"))),
    "kv-int4": (LLAMA, None, lambda s: Direct(cached(s, "int4-g32"))),
    "kv": (LLAMA, find_format("q8_0"), lambda s: Direct(cached(s, "q8_0"))),
    "gqa": (LLAMA, 8, lambda s: Direct(shaped(s, kv_heads=8))),
    "mqa": (LLAMA, None, lambda s: Direct(shaped(s, kv_heads=1))),
    "window": (LLAMA, 1024, lambda s: Direct(shaped(s, window=1024))),
    "flash": (EAGER, None, lambda s: Direct(s._replace(run=Run(fusion="none")))),
    "fusion": (EAGER, None, lambda s: Direct(s._replace(run=Run(attention="eager")))),
    "batch": (LLAMA, 16, lambda s: Direct(s, batch=16)),
    "cached": (LLAMA, 1024, lambda s: Direct(s, shared=1024)),
    "continuous": (LLAMA, None, lambda s: Direct(s)),
    "chunked": (LLAMA, 256, lambda s: Direct(s, policy="chunked", chunk=256)),
    "disaggregated": (LLAMA, None, lambda s: Direct(s, policy="disaggregated")),
    "paged": (LLAMA, None, lambda s: Direct(s)),
    "tp": (LLAMA, 2, lambda s: Direct(s._replace(parallel=Parallel(tp=2)))),
    "pp": (LLAMA, 2, lambda s: Direct(s._replace(parallel=Parallel(pp=2)))),
    "cp": (LLAMA, 2, lambda s: Direct(s._replace(parallel=Parallel(cp=2)))),
    "offload": (LLAMA, 8, lambda s: Direct(s._replace(offload=Offload(8, False, 32e9)))),
    "engine": (SERVED, load_engine("sglang"), lambda s: Direct(s._replace(engine=load_engine("sglang")))),
    "ep": (MIXTRAL, 8, lambda s: Direct(s._replace(parallel=Parallel(ep=8)))),
    "gpu": (LLAMA, part("a100"), lambda s: Direct(setting(gpu="a100"), price=3.0)),
    "spec": (LLAMA, Guess(0.7, 4), lambda s: Direct(s, speedup=speculated(s, 0.7, 4))),
    "medusa": (LLAMA, (0.75, 0.5), lambda s: Direct(s, speedup=guessed(s))),
    "exit": (LLAMA, (0.1, 4), lambda s: Direct(s, speedup=left_early(s))),
}
"""By lever: a setting, the value, and the deployment that it leads to."""
ADDS_MEMORY = ("spec", "medusa")


def pulled(name: str, value: Any, plan: Deployment) -> Deployment:
    lever = LEVERS[name]
    return lever.change(plan, value) if lever.takes else lever.change(plan)


@pytest.mark.parametrize("name", CASES)
def test_a_lever_reaches_what_is_written_without_it(name: str) -> None:
    base, value, direct = CASES[name]
    unlike: dict[str, Any] = {"continuous": {"policy": "static"}, "paged": {"reserved": 4096}}.get(name, {})
    plan = deployment(base, **unlike)
    before = diagnose(plan)
    found = effect(before, name, LEVERS[name], pulled(name, value, plan))
    assert plan == deployment(base, **unlike), "a lever changes nothing in place"
    wanted, start = direct(base).figures(), evaluate(plan)
    for figure in FIGURES:
        after, was = wanted[figure], getattr(start, figure)
        if figure == "memory_bytes" and name in ADDS_MEMORY:
            assert getattr(found.after, figure) > after
            continue
        assert getattr(found.after, figure) == pytest.approx(after, rel=1e-12)
        assert after is not None
        assert found.gain(figure) == pytest.approx(was - after, rel=1e-9, abs=1e-15)


def test_every_lever_has_a_case_and_a_line_in_the_docs() -> None:
    assert set(CASES) == set(LEVERS)
    rows = re.findall(r"^\| `([^`=]+)[^`]*` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(LEVERS)
    for lever in LEVERS.values():
        assert set(lever.attacks) <= set(RESOURCES)
        kind = lever.price.partition(":")[0]
        assert kind in ("none", "quality", "training", "hardware", "latency", "assumed")


def test_a_draft_takes_its_memory() -> None:
    plan = pulled("medusa", (0.75, 0.5), deployment(LLAMA, batch=1))
    added = memory_of(plan, 1).weights - memory_of(deployment(LLAMA, batch=1), 1).weights
    assert added == 2 * 2 * (4096 * 4096 + 4096 * 32_000), "two heads of H·H + H·V in 16 bit"
    assert plan.drafting is not None
    assert plan.drafting.tokens == pytest.approx(2.125)  # seed ledger, sp.medusa


@pytest.mark.parametrize(
    ("name", "value", "base", "said"),
    [
        ("int8", None, setting(run=Run(recipe=find_recipe("gptq"))), "takes no fewer bytes"),
        ("fp4", None, LLAMA, "no FP4 units"),
        ("2:4", None, setting(gpu="mi250x"), "no units for 2:4"),
        ("2:4", None, setting(run=Run(recipe=find_recipe("q4_k_m"))), "a mix (q4_k_m)"),
        ("kv-fp8", None, setting(run=Run(kv=find_format("int4-g32"))), "takes no fewer bytes"),
        ("kv-fp8", None, setting("mamba-130m"), "takes no fewer bytes"),
        ("gqa", 8, setting("llama-3-8b"), "has 8 KV heads already"),
        ("gqa", 8, setting("deepseek-v3"), "no plain attention"),
        ("window", 4096, LLAMA, "no layer sees more than 2,304"),
        ("flash", None, LLAMA, "already"),
        ("fusion", None, LLAMA, "already"),
        ("batch", 4, LLAMA, "no fewer"),
        ("continuous", None, LLAMA, "already"),
        ("paged", None, LLAMA, "paged already"),
        ("model", load_model("llama-3-70b"), LLAMA, "no smaller"),
        ("model", load_model("whisper-tiny"), LLAMA, "encoder"),
        ("ep", 8, LLAMA, "no experts"),
        ("tp", 1, LLAMA, "already"),
        ("gpu", part("h100"), LLAMA, "already"),
        ("layers", 33, LLAMA, "cannot be kept"),
        ("layers", 32, LLAMA, "no more layers"),
        ("spec", Guess(1.5, 4), LLAMA, "between 0 and 1"),
        ("exit", (0.1, 32), LLAMA, "a check every 32"),
    ],
)
def test_what_does_not_apply_says_why(name: str, value: Any, base: Setting, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        pulled(name, value, deployment(base))


def test_drafts_beside_chunks_are_refused() -> None:
    plan = pulled("spec", Guess(0.7, 4), deployment(LLAMA, policy="chunked"))
    with pytest.raises(InputError, match="not modelled"):
        evaluate(plan)


@pytest.mark.parametrize(
    "model", ["llama-3-8b", "deepseek-v3", "mamba-130m", "whisper-large-v3", "jamba-v0.1"]
)
@pytest.mark.parametrize("policy", ["static", "continuous", "disaggregated", "chunked"])
def test_shares_are_of_a_whole(model: str, policy: str) -> None:
    plan = deployment(setting(model), policy=policy)
    if model == "whisper-large-v3":
        plan = plan._replace(work=plan.work._replace(encoder=1500))
    if plan.work.encoder and policy == "chunked":
        with pytest.raises(InputError, match="not modelled"):
            diagnose(plan)
        return
    found = diagnose(plan)
    assert found.decode is not None
    for shares in (found.prefill.shares, found.decode.shares, found.memory):
        assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
        assert set(shares) <= set(RESOURCES)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert found.share("decode", RESOURCES) == pytest.approx(1, abs=1e-12)


def test_shares_by_hand() -> None:
    """Without a clock an operation takes its floor: LLaMA-7B at B=1 on an A100 reads 13.21 GB of weights and
    0.54 GB of cache for a token at a context of 1,024, and nothing of it waits for arithmetic."""
    base = setting(gpu="a100")._replace(clock=None)
    shares = step_shares(base, Request(1023, 2).decode(1024))
    assert "arithmetic" not in shares
    # (6.738e9 - 32000·4096) 16-bit weights, and K and V rows of 1,024 tokens read, one of them written.
    read, cache = 2 * (6_738_415_616 - 32_000 * 4096), 2 * 32 * 4096 * 2 * 1024
    assert shares["cache"] / shares["weights"] == pytest.approx(cache / read, rel=0.003)


def test_a_host_is_a_share_of_its_own() -> None:
    """LLaMA-7B on vLLM: what a step takes longer than its kernels do."""
    alone, served = (diagnose(deployment(each, batch=1)) for each in (LLAMA, SERVED))
    assert "host" not in alone.prefill.shares
    assert 0 < served.share("decode", ("host",)) < 0.5
    step = Request(PROMPT, GEN).decode(PROMPT + 128)
    assert SERVED.engine is not None
    assert SERVED.engine.times is not None
    quick = SERVED._replace(engine=replace(SERVED.engine, times=SERVED.engine.times.without_host()))
    ratio = step_cost(quick, step).best / step_cost(SERVED, step).best
    assert step_shares(SERVED, step)["host"] == pytest.approx(1 - ratio, rel=1e-9)


def order(plan: Deployment, objective: str) -> list[str]:
    base, found = diagnose(plan), []
    for name, (_, value, _) in CASES.items():
        try:
            found.append(effect(base, name, LEVERS[name], pulled(name, value, plan)))
        except InputError:
            continue
    return [one.name for one in ranked(found, objective)]


def test_the_ranking_is_an_experts() -> None:
    alone = order(deployment(LLAMA, batch=1), "tpot")
    assert alone.index("int4") < alone.index("kv-int4"), "one short request reads weights"
    many = order(deployment(LLAMA, batch=16, policy="disaggregated"), "tpot")
    assert many.index("gqa") < many.index("int4"), "many long ones read their cache"
    first = order(deployment(LLAMA, batch=1, prompt=4096), "ttft")
    assert first.index("fp8") < first.index("int4"), "a prompt is arithmetic: 8-bit products, not 4-bit bytes"
    long = deployment(setting("llama-3-8b", run=Run(attention="eager")), batch=1, prompt=16384)
    assert order(long, "memory").index("flash") < order(long, "memory").index("kv-fp8")
    room = order(deployment(LLAMA, batch=4), "usd")
    assert room.index("batch") < room.index("tp"), "filling a GPU is cheaper than adding one"


def test_a_lever_beside_what_binds_says_so() -> None:
    plan = deployment(setting("llama-3-8b"), batch=1, prompt=512)
    base = diagnose(plan)
    off = effect(base, "kv-fp8", LEVERS["kv-fp8"], pulled("kv-fp8", None, plan))
    assert "attacks what does not bind the time per token (bound by the weights)" in reason(base, off, "tpot")
    on = effect(base, "int4", LEVERS["int4"], pulled("int4", None, plan))
    assert "does not bind" not in reason(base, on, "tpot")
    assert re.search(r"the weights: \d\d% of a token's time", reason(base, on, "tpot"))


def test_what_does_not_fit_comes_last() -> None:
    plan = deployment(setting("llama-3-70b", tp=4), batch=1)
    base = diagnose(plan)
    effects = [
        effect(base, name, LEVERS[name], pulled(name, value, plan))
        for name, value in (("gpu", part("l40s")), ("int4", None), ("kv-fp8", None))
    ]
    assert [one.fits for one in ranked(effects, "memory")] == [True, True, True]
    alone = deployment(setting("llama-3-70b"), batch=1)
    assert diagnose(alone).objective == "memory"
    base = diagnose(alone)
    effects = [effect(base, n, LEVERS[n], pulled(n, None, alone)) for n in ("kv-fp8", "fp8", "int4")]
    best, *_, worst = ranked(effects, "memory")
    assert (best.name, best.fits, worst.fits) == ("int4", True, False)


@settings(max_examples=25, deadline=None)
@given(
    prompt=st.integers(1, 1 << 15),
    batch=st.integers(1, 64),
    tp=st.sampled_from([1, 2, 4]),
    names=st.permutations(["int4", "kv-fp8", "gqa", "window"]),
)
def test_levers_on_different_things_go_in_any_order(
    prompt: int, batch: int, tp: int, names: list[str]
) -> None:
    values = {"gqa": 8, "window": 512}

    def after(order: list[str]) -> Deployment:
        plan = deployment(setting(tp=tp), batch, prompt)
        for name in order:
            if name != "window" or prompt > 512:
                plan = pulled(name, values.get(name), plan)
        return plan

    one, other = after(names), after(sorted(names))
    assert [getattr(evaluate(one), name) for name in FIGURES] == [
        getattr(evaluate(other), name) for name in FIGURES
    ]
    base = deployment(setting(tp=tp), batch, prompt)
    assert evaluate(one).memory_bytes < evaluate(base).memory_bytes
    most, least = largest_batch(one), largest_batch(base)
    assert most is None or (least is not None and most >= least)


def test_the_ladder_of_gpus_is_of_sheets_that_are_priced_and_measured() -> None:
    """`diagnose` ranks these unasked. MI300X stands for another vendor, though it is neither; a workstation's
    card is no rung of servers."""
    tries = LEVERS["gpu"].tries
    assert isinstance(tries, tuple)
    known = {name for name in calibrated_names() if load_gpu(name).price}
    assert {load_gpu(name).name for name in tries} == known - {"rtx-pro-6000-bw"} | {"mi300x"}
