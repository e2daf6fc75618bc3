# SPDX-License-Identifier: Apache-2.0
"""Configuration of a Sluice model for Hugging Face transformers (5.x). The keys are those of Sluice's config.json."""
from transformers import PreTrainedConfig


class SluiceConfig(PreTrainedConfig):
    """A decoder with gated attention (Qiu et al. 2025, arXiv 2505.06708) and, with num_experts, a mixture of experts.
    `layer_types` may mix full_attention and sliding_attention; `rope_parameters` may hold partial_rotary_factor, 0
    meaning no rotation at all."""

    model_type = "sluice"
    keys_to_ignore_at_inference = ["past_key_values"]
    ignore_keys_at_rope_validation = {"partial_rotary_factor"}

    vocab_size: int = 256
    hidden_size: int = 64
    intermediate_size: int = 176
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    use_cache: bool = True
    rope_parameters: dict | None = None
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    use_qk_norm: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    sandwich_norm: bool = False
    residual_clip: float = 0.0
    sdpa_norm: bool = False
    sdpa_silu: bool = False
    mlp_type: str = "swiglu"  # gelu: no gate matrix
    gate_position: str = "none"  # sdpa, value, key, query, output
    gate_granularity: str = "elementwise"  # headwise
    gate_sharing: str = "specific"  # shared
    gate_share_mean: str = "score"  # logit
    gate_op: str = "multiply"  # add
    gate_act: str = "sigmoid"  # silu, identity, ns_sigmoid, softplus
    gate_input: str = "hidden"  # none
    switch_head: str = "none"  # v, kv
    switch_experts: int = 1
    switch_topk: int = 1
    num_experts: int = 0
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 32
    norm_topk_prob: bool = False
    num_shared_experts: int = 0
    shared_expert_gate: bool = False
    router_aux_loss_coef: float = 0.01
    router_z_loss_coef: float = 0.001
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs):
        if self.layer_types is None:
            self.layer_types = ["full_attention"] * self.num_hidden_layers
        super().__post_init__(**kwargs)


__all__ = ["SluiceConfig"]
