"""A stack of a model's real layers with random weights: what the sum of the parts says of the whole.

Llama-like models only: RMSNorm, grouped attention with rotary positions, a gated MLP. One token for
each sequence against a full cache (`e2e.decode`), or a whole prompt (`e2e.prefill`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..costmodel.forward import ops
from ..costmodel.kv import cache_bill
from ..costmodel.op import Op
from ..costmodel.step import Plan, Run, Step, decode, prefill
from ..costmodel.weights import weight_bill
from ..models.attention import Attention
from ..models.ffn import Dense
from ..models.formats import find_format
from ..models.recipes import find_recipe
from ..models.spec import Model
from .kernels import CannotRunError
from .target import Target, torch_module

CPU_LAYERS, CUDA_LAYERS = 2, 32
MEMORY_SHARE = 0.5


class Stack:
    """`layers` layers of a model on a device, in the type that is probed there."""

    def __init__(self, model: Model, batch: int, seq: int, target: Target) -> None:
        most = CPU_LAYERS if target.kind == "cpu" else CUDA_LAYERS
        layers = model.layers[:most]
        if any(layer != layers[0] for layer in layers):
            raise CannotRunError(f"{model.name}: its first {len(layers)} layers are not all alike")
        blocks = layers[0].blocks
        plain = len(blocks) == 2 and isinstance(blocks[0], Attention) and isinstance(blocks[1], Dense)
        if not plain:
            raise CannotRunError(f"{model.name} is not a plain stack of attention and a gated MLP")
        attention, mlp = blocks
        assert isinstance(attention, Attention)
        assert isinstance(mlp, Dense)
        if not mlp.gated or attention.window is not None or attention.v_width != attention.head_dim:
            raise CannotRunError(f"{model.name}: windows, ungated MLPs and other widths of V are not stacked")
        if attention.qk_norm or attention.bias or attention.sinks or attention.gated:
            raise CannotRunError(f"{model.name}: norms of q and k, biases, sinks and gates are not stacked")
        self.model = replace(model, layers=layers, input_end=False, output_end=False)
        self.attention, self.mlp, self.target = attention, mlp, target
        self.batch, self.seq = batch, seq
        self.dtype = "fp32" if target.kind == "cpu" else "bf16"
        self.torch: Any = torch_module()
        self._refuse_too_large()
        self._weights = [self._layer() for _ in self.model.layers]

    def _refuse_too_large(self) -> None:
        fmt, tokens = find_format(self.dtype), self.seq
        needed = weight_bill(self.model, find_recipe(self.dtype)).weight_bytes
        needed += cache_bill(self.model, tokens, self.batch, fmt).logical_bytes
        if needed > MEMORY_SHARE * self.target.memory_bytes:
            raise CannotRunError(
                f"{len(self.model.layers)} layers take {needed / 1e9:.1f} GB, more than half of what is free"
            )

    def ops(self, phase: str) -> tuple[Op, ...]:
        """The same layers in the cost model."""
        step: Step = (prefill if phase == "prefill" else decode)(self.batch, self.seq)
        run = Run(recipe=find_recipe(self.dtype), kv=find_format(self.dtype))
        return ops(Plan(self.model, step, run, self.target.gpu))

    def launch(self, phase: str) -> Callable[[], Any]:
        """One pass through every layer."""
        new = self.seq if phase == "prefill" else 1
        x = self._random(self.batch, new, self.model.hidden)
        cos, sin = self._angles(new)

        def run() -> Any:
            y = x
            for weights in self._weights:
                y = self._forward(y, weights, cos, sin, new)
            return y

        return run

    def _random(self, *shape: int) -> Any:
        dtype = self.torch.float32 if self.dtype == "fp32" else self.torch.bfloat16
        return (self.torch.randn(*shape, device=self.target.spec) * 0.02).to(dtype)

    def _layer(self) -> dict[str, Any]:
        a, hidden = self.attention, self.model.hidden
        shape = (self.batch, a.kv_heads, self.seq, a.head_dim)
        return {
            "qkv": self._random((a.heads + 2 * a.kv_heads) * a.head_dim, hidden),
            "o": self._random(hidden, a.heads * a.head_dim),
            "gate_up": self._random(2 * self.mlp.width, hidden),
            "down": self._random(hidden, self.mlp.width),
            "norm": self._random(2, hidden),
            "k": self._random(*shape),
            "v": self._random(*shape),
        }

    def _angles(self, new: int) -> tuple[Any, Any]:
        torch, half = self.torch, self.attention.head_dim // 2
        place = torch.arange(self.seq - new, self.seq, device=self.target.spec, dtype=torch.float32)
        rates = 10000.0 ** (-torch.arange(half, device=self.target.spec, dtype=torch.float32) / half)
        angles = place[:, None] * rates
        like = self._weights[0]["qkv"].dtype
        signed = torch.cat((-angles.sin(), angles.sin()), -1)
        return torch.cat((angles, angles), -1).cos().to(like), signed.to(like)

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        """x·cos + (its halves swapped)·sin, the sine negative in the left half: three launches."""
        return self.torch.addcmul(x * cos, x.roll(self.attention.head_dim // 2, -1), sin)

    def _forward(self, x: Any, w: dict[str, Any], cos: Any, sin: Any, new: int) -> Any:
        a, functional = self.attention, self.torch.nn.functional
        h = functional.rms_norm(x, (self.model.hidden,), w["norm"][0], 1e-6)
        qkv = functional.linear(h, w["qkv"]).view(self.batch, new, a.heads + 2 * a.kv_heads, a.head_dim)
        rotating, v = qkv.transpose(1, 2).split((a.heads + a.kv_heads, a.kv_heads), 1)
        q, k = self._rotated(rotating, cos, sin).split((a.heads, a.kv_heads), 1)
        w["k"][:, :, self.seq - new :] = k
        w["v"][:, :, self.seq - new :] = v
        out = functional.scaled_dot_product_attention(
            q,
            w["k"],
            w["v"],
            is_causal=new > 1,
            enable_gqa=a.heads != a.kv_heads,
        )
        x = x + functional.linear(out.transpose(1, 2).reshape(self.batch, new, -1), w["o"])
        h = functional.rms_norm(x, (self.model.hidden,), w["norm"][1], 1e-6)
        gate, up = functional.linear(h, w["gate_up"]).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, w["down"])
