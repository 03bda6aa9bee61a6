"""Reading a config.json without trust: first key that is there, checked, and what was filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from ... import InputError
from ...sheets import kind_of
from ..spec import MAX_LAYERS

T = TypeVar("T")
REQUIRED: Any = object()
MAX_VALUE = 1 << 31
MAX_LIST = 4096

# Keys shaped like these may change a count: one that nobody read and that is set is refused by name.
_STRUCTURAL = re.compile(
    r"(^|_)(layers?|heads?|experts?|hidden|intermediate|ffn|ff|window|rank|lora|kv|state|conv|"
    r"kernel|width|inner|mamba|ssm|linear|lru|groups?|moe|vocab|embed|embd|proj)(_|$)|"
    r"_(dim|size|bias|pattern|types)$|^(n|d)_"
)
_IDLE_ENDINGS = (
    *("_id", "_token", "_eps", "_epsilon", "_range", "_factor", "_coef", "_scale", "_act", "_cap", "_dtype"),
    "_theta",
)
# Set in real files of the families known here, without a bearing on any count.
HARMLESS = frozenset(
    [
        "attention_dropout",
        "attention_probs_dropout_prob",
        "attn_pdrop",
        "embd_pdrop",
        "resid_pdrop",
        "emb_pdrop",
        "hidden_dropout",
        "hidden_dropout_prob",
        "embedding_dropout",
        "moe_loss_weight",
        "moe_jitter_eps",
        "chunk_size",
        "mamba_chunk_size",
        "num_labels",
        "n_group",
        "topk_group",
        "n_positions",
        "n_ctx",
        "num_logits_to_keep",
        "ep_size",
        "moe_layer_freq",
        "output_hidden_states",
        "pretraining_tp",
        "use_mamba_kernels",
        "mamba_hidden_act",
        "mlp_hidden_act",
        "hidden_act",
        "hidden_activation",
        "router_aux_loss_coef",
        "moe_aux_loss_coeff",
        "num_nextn_predict_layers",
        "num_mtp_modules",
        "mtp_num_hidden_layers",
        "mtp_transformer_layers",
        "mtp_use_dedicated_embeddings",
        "mtp_num_layers",
        "use_mtp",
        "initial_context_length",
        "max_window_layers",
        "rope_local_base_freq",
        "num_sink_tokens",
        "decoder_start_token_id",
        "forced_decoder_ids",
        "median_filter_width",
        "num_beams",
        "prefix",
        "summary_proj_to_labels",
        "summary_use_proj",
        "type_vocab_size",
        "classifier_dropout",
        "encoder_layerdrop",
        "decoder_layerdrop",
        "is_decoder",
        "apply_query_key_layer_scaling",
        "bias_dropout_fusion",
        "attention_softmax_in_fp32",
        "kv_channels",
        "original_max_position_embeddings",
        "max_position_embeddings",
        "moe_k",
        "num_experts_per_tok",
        "vision_feature_layer",
        "image_seq_length",
        "mm_tokens_per_image",
        "projector_hidden_act",
        "mamba_ssm_dtype",
        "time_step_rank",
        "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn",
        "attn_logit_softcapping",
        "activation_sparsity_pattern",
        "rescale_every",
        "residual_in_fp32",
        "swa_rope_theta",
        "query_pre_attn_scalar",
        "kv_cache_dim",
        "head_dim_scale",
        "hidden_size_scale",
        "mamba_ssm_cache_dtype",
        "use_bidirectional_attention",
        "attn_output_multiplier",
        "embedding_multiplier_scale",
        "output_multiplier_scale",
        "attn_temperature_tuning",
        "moe_router_enable_expert_bias",
        "moe_router_topk_scaling_factor",
        "attn_implementation",
        "vocab_file",
        "vocab_size_per_layer_input",
        "use_routing_bias",
        "group_norm_eps",
        "use_gemm",
        "pad_vocab_size_multiple",
        "index_topk_freq",
        "no_rope_layer_interval",
        "no_rope_layers",
        "moe_norm_min",
        "moe_capacity",
        "moe_use_aux_free",
        "classifier_proj_size",
        "indexer_types",
    ]
)


class Fields:
    """One mapping of a configuration. `inferred` collects, for the whole model, what was filled in."""

    def __init__(self, data: Any, origin: str, inferred: list[str], path: str = "") -> None:
        self.origin, self.path, self.inferred = origin, path, inferred
        if not isinstance(data, Mapping):
            raise self.error(f"expected a mapping, not {kind_of(data)}")
        self.data: Mapping[str, Any] = data
        self.read: set[str] = set()
        self.class_defaults: Mapping[str, Any] = {}

    def error(self, problem: str, key: str = "") -> InputError:
        where = ".".join(part for part in (self.path, key) if part)
        return InputError(f"{self.origin}: {where + ': ' if where else ''}{problem}")

    def has(self, *names: str) -> bool:
        """Whether one of `names` is there with a value other than null."""
        return any(self.data.get(name) is not None for name in names) or bool(self._default(names))

    def raw(self, *names: str, default: Any = None) -> Any:
        """Value of the first of `names` that is there and not null."""
        self.read.update(names)
        for name in names:
            if self.data.get(name) is not None:
                return self.data[name]
        fallback = self._default(names)
        if fallback:
            value = self.class_defaults[fallback]
            self.infer(f"{fallback} = {str(value).lower()}: the class default")
            return value
        return default

    def _default(self, names: tuple[str, ...]) -> str:
        """The first of `names` that the class has a value for, where none of them is stated.

        A null is a statement: the class computes it then.
        """
        if any(name in self.data for name in names):
            return ""
        return next((name for name in names if name in self.class_defaults), "")

    def require(self, *names: str) -> None:
        """Refuse where one of `names` is absent: the class makes its value up from others."""
        for name in names:
            if not self.has(name):
                raise self.error(f"'{name}' is missing; without it the model cannot be counted")

    def integer(self, *names: str, default: Any = REQUIRED, why: str = "", least: int = 1) -> int:
        """A whole number. Where every key is absent: `default`, listed as inferred with `why`."""
        value = self.raw(*names)
        if value is None:
            if default is REQUIRED:
                listed = " or ".join(f"'{name}'" for name in names[:3])
                raise self.error(f"{listed} is missing; without it the model cannot be counted")
            if why:
                self.infer(f"{names[0]} = {default}: {why}")
            return int(default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"must be a whole number, not {kind_of(value)}", self._present(names))
        # A count of layers becomes that many objects, whatever the family calls it.
        most = MAX_LAYERS if names[0].endswith(("layer", "layers", "depth")) else MAX_VALUE
        if not least <= value <= most:
            raise self.error(f"must be between {least} and {most:,}, not {value}", self._present(names))
        return value

    def number(self, *names: str, default: float) -> float:
        value = self.raw(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e6:
            raise self.error(f"must be a number, not {kind_of(value)}", self._present(names))
        return float(value)

    def flag(self, *names: str, default: bool = False, why: str = "") -> bool:
        value = self.raw(*names)
        if value is None:
            if why:
                self.infer(f"{names[0]} = {str(default).lower()}: {why}")
            return default
        if not isinstance(value, bool):
            raise self.error(f"must be true or false, not {kind_of(value)}", self._present(names))
        return value

    def text(self, *names: str, default: str = "") -> str:
        value = self.raw(*names, default=default)
        if not isinstance(value, str) or len(value) > 10_000:
            raise self.error(f"must be text, not {kind_of(value)}", self._present(names))
        return value

    def items(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list of bounded length (of `length`, one a layer), or None where absent or empty."""
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MAX_LIST:
            raise self.error(f"must be a list of at most {MAX_LIST} values", self._present(names))
        if not value:
            return None
        if length is not None and len(value) != length:
            raise self.error(f"names {len(value)} layers of {length}", self._present(names))
        return value

    def words(self, *names: str, length: int | None = None) -> list[str] | None:
        values = self.items(*names, length=length)
        if values is not None and not all(isinstance(v, str) for v in values):
            raise self.error("must be a list of words", self._present(names))
        return values

    def places(self, *names: str, length: int, meanings: Mapping[str, T]) -> list[T] | None:
        """What each layer is, by its word in a list of `length`; a word of no known meaning is refused."""
        words = self.words(*names, length=length)
        if words is None:
            return None
        for word in words:
            if word not in meanings:
                known = ", ".join(meanings)
                raise self.error(
                    f"'{word[:40]}' is not a known kind of layer; {known} are", self._present(names)
                )
        return [meanings[word] for word in words]

    def counts(self, *names: str, length: int, default: Any = REQUIRED) -> list[int]:
        """A number a layer: a list of `length`, or one number for all."""
        value = self.raw(*names)
        if isinstance(value, list):
            if len(value) != length or not all(isinstance(v, int) and 0 <= v <= MAX_VALUE for v in value):
                raise self.error(f"must hold {length} whole numbers, one a layer", self._present(names))
            return list(value)
        return [self.integer(*names, default=default)] * length

    def section(self, *names: str) -> Fields | None:
        value = self.raw(*names)
        if value is None:
            return None
        return Fields(value, self.origin, self.inferred, self._present(names))

    def infer(self, what: str) -> None:
        if what not in self.inferred:
            self.inferred.append(what)

    def ignore(self, *names: str) -> None:
        """These keys were considered and do not count here."""
        self.read.update(names)

    def refuse_unread(self, family: str) -> None:
        """Refuse a set key that looks structural and that the reader of `family` does not know."""
        for key, value in self.data.items():
            if not isinstance(key, str) or key in self.read or key in HARMLESS:
                continue
            if value in (None, False, 0, "", [], {}) or isinstance(value, (Mapping, str)):
                continue
            if _STRUCTURAL.search(key) and not key.endswith(_IDLE_ENDINGS):
                raise self.error(
                    f"'{key}' is set and may change the counts, and the reader of model_type "
                    f"'{family}' does not know it; write a sheet, or remove the key if it is idle"
                )

    def _present(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if self.data.get(name) is not None), names[0])
