"""Many requests: caches in blocks, slots that are refilled, prompts in chunks."""

from __future__ import annotations

from ... import InputError
from ...costmodel.batching import Lengths, harmonic
from ...costmodel.chunking import chunk_bill, ridge_tokens
from ...costmodel.kv import BLOCK_TOKENS, Allocation, allocate, cache_groups
from ...costmodel.memory import SHARE
from ...costmodel.serving import Steady, Workload, steady, usd_per_million
from ..text import count, number, percent, seconds, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line

CHUNK = 256
MOST_TOKENS = 1 << 18


def allocations(case: Case) -> tuple[Allocation, Allocation]:
    """The cache reserved for the longest request (the model's context), and in blocks."""
    longest = max(case.model.context or 2048, case.tokens)
    reserved, paged = (
        allocate(
            case.model, policy, case.tokens, case.batch, case.kv, BLOCK_TOKENS, longest, encoder=case.encoder
        )
        for policy in ("static", "paged")
    )
    return reserved, paged


def at_once(case: Case, taken: Allocation) -> int:
    """Sequences whose caches fit beside the weights in the budget.

    Raises InputError for a sheet without a capacity.
    """
    capacity = case.gpu.capacity_bytes
    if capacity is None:
        raise InputError(f"{case.gpu.name} has no memory capacity on its sheet")
    pool = int(capacity * SHARE) - case.weights().weight_bytes
    each = taken.allocated_bytes / case.batch
    return max(0, int(pool / each)) if each else 0


def pagedattention(asked: Asked) -> Explained:
    case = asked.at(tokens=1000)
    reserved, paged = allocations(case)
    caches = cache_groups(case.model)
    formula, letters = (
        "U / A",
        (
            Letter("U", case.cache().logical_bytes, "bytes in use", "bytes"),
            Letter("A", paged.allocated_bytes, f"bytes of whole blocks of {BLOCK_TOKENS} tokens", "bytes"),
        ),
    )
    cache = caches[0][0]
    if len(caches) == 1 and cache.grows and not cache.capped and not cache.state:
        formula = "T / (ceil(T/s)·s)"
        letters = (Letter("T", case.tokens, "tokens"), Letter("s", BLOCK_TOKENS, "tokens of a block"))
    return Explained(
        case,
        formula,
        letters,
        paged.utilisation,
        "share",
        "PagedAttention, arXiv 2309.06180; seed 001, section 3; seed ledger, pg.waste and pg.concat",
        bill=(
            Line("cache allocated", "bytes", reserved.allocated_bytes, paged.allocated_bytes),
            Line("of it in use", "share", reserved.utilisation, paged.utilisation),
            Line("waste, on average", "bytes", reserved.waste_average_bytes, paged.waste_average_bytes),
            Line("waste, at most", "bytes", reserved.waste_max_bytes, paged.waste_max_bytes),
            Line("sequences at once", "", at_once(case, reserved), at_once(case, paged)),
        ),
        sides=("reserved", "paged"),
        differs=f"no waste is half a block a sequence: {size(paged.waste_average_bytes)} on average; a "
        "cache that is concatenated at every token copies all of it each time: see "
        "hugging-face-transformers",
        price="attention reads through a block table; kernels of their own do that",
        commands=(
            case.command(
                "kv",
                "--seq",
                case.tokens,
                "--block",
                BLOCK_TOKENS,
                "--max-len",
                max(case.model.context or 2048, case.tokens),
            ),
        ),
    )


def policies(case: Case, names: tuple[str, ...], kind: str, chunk: int = CHUNK) -> list[Steady]:
    """Steady states of the case's requests under schedules."""
    work = Workload(Lengths(kind, case.tokens, case.gen), encoder=case.encoder).checked()
    return [steady(name, case.setting, work, case.batch, chunk=chunk) for name in names]


def compared(case: Case, before: Steady, after: Steady) -> list[Line]:
    """Two steady states side by side."""
    lines = [
        Line("slot steps with a token", "share", before.used, after.used),
        Line("output tokens per second", "tokens/s", before.output_tokens_per_s, after.output_tokens_per_s),
        Line("time to first token", "s", before.ttft_s, after.ttft_s),
    ]
    if before.tpot_s is not None and after.tpot_s is not None:
        lines.append(Line("time per output token", "s", before.tpot_s, after.tpot_s))
    lines.append(Line("longest usual gap between tokens", "s", before.gap_s, after.gap_s))
    price = case.gpu.price
    if price:
        dollars = (
            usd_per_million(price.usd_per_hour, s.devices, s.output_tokens_per_s) for s in (before, after)
        )
        lines.append(Line("a million output tokens", "$", *dollars))
    return lines


def continuous_batching(asked: Asked) -> Explained:
    case = asked.at(tokens=512, batch=8, gen=128)
    static, refilled = policies(case, ("static", "continuous"), "exponential")
    lengths = Lengths("exponential", case.tokens, case.gen)
    uniform = Lengths("uniform", case.tokens, case.gen).limit(case.batch)
    letters = (Letter("H", harmonic(case.batch), f"1 + 1/2 + ... + 1/{count(case.batch)}"),)
    return Explained(
        case,
        "1 / H",
        letters,
        lengths.limit(case.batch),
        "share",
        "Orca, OSDI 2022, section 3; seed 001, section 3; seed ledger, cb.static",
        bill=tuple(compared(case, static, refilled)),
        sides=("static", "continuous"),
        differs="of a static batch's slots so much yields a token, where outputs are exponential and "
        f"long ({percent(static.used)} at a mean of {count(case.gen)}; uniform ones "
        f"{percent(uniform or 1)}); refilling gains at most {number(1 / static.used)} times. Intensity "
        "rises with the batch, but not for ever: the cache grows with it",
        price=f"a new request's prefill makes the others wait: a gap of {seconds(refilled.gap_s)}",
        commands=(_serve(case, "--lengths", "exponential", "--policy", "static,continuous"),),
    )


def _serve(case: Case, *words: object) -> str:
    args = ("--prompt", case.tokens, "--gen", case.gen, "--batch", case.batch)
    return case.command("serve", *args, *words)


def splitfuse(asked: Asked) -> Explained:
    case = asked.at(tokens=8192, batch=8)
    if case.tokens > MOST_TOKENS:
        raise InputError(f"explain splitfuse: prompts of up to {MOST_TOKENS:,} tokens, not {case.tokens:,}")
    work = Workload(Lengths("fixed", case.tokens, case.gen)).checked()
    whole, riding = policies(case, ("continuous", "chunked"), "fixed")
    chunk = min(CHUNK, case.tokens)
    cut, once = chunk_bill(case.setting, work, chunk), chunk_bill(case.setting, work, case.tokens)
    bill = case._replace(batch=1).weights()
    ridge_at = ridge_tokens(case.setting) * 2 * bill.active_parameters / bill.weight_bytes
    letters = (
        Letter("I", ridge_at, f"ridge of {case.gpu.title} in the products' types", "FLOP/byte"),
        Letter(
            "b", bill.weight_bytes / bill.active_parameters, "bytes of a weight for each that a token uses"
        ),
    )
    return Explained(
        case,
        "I·b / 2",
        letters,
        ridge_tokens(case.setting),
        "tokens",
        "DeepSpeed-FastGen, arXiv 2401.08671; Sarathi-Serve, arXiv 2403.02310; seed 001, section 3; seed "
        "ledger, cb.splitfuse",
        bill=(
            Line("passes over the weights, a prompt", "", once.pieces, cut.pieces),
            Line("reading them, a prompt", "s", once.weights_s, cut.weights_s),
            Line("cache rows read again", "bytes", once.reread_bytes, cut.reread_bytes),
            Line("prefill alone", "s", once.chunked_s, cut.chunked_s),
            *compared(case, whole, riding),
        ),
        sides=("whole prompts", f"chunks of {count(chunk)}"),
        differs=f"a chunk shorter than this waits for its weights; one of {count(chunk)} "
        f"{'hides' if cut.hidden else 'does not hide'} them: {seconds(cut.weights_s)} of reads beside "
        f"{seconds(cut.linear_s + cut.attention_s)} of arithmetic",
        price=f"{size(cut.reread_bytes)} of cache read again, and a prompt that takes "
        f"{number(cut.chunked_s / once.chunked_s)} times as long alone",
        commands=(_serve(case, "--chunk", CHUNK, "--policy", "chunked"),),
    )
