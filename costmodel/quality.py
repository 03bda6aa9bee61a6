"""Published quality figures of quantised models: quoted, not predicted; each with its source.

Only what its source gives for this very model and format is here; nothing is carried over to another.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A figure of one format: `value`, that of 16 bit, and the change; None where the source gives the change
    alone. `better` is higher or lower."""

    format: str
    metric: str
    better: str
    value: float | None
    wide: float | None
    change: float
    source: str


class _Study(NamedTuple):
    """`figures`: for a model, the 16-bit figure and those of formats; `wide` None: figures are changes."""

    metric: str
    better: str
    source: str
    figures: dict[str, tuple[float | None, dict[str, float]]]


_STUDIES = (
    _Study(
        "AlpacaFarm win rate after ShareGPT tuning, %",
        "higher",
        "LLMBook (Zhao et al.), Table 9.3, with bitsandbytes",
        {
            "llama-7b": (72.05, {"bnb-int8": 72.86, "llm-int8": 72.86, "bnb-nf4": 70.31}),
            "llama-13b": (75.59, {"bnb-int8": 73.79, "llm-int8": 73.79, "bnb-nf4": 71.99}),
        },
    ),
    _Study(
        "WikiText-2 perplexity",
        "lower",
        "AWQ, arXiv 2306.00978, Table 4 (INT4, groups of 128)",
        {
            "llama-7b": (5.68, {"gptq": 6.22, "awq": 5.78}),
            "llama-13b": (5.09, {"gptq": 5.23, "awq": 5.19}),
            "llama-65b": (3.53, {"gptq": 3.66, "awq": 3.62}),
            "llama-2-7b": (5.47, {"gptq": 5.69, "awq": 5.60}),
            "llama-2-13b": (4.88, {"gptq": 4.98, "awq": 4.97}),
            "llama-2-70b": (3.32, {"gptq": 3.42, "awq": 3.41}),
        },
    ),
    _Study(
        "WikiText-2 perplexity, 512 tokens",
        "lower",
        "SmoothQuant, arXiv 2211.10438, LLaMA (a = 0.8, activations by token)",
        {
            "llama-7b": (11.51, {"smoothquant": 11.56}),
            "llama-13b": (10.05, {"smoothquant": 10.08}),
            "llama-65b": (6.17, {"smoothquant": 6.20}),
        },
    ),
    _Study(
        "WikiText-2 perplexity, change",
        "lower",
        "llama.cpp, tools/quantize/quantize.cpp (ppl @ Llama-3-8B)",
        {
            "llama-3-8b": (
                None,
                {
                    "q8_0": 0.0026,
                    "q6_k": 0.0217,
                    "q5_k_m": 0.0569,
                    "q5_k_s": 0.1049,
                    "q5_1": 0.1062,
                    "q5_0": 0.1316,
                    "q4_k_m": 0.1754,
                    "q4_k_s": 0.2689,
                    "q4_1": 0.4511,
                    "q4_0": 0.4685,
                    "q3_k_l": 0.5562,
                    "q3_k_m": 0.6569,
                    "q3_k_s": 1.6321,
                    "q2_k": 3.5199,
                },
            )
        },
    ),
)


def published(model: str, formats: list[str]) -> list[Figure]:
    """The figures known of a model in these formats (recipes or schemes), study by study."""
    found = []
    for study in _STUDIES:
        wide, figures = study.figures.get(model, (None, {}))
        for name in formats:
            if name in figures:
                value = figures[name]
                change = value if wide is None else value - wide
                shown = None if wide is None else value
                found.append(Figure(name, study.metric, study.better, shown, wide, change, study.source))
    return found
