"""`infercost speculate` of drafts and verify passes, and its walk-through."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.kv import cache_bill
from ..costmodel.memory import within_room
from ..costmodel.speculative import (
    KINDS,
    LOOKUP,
    OUTSIDE_LAYERS,
    Draft,
    DraftMemory,
    Round,
    Speculation,
    Verified,
    expected_tokens,
    fastest,
    free_tokens,
    layer_draft,
    medusa_draft,
    model_draft,
    operations,
    target_model,
)
from ..costmodel.speculative_methods import EAGER_HOST_US_PER_LAYER
from ..hardware.catalogue import load_gpu
from ..hardware.spec import Gpu
from ..models.catalogue import load_model
from ..models.spec import Model
from .flat import flat
from .inputs import (
    WhatIf,
    document,
    each_of,
    grid,
    inferred_notes,
    limit_notes,
    models,
    sources_of,
    without_constant,
)
from .output.report import Report, Table
from .room import too_much
from .runs import cards
from .sizes import token_list, tokens, words
from .speculate_guess import MOST_POINTS, Guess, guesses_of
from .speculate_options import DEFAULT_SEQ, Asked, between, ratios
from .text import count, plural, seconds, size, three

TRIED = 16
SHOWN = 8
LAYER_DRAFTS = ("mtp", "eagle")
MODEL_ONLY = ("draft", "seq", "tp", "draft_tp", "weights", "draft_weights", "kv_format", "host_us_per_layer")
CONVENTIONS = {
    "alpha": "probability that a drafted token is accepted, each by itself",
    "tokens_per_round": "expected: (1 - alpha^(gamma+1)) / (1 - alpha); of a tree, the sum over its nodes of "
    "the probability of their path, the root's 1",
    "speedup": "tokens_per_round x step_s / round_s, by expected times, else by floors; alpha is an "
    "assumption, and the draft's time to read a prompt is not in it",
    "round_s": "gamma draft passes, a verify pass of gamma + 1 tokens a sequence, and host work around them",
    "draft_cost": "a draft pass in steps of the target (c); verify_cost: the verify pass (v)",
    "break_even_draft_cost": "the draft_cost at which nothing is gained; below zero: no draft does",
    "free_tokens": "ridge x bytes per weight / 2: tokens of a pass up to which weights alone are the wait; a "
    "first estimate",
    "operations": "FLOPs per token over those of plain decoding",
    "host": f"a pass is the longer of its kernels and of launching its layers and {OUTSIDE_LAYERS} layers' "
    "worth outside them; a round adds those once more",
    "memory": "beside the target, over all ranks; kv_per_token_bytes of target and draft together",
    "mtp, eagle": "one layer like the target's last, after a 2H x H projection; embedding and head shared",
    "medusa": "each head H x H and H x V in 16 bit, one pass for all heads",
    "quality": "greedy: the same tokens but for floating-point order; sampling: the same distribution",
}


class Answer(NamedTuple):
    """One speculation, evaluated: of the draft length asked for, and of others."""

    guess: Guess
    tokens: float
    gamma: int
    verify_tokens: int
    speculation: Speculation | None
    kinds: dict[str, Round | None]
    best: Round
    lengths: list[tuple[int, int, Round]]
    verified: Verified | None = None

    @property
    def name(self) -> str:
        return self.speculation.draft.name if self.speculation else "a draft"


def rounds_report(asked: Asked) -> Report:
    """Rounds of drafts and verify passes."""
    guesses = guesses_of(asked)
    if asked.model is None:
        _refuse(asked, MODEL_ONLY)
        draft, verify = ratios(asked)
        answers = [_by_ratios(guess, draft, verify) for guess in guesses]
        return _report(asked, answers, [], [])
    _refuse(asked, ("draft_cost", "verify_cost"), "is without --model: with one it is computed")
    chosen = [target_model(one) for one in models(asked.model, WhatIf(), "speculate")]
    gpus = [load_gpu(name) for name in words(asked.gpu, "--gpu")]
    lengths = token_list(asked.seq or DEFAULT_SEQ, "--seq")
    answers = []
    recipes = each_of(asked.weights, "--weights")
    caches = each_of(asked.kv_format, "--kv")
    batches = token_list(asked.batch, "--batch")
    for one, device, many, length, recipe, cache, guess in grid(
        chosen, gpus, batches, lengths, recipes, caches, guesses, most=MOST_POINTS
    ):
        here = asked._replace(weights=recipe, kv_format=cache)
        answers.append(_by_models(here, one, device, many, length, guess))
    return _report(asked, answers, chosen, gpus)


def _refuse(asked: Asked, names: tuple[str, ...], why: str = "needs --model") -> None:
    for name in asked.given():
        if name in names:
            raise InputError(f"--{name.replace('_', '-').removesuffix('-format')} {why}")


def _by_ratios(guess: Guess, draft: float, verify: float) -> Answer:
    """With costs given in steps of the target."""

    def at(gamma: int) -> Round:
        assert guess.alpha is not None
        return Round(expected_tokens(guess.alpha, gamma), gamma, draft, verify)

    lengths: list[tuple[int, int, Round]] = []
    gamma = guess.gamma
    if guess.alpha is not None:
        every = range(1, max(TRIED, gamma or 0) + 1)
        lengths = [(each, each + 1, at(each)) for each in every]
        gamma = gamma or max(lengths, key=lambda each: (each[2].speedup, -each[0]))[0]
    assert gamma is not None
    found = guess.tokens if guess.tokens is not None else at(gamma).tokens
    heads = guess.alpha is None and guess.tree is not None
    best = Round(found, 1 if heads else gamma, draft, verify)
    return Answer(guess, found, gamma, guess.tree or gamma + 1, None, {}, best, lengths)


def _by_models(asked: Asked, model: Model, gpu: Gpu, batch: int, context: int, guess: Guess) -> Answer:
    """With costs computed of a target and what drafts for it."""
    target = asked.setting(model, gpu)
    host = (
        0.0
        if asked.host_us_per_layer is None
        else between(asked.host_us_per_layer, "--host-us-per-layer", 0, 1e6)
    )
    found = Speculation(target, _draft(asked, target.model, gpu, guess), batch, context, host * 1e-6)
    others: list[Verified] = []
    if guess.alpha is not None:
        others = found.lengths(guess.alpha, range(1, max(TRIED, guess.gamma or 0) + 1))
        chosen = fastest(others) if guess.gamma is None else others[guess.gamma - 1]
    else:
        assert guess.tokens is not None
        assert guess.gamma is not None
        assert guess.tree is not None
        chosen = found.verified(guess.tokens, guess.gamma, guess.tree, found.passes(guess.tree))
    lengths = [(int(each.gamma), each.verify_tokens, each.best) for each in others]
    return Answer(
        guess,
        chosen.best.tokens,
        int(chosen.gamma),
        chosen.verify_tokens,
        found,
        chosen.rounds,
        chosen.best,
        lengths,
        chosen,
    )


def _draft(asked: Asked, model: Model, gpu: Gpu, guess: Guess) -> Draft:
    target = asked.setting(model, gpu)
    if asked.medusa is not None:
        assert guess.gamma is not None
        return medusa_draft(target, guess.gamma)
    if asked.draft is None:
        raise InputError("speculate needs --draft: a model, mtp, eagle or lookup; or --medusa")
    own = next((name for name in ("draft_weights", "draft_tp") if name in asked.given()), None)
    if asked.draft in (*LAYER_DRAFTS, "lookup") and own is not None:
        raise InputError(
            f"--{own.replace('_', '-')} is of a draft model; {asked.draft} runs as the target does"
        )
    if asked.draft in LAYER_DRAFTS:
        return layer_draft(target, asked.draft)
    if asked.draft == "lookup":
        return LOOKUP
    drafter = target_model(load_model(asked.draft))
    ranks = asked.ranks() if asked.draft_tp is None else tokens(asked.draft_tp, "--draft-tp")
    return model_draft(asked._replace(weights=asked.draft_weights).setting(drafter, gpu, ranks))


def _report(asked: Asked, answers: list[Answer], chosen: list[Model], gpus: list[Gpu]) -> Report:
    points = [_point(asked, answer) for answer in answers]
    listed = len(points) > 1
    sources = sources_of(gpus, chosen)
    drafts = {
        a.speculation.draft.setting.model for a in answers if a.speculation and a.speculation.draft.setting
    }
    sources |= {one.name: one.source for one in drafts}
    inputs = {"command": "speculate", "medusa": asked.medusa, "calibration": asked.calibration}
    final = _sweep(answers, points) if listed else _screen(asked, answers[0], points[0])
    final.document = document("speculate", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = (
        [_flat(point) for point in points] if listed else points[0]["lengths"] or [_flat(points[0])]
    )
    final.quiet = [repr(answer.best.speedup) for answer in answers]
    return final


def _point(asked: Asked, answer: Answer) -> dict[str, Any]:
    best, found = answer.best, answer.speculation
    inputs: dict[str, Any] = {
        "alpha": answer.guess.alpha,
        "accepted": asked.accepted,
        "gamma": answer.guess.gamma,
        "tree": answer.guess.tree,
    }
    if found is None:
        inputs |= {"draft_cost": best.draft, "verify_cost": best.verify}
    else:
        setting = found.draft.setting
        inputs |= {
            "model": found.target.model.name,
            "draft": found.draft.name,
            "gpu": found.target.gpu.name,
            "batch": found.batch,
            "seq": found.context,
            "weights": found.target.recipe.name,
            "draft_weights": setting.recipe.name if setting else None,
            "kv": found.target.run.kv.name,
            "tp": found.target.parallel.tp,
            "host_us_per_layer": found.host_s * 1e6,
        }
    out: dict[str, Any] = {
        "inputs": inputs,
        "gamma": answer.gamma,
        "tokens_per_round": answer.tokens,
        "verify_tokens": answer.verify_tokens,
        "speedup": best.speedup,
        "draft_cost": best.draft / best.step,
        "verify_cost": best.verify / best.step,
        "drafting_steps": best.passes * best.draft / best.step,
        "break_even_draft_cost": best.break_even_draft,
        "draft_cost_of_one_step": 1 / best.passes if best.passes else None,
        "operations": _operations(answer),
    }
    if answer.lengths:
        top = max(answer.lengths, key=lambda each: (each[2].speedup, -each[0]))
        out |= {"best_gamma": top[0], "best_speedup": top[2].speedup}
    if found is not None and answer.verified is not None:
        confidence = answer.verified.passes.verify.confidence
        held = found.rank_bytes(answer.verify_tokens)
        out |= {
            "speedups": {k: r and r.speedup for k, r in answer.kinds.items()},
            "step_s": {k: r and r.step for k, r in answer.kinds.items()},
            "draft_s": {k: r and r.draft for k, r in answer.kinds.items()},
            "verify_s": {k: r and r.verify for k, r in answer.kinds.items()},
            "round_s": {k: r and r.cost for k, r in answer.kinds.items()},
            "confidence": confidence.as_json() if confidence else None,
            "output_tokens_per_s": found.batch * best.tokens / best.cost,
            "pass_tokens": found.batch * answer.verify_tokens,
            "free_tokens": free_tokens(found.target),
            "memory": {f"{k}_bytes": v for k, v in found.memory()._asdict().items()},
            "rank_bytes": held,
            "fits": within_room(held, found.target.gpu.capacity_bytes),
        }
    out["lengths"] = [
        {
            "gamma": gamma,
            "tokens_per_round": one.tokens,
            "verify_tokens": verify,
            "verify_cost": one.verify / one.step,
            "draft_cost": one.draft / one.step,
            "speedup": one.speedup,
        }
        for gamma, verify, one in answer.lengths
    ]
    return out


def _operations(answer: Answer) -> float:
    """FLOPs per token; without models a pass has FLOPs as it has time."""
    best = answer.best
    if answer.verified is None:
        return operations(answer.tokens, best.passes, best.draft, answer.verify_tokens)
    passes = answer.verified.passes
    each = float(passes.draft.matmul_flops / passes.plain.matmul_flops) if passes.draft else 0.0
    return operations(answer.tokens, best.passes, each, answer.verify_tokens)


def _screen(asked: Asked, answer: Answer, point: dict[str, Any]) -> Report:
    best, found = answer.best, answer.speculation
    drafted = f"{plural(answer.gamma, 'token')} drafted a round"
    if answer.guess.gamma is None:
        drafted += " (the best)"
    sure = f", acceptance {answer.guess.alpha:.3g}" if answer.guess.alpha is not None else ""
    head = f"{best.speedup:.2f}x, {answer.tokens:.2f} tokens a round; {drafted}{sure}"
    notes: list[str] = []
    tables: list[Table] = []
    if found is None:
        head += f"; a draft pass costs {best.draft:g} of a step, a verify pass {best.verify:g}"
    else:
        head = f"{_who(answer)}: {head}"
        tables.append(_round_table(answer))
        notes += limit_notes([(found.target.model, found.context)]) + inferred_notes(found.target.model)
        notes += _model_notes(asked, answer, point)
    if answer.lengths:
        tables.append(_length_table(answer))
    if answer.lengths and point["best_gamma"] != answer.gamma:
        top = point["best_gamma"]
        notes.append(f"the best of 1 to {len(answer.lengths)} drafted is {top}: {point['best_speedup']:.2f}x")
    even = best.break_even_draft
    if even is not None:
        if even < 0:
            notes.append("not even a free draft gains: the verify pass costs more than the tokens it yields")
        else:
            several = (
                f"; {answer.gamma} of them are one step at {1 / best.passes:.3f}" if best.passes > 1 else ""
            )
            notes.append(f"nothing is gained at a draft pass of {even:.3f} of a step{several}")
    notes.append(
        f"{point['operations']:.2f} times the FLOPs of plain decoding; greedy tokens are the same but for "
        "rounding, sampled ones of the same distribution"
    )
    return Report({}, [head], tables, notes)


def _who(answer: Answer) -> str:
    found = answer.speculation
    assert found is not None
    many = f", batch {count(found.batch)}" if found.batch > 1 else ""
    return f"{found.target.model.called} with {answer.name}{many}, on {cards(found.target)}"


def _round_table(answer: Answer) -> Table:
    """A line a part of the round, and what plain steps take for as many tokens."""
    table = Table(("a round", *KINDS), "<>>>")
    kinds = [answer.kinds[kind] for kind in KINDS]
    best = answer.best

    def line(label: str, values: list[float | None]) -> None:
        table.rows.append((label, *(seconds(value) for value in values)))

    if best.passes:
        times = f" x {three(best.passes) if best.passes % 1 else count(int(best.passes))}"
        line(f"draft pass{times}", [r and r.draft * r.passes for r in kinds])
    line(f"verify pass of {plural(answer.verify_tokens, 'token')}", [r and r.verify for r in kinds])
    if best.around:
        line("host around them", [r and r.around for r in kinds])
    line("the round", [r and r.cost for r in kinds])
    line(f"{answer.tokens:.2f} plain steps", [r and r.tokens * r.step for r in kinds])
    table.rows.append(("speed-up", *(f"{r.speedup:.2f}x" if r else "-" for r in kinds)))
    return table


def _length_table(answer: Answer) -> Table:
    """A line a draft length: the short ones, and the one that was chosen."""
    table = Table(("drafted", "tokens a round", "verify / step", "speed-up"), ">>>>")
    for gamma, _, one in answer.lengths:
        if gamma <= SHOWN or gamma == answer.gamma:
            mark = " <" if gamma == answer.gamma else "  "
            table.rows.append(
                (
                    count(gamma),
                    f"{one.tokens:.2f}",
                    f"{one.verify / one.step:.2f}",
                    f"{one.speedup:.2f}x{mark}",
                )
            )
    return table


def _model_notes(asked: Asked, answer: Answer, point: dict[str, Any]) -> list[str]:
    found, verified = answer.speculation, answer.verified
    assert found is not None
    assert verified is not None
    got = point["inputs"]
    free, passed = point["free_tokens"], point["pass_tokens"]
    state = "below" if passed < free else "beyond"
    memory = DraftMemory(*point["memory"].values())
    notes = [
        f"context {count(got['seq'])}; weights {got['weights']}, KV {got['kv']}"
        + (f", draft {got['draft_weights']}" if got["draft_weights"] else ""),
        f"the verify pass has {plural(passed, 'token')}, {state} the {three(free)} up to which weights alone "
        f"are the wait; it costs {answer.best.verify / answer.best.step:.2f} of a step",
    ]
    if memory.weights:
        cache = f", cache {size(memory.cache)}" if memory.cache else ""
        notes.append(f"the draft takes {size(memory.weights)} of weights{cache} beside the target")
    if point["fits"] is False:
        over = too_much(point["rank_bytes"], found.target.gpu)
        notes.append(f"does not fit: {over}; times are as if it did")
    if memory.shared:
        notes.append(f"embedding and head are the target's: copies of its own would be {size(memory.shared)}")
    if cache_bill(found.target.model, 1, 1, found.target.run.kv).state_bytes:
        notes.append(
            "note: a recurrent state is not cut back as a cache is: engines keep one for each drafted token, "
            "which is not counted"
        )
    setting = found.draft.setting
    if setting is not None and setting.model.vocab != found.target.model.vocab:
        notes.append(
            f"note: {setting.model.name} has a vocabulary of {count(setting.model.vocab)}, the target of "
            f"{count(found.target.model.vocab)}: drafts are of one tokenizer with their target"
        )
    if asked.host_us_per_layer is None:
        eager = found._replace(host_s=EAGER_HOST_US_PER_LAYER * 1e-6)
        slow = eager.verified(answer.tokens, answer.gamma, answer.verify_tokens, verified.passes)
        notes.append(
            f"kernels only, as CUDA graphs replay them; launched by PyTorch at {EAGER_HOST_US_PER_LAYER:g} "
            "us a layer (--host-us-per-layer) it is "
            f"{slow.best.speedup:.2f}x"
        )
    else:
        notes.append(f"the host launches a layer in {asked.host_us_per_layer:g} us, draft and target")
    confidence = point["confidence"]
    notes.append(f"times: {confidence['text']}" if confidence else "no calibration asked for: floors only")
    return notes


def _sweep(answers: list[Answer], points: list[dict[str, Any]]) -> Report:
    columns = ("model", "draft", "gpu", "weights", "KV", "batch", "context", "acceptance", "drafted")
    table = Table((*columns, "tokens a round", "draft / step", "verify / step", "speed-up"), "<<<<<>>>>>>>>")
    for answer, point in zip(answers, points, strict=True):
        got, best = point["inputs"], answer.best
        alpha = answer.guess.alpha
        table.rows.append(
            (
                got.get("model", "-"),
                got.get("draft", "-"),
                got.get("gpu", "-"),
                got.get("weights", "-"),
                got.get("kv", "-"),
                count(got["batch"]) if "batch" in got else "-",
                count(got["seq"]) if "seq" in got else "-",
                f"{alpha:.3g}" if alpha is not None else "-",
                count(answer.gamma) + (" (best)" if answer.guess.gamma is None else ""),
                f"{answer.tokens:.2f}",
                f"{best.draft / best.step:.3f}",
                f"{best.verify / best.step:.2f}",
                f"{best.speedup:.2f}x",
            )
        )
    table, notes = without_constant(table, columns)
    low, high = min(a.best.speedup for a in answers), max(a.best.speedup for a in answers)
    notes.append(
        "speed-ups of expected tokens: acceptance is an assumption; kernels only unless a host is given"
    )
    return Report({}, [f"{low:.2f}x to {high:.2f}x over {plural(len(points), 'point')}"], [table], notes)


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    """A point as one CSV row: the length asked for, and the one chosen."""
    asked = point["inputs"]
    named = {**point, "inputs": asked | {"chosen_gamma": point["gamma"]}}
    return flat(named, ("gamma", "lengths", *asked))
