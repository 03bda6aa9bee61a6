"""What an engine that tries out its widest step before it sizes the pool holds at that moment, beyond the
kernels' own activations: the sampler's copies of the scores, the workspaces of experts; and the padding of
experts' weights that its kernels ask for.

Formulas as in vLLM's source; held to its logs of 0.6 to 0.31 (tests/golden/vllm_memory.csv).
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware.engine import EngineMemory
from ..models.dimensions import rounded_up
from ..models.ffn import Experts
from ..models.formats import find_format
from ..models.tensor import Tensor
from .engines import How
from .step import Plan

MXFP4 = find_format("mxfp4")


def sampled_bytes(plan: Plan, vocab: int, memory: EngineMemory, how: How) -> int:
    """Bytes while a full step of tokens is sampled from: its last hidden state, and `sampler_bytes` for each
    word of the `vocab` of each sequence that a step may have.

    Every rank samples from all words: logits are gathered. 15 bytes: a score in 16 bit, its copy in fp32, the
    probabilities and the noise in fp32, a mask. Source: vLLM, v1/worker/gpu_model_runner.py profile_run and
    _dummy_sampler_run (min(tokens, max_num_seqs) rows), v1/sample/sampler.py; the sum is a fit to logs.
    """
    if not plan.model.output_end:
        return 0
    rows = min(how.in_flight, how.sequences)
    hidden = how.in_flight * plan.model.hidden * plan.activation_bytes
    return int(hidden + rows * vocab * memory.sampler_bytes)


def workspace_bytes(plan: Plan, how: How) -> int:
    """Bytes of the two workspaces that the experts of all layers share and that stay: tokens x top_k rows as
    wide as gate and up together, or the hidden state, and as wide as their product, or the hidden state.

    None for MXFP4, whose kernels bring their own. Source: vLLM, model_executor/layers/fused_moe
    (TritonExperts.workspace_shapes: workspace13, workspace2), v1/worker/workspace.py.
    """
    most = 0
    for layer, _ in plan.model.groups:
        for block in layer.blocks:
            if not isinstance(block, Experts) or _in_mxfp4(plan, block):
                continue
            both = max((2 if block.gated else 1) * block.width, plan.model.hidden)
            rows = how.in_flight * block.top_k
            most = max(most, rows * (both + max(block.width, plan.model.hidden)) * plan.activation_bytes)
    return int(most)


def padding_bytes(plan: Plan, memory: EngineMemory) -> int:
    """Bytes that experts in MXFP4 take beyond the checkpoint's: width and hidden size are rounded up.

    Source: vLLM, model_executor/layers/quantization/mxfp4.py Mxfp4MoEMethod.create_weights (Marlin: 128 and
    256; Triton on Hopper pads the inner size alone, the backends of Blackwell both to 256).
    """
    extra = 0
    hidden = rounded_up(plan.model.hidden, memory.mxfp4_hidden)
    for layer, times in plan.model.groups:
        for block in layer.blocks:
            if isinstance(block, Experts) and _in_mxfp4(plan, block):
                padded = replace(block, width=rounded_up(block.width, memory.mxfp4_width))
                extra += times * (_bytes(padded, hidden) - _bytes(block, plan.model.hidden))
    return extra


def _in_mxfp4(plan: Plan, block: Experts) -> bool:
    routed = _routed(block, plan.model.hidden)
    return all(plan.recipe.format(tensor, 0, plan.model).name == MXFP4.name for tensor in routed)


def _routed(block: Experts, hidden: int) -> list[Tensor]:
    """Matrices of the routed experts."""
    return [t for t in block.tensors(hidden) if t.component == "experts" and t.kind == "linear"]


def _bytes(block: Experts, hidden: int) -> int:
    return sum(t.copies * MXFP4.matrix_bytes(t.rows, t.cols) for t in _routed(block, hidden))
