# SPDX-License-Identifier: Apache-2.0
"""Sluice models in Hugging Face transformers (5.x): decoders with gated attention (Qiu et al. 2025, arXiv 2505.06708).

    h  = embed[ids]
    h += clip(post_norm(attention(norm(h))));   h += clip(post_norm(mlp(norm(h))))      per layer
    logits = head(norm(h))

Order inside attention: project; gate on query, key or value; q/k norm; RoPE on the first rotary_dim components of a head;
softmax attention; sdpa_norm; sdpa_silu; gate on the attention output ("sdpa"); o_proj; gate on the output. The gate reads
the same normed hidden state as q, k and v, or is one learned tensor (gate_input "none"). With switch_head, values (or
keys and values) have several maps, of which the best few by a sigmoid router add up for a token. With num_experts the
MLP is a mixture of experts; router losses belong to training with Sluice and are not part of the loss here.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_sluice import SluiceConfig

ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "identity": lambda s: s,
    "ns_sigmoid": lambda s: 0.5 + 0.5 * torch.sigmoid(s),
    "softplus": F.softplus,
}


class SluiceRMSNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + eps), the division in fp32."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class SluiceRotaryEmbedding(nn.Module):
    """cos and sin [B,T,rotary_dim] of the positions for one kind of layer; None when nothing rotates."""

    def __init__(self, config, kind):
        super().__init__()
        if kind in config.rope_parameters:  # keyed by the kind of layer
            parameters, config = config.rope_parameters[kind], copy.copy(config)
            config.rope_parameters = parameters
        self.config = config
        self.max_seq_len_cached = self.original_max_seq_len = config.max_position_embeddings
        self.rope_type = config.rope_parameters["rope_type"]
        self.rotary_dim = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        inv_freq, self.attention_scaling = self.frequencies()
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("original_inv_freq", inv_freq.clone(), persistent=False)

    def frequencies(self):
        plain = self.rope_type == "default" or not self.rotary_dim
        return (self.plain_frequencies if plain else ROPE_INIT_FUNCTIONS[self.rope_type])(self.config, None)

    @staticmethod
    def plain_frequencies(config, device=None, **kwargs):
        dim = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        steps = torch.arange(0, dim, 2, dtype=torch.float, device=device) / max(dim, 1)
        return 1.0 / config.rope_parameters["rope_theta"] ** steps, 1.0

    # transformers looks for this name when it fills buffers of a model that was created without memory
    compute_default_rope_parameters = plain_frequencies

    @torch.no_grad()
    @dynamic_rope_update
    def tables(self, x, position_ids):
        angles = position_ids[:, :, None].float() * self.inv_freq[None, None, :].float()
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * self.attention_scaling).to(x.dtype), (angles.sin() * self.attention_scaling).to(x.dtype)

    def forward(self, x, position_ids):
        return self.tables(x, position_ids) if self.rotary_dim else None


def rotate(x, tables):
    """RoPE, rotate-half, on the first components of x [B,heads,T,head_dim]."""
    if tables is None:
        return x
    cos, sin = tables[0][:, None], tables[1][:, None]
    dim = cos.shape[-1]
    turned, rest = x[..., :dim], x[..., dim:]
    a, b = turned.chunk(2, dim=-1)
    return torch.cat((turned * cos + torch.cat((-b, a), dim=-1) * sin, rest), dim=-1)


def eager_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    groups = module.num_key_value_groups
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    weights = F.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class SluiceAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        c = self.config = config
        self.layer_idx, self.is_causal = layer_idx, True
        self.num_key_value_groups = c.num_attention_heads // c.num_key_value_heads
        self.scaling = c.head_dim**-0.5
        self.sliding_window = c.sliding_window if c.layer_types[layer_idx] == "sliding_attention" else None
        width, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, width, bias=c.qkv_bias)
        k_maps = c.switch_experts if c.switch_head == "kv" else 1
        v_maps = c.switch_experts if c.switch_head != "none" else 1
        self.k_proj = nn.Linear(c.hidden_size, k_maps * kv, bias=c.qkv_bias)
        self.v_proj = nn.Linear(c.hidden_size, v_maps * kv, bias=c.qkv_bias)
        if c.switch_head != "none":
            self.switch_router = nn.Linear(c.hidden_size, c.num_key_value_heads * c.switch_experts, bias=False)
        self.o_proj = nn.Linear(width, c.hidden_size, bias=c.o_bias)
        if c.use_qk_norm:
            self.q_norm = SluiceRMSNorm(c.head_dim, c.rms_norm_eps)
            self.k_norm = SluiceRMSNorm(c.head_dim, c.rms_norm_eps)
        if c.sdpa_norm:
            self.sdpa_norm = SluiceRMSNorm(c.head_dim, c.rms_norm_eps)
        if c.gate_position != "none":
            heads, dim = self.gate_shape()
            if c.gate_input == "hidden":
                self.gate_proj = nn.Linear(c.hidden_size, heads * dim, bias=c.qkv_bias)
            else:
                self.gate_param = nn.Parameter(torch.zeros(heads, dim))

    def gate_shape(self):
        """(heads, width) of one token's gate logits."""
        c = self.config
        if c.gate_position == "output":
            return 1, c.hidden_size
        heads = c.num_attention_heads if c.gate_position in ("sdpa", "query") else c.num_key_value_heads
        return heads, c.head_dim if c.gate_granularity == "elementwise" else 1

    def gate(self, y, x, position):
        """y [B,T,heads,width] gated by x [B,T,D] if the gate sits at this position."""
        c = self.config
        if c.gate_position != position:
            return y
        act = ACTIVATIONS[c.gate_act]
        s = self.gate_param[None, None] if c.gate_input == "none" else self.gate_proj(x).unflatten(-1, self.gate_shape())
        if c.gate_sharing == "specific":
            g = act(s)
        else:
            g = act(s).mean(-2, keepdim=True) if c.gate_share_mean == "score" else act(s.mean(-2, keepdim=True))
        return y * g if c.gate_op == "multiply" else y + g

    def pick(self, maps, x):
        """maps [B,T,E*K*d] -> [B,T,K,d]: the best maps of every head, each times its sigmoid score."""
        c = self.config
        s = torch.sigmoid(self.switch_router(x).unflatten(-1, (c.num_key_value_heads, c.switch_experts)))
        kept = torch.zeros_like(s).scatter(-1, s.topk(c.switch_topk, dim=-1).indices, 1.0)
        maps = maps.unflatten(-1, (c.switch_experts, c.num_key_value_heads, c.head_dim))
        return torch.einsum("btge,btegd->btgd", s * kept, maps)

    def forward(self, x, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
        c, shape = self.config, (*x.shape[:-1], -1, self.config.head_dim)
        q = self.gate(self.q_proj(x).view(shape), x, "query")
        k, v = self.k_proj(x), self.v_proj(x)
        k = self.gate(self.pick(k, x) if c.switch_head == "kv" else k.view(shape), x, "key")
        v = self.gate(self.pick(v, x) if c.switch_head != "none" else v.view(shape), x, "value")
        if c.use_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        q, k = rotate(q, position_embeddings), rotate(k, position_embeddings)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(c._attn_implementation, eager_attention)
        y, weights = attend(self, q, k, v, attention_mask, dropout=0.0, scaling=self.scaling,
                            sliding_window=self.sliding_window, **kwargs)
        if c.sdpa_norm:
            y = self.sdpa_norm(y)
        if c.sdpa_silu:
            y = F.silu(y)
        y = self.gate(y, x, "sdpa")
        o = self.o_proj(y.reshape(*x.shape[:-1], -1))
        return self.gate(o[:, :, None], x, "output")[:, :, 0], weights


class SluiceMLP(nn.Module):
    def __init__(self, dim, width, gated=True):
        super().__init__()
        self.gated = gated
        if gated:
            self.gate_proj = nn.Linear(dim, width, bias=False)
        self.up_proj = nn.Linear(dim, width, bias=False)
        self.down_proj = nn.Linear(width, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x) if self.gated else F.gelu(self.up_proj(x)))


class SluiceExperts(nn.Module):
    """Softmax router in fp32, the num_experts_per_tok most probable experts of a token, and perhaps a shared one."""

    def __init__(self, config):
        super().__init__()
        c = self.config = config
        self.gate = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.experts = nn.ModuleList(SluiceMLP(c.hidden_size, c.moe_intermediate_size) for _ in range(c.num_experts))
        if c.num_shared_experts:
            self.shared_expert = SluiceMLP(c.hidden_size, c.num_shared_experts * c.moe_intermediate_size)
            if c.shared_expert_gate:
                self.shared_expert_gate = nn.Linear(c.hidden_size, 1, bias=False)

    def forward(self, x):
        c, flat = self.config, x.flatten(0, -2)
        prob = F.linear(flat.float(), self.gate.weight.float()).softmax(dim=-1)
        weight, choice = prob.topk(c.num_experts_per_tok, dim=-1)
        if c.norm_topk_prob:
            weight = weight / weight.sum(dim=-1, keepdim=True)
        y = torch.zeros_like(flat)
        for e in choice.unique().tolist():
            token, slot = (choice == e).nonzero(as_tuple=True)
            y = y.index_add(0, token, self.experts[e](flat[token]) * weight[token, slot, None].to(x.dtype))
        if c.num_shared_experts:
            shared = self.shared_expert(flat)
            y = y + (torch.sigmoid(self.shared_expert_gate(flat)) * shared if c.shared_expert_gate else shared)
        return y.view_as(x)


class SluiceDecoderLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.residual_clip = config.residual_clip
        self.self_attn = SluiceAttention(config, layer_idx)
        dense = not config.num_experts
        self.mlp = (SluiceMLP(config.hidden_size, config.intermediate_size, config.mlp_type == "swiglu") if dense
                    else SluiceExperts(config))
        names = ["input_layernorm", "post_attention_layernorm"]
        names += ["post_self_attn_layernorm", "post_mlp_layernorm"] if config.sandwich_norm else []
        for name in names:
            self.add_module(name, SluiceRMSNorm(config.hidden_size, config.rms_norm_eps))
        self.sandwich_norm = config.sandwich_norm

    def add(self, h, y):
        return h + (y.clamp(-self.residual_clip, self.residual_clip) if self.residual_clip > 0 else y)

    def forward(self, h, **kwargs):
        y, _ = self.self_attn(self.input_layernorm(h), **kwargs)
        h = self.add(h, self.post_self_attn_layernorm(y) if self.sandwich_norm else y)
        y = self.mlp(self.post_attention_layernorm(h))
        return self.add(h, self.post_mlp_layernorm(y) if self.sandwich_norm else y)


class SluicePreTrainedModel(PreTrainedModel):
    config_class = SluiceConfig
    base_model_prefix = "model"
    _no_split_modules = ["SluiceDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, SluiceAttention) and hasattr(module, "gate_param"):
            nn.init.zeros_(module.gate_param)
        if isinstance(module, SluiceRotaryEmbedding):
            inv_freq, _ = module.frequencies()
            module.inv_freq.copy_(inv_freq)
            module.original_inv_freq.copy_(inv_freq)


class SluiceModel(SluicePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(SluiceDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = SluiceRMSNorm(config.hidden_size, config.rms_norm_eps)
        kinds = sorted(set(config.layer_types))
        self.rotary_emb = nn.ModuleDict({kind: SluiceRotaryEmbedding(config, kind) for kind in kinds})
        self.post_init()

    def masks(self, **kwargs):
        makers = {"full_attention": create_causal_mask, "sliding_attention": create_sliding_window_causal_mask}
        return {kind: makers[kind](config=self.config, **kwargs) for kind in set(self.config.layer_types)}

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
                use_cache=None, output_hidden_states=False, **kwargs):
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        h = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = (torch.arange(h.shape[1], device=h.device) + seen)[None]
        masks = attention_mask
        if not isinstance(attention_mask, dict):
            masks = self.masks(inputs_embeds=h, attention_mask=attention_mask, past_key_values=past_key_values,
                               position_ids=position_ids)
        tables = {kind: rotary(h, position_ids) for kind, rotary in self.rotary_emb.items()}
        states = [h]
        for layer, kind in zip(self.layers, self.config.layer_types):
            h = layer(h, position_embeddings=tables[kind], attention_mask=masks[kind], past_key_values=past_key_values)
            states.append(h)
        h = self.norm(h)
        states[-1] = h
        return BaseModelOutputWithPast(last_hidden_state=h, past_key_values=past_key_values if use_cache else None,
                                       hidden_states=tuple(states) if output_hidden_states else None)


class SluiceForCausalLM(SluicePreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = SluiceModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
                labels=None, use_cache=None, logits_to_keep=0, output_hidden_states=False, **kwargs):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                         past_key_values=past_key_values, inputs_embeds=inputs_embeds, use_cache=use_cache,
                         output_hidden_states=output_hidden_states)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(out.last_hidden_state[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values,
                                      hidden_states=out.hidden_states)


__all__ = ["SluiceForCausalLM", "SluiceModel", "SluicePreTrainedModel"]
