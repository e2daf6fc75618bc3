# SPDX-License-Identifier: Apache-2.0
"""Spark-X2.5 is not in transformers. This holds it against a second reading of its published description in plain
PyTorch: a check of the parts (fused q/k/v rows, head gate, RoPE by layer type, windows, GELU), not of the model."""
import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file
F = torch.nn.functional

V, D, L, H, K, HD, FF, WINDOW, EPS, T = 50, 24, 4, 4, 2, 16, 40, 5, 1e-6, 23


def weights():
    g = torch.Generator().manual_seed(7)
    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=g) * 1.3 / columns ** 0.5
    def norm():
        return 1 + 0.3 * torch.randn(D, generator=g)
    w = {"model.embed_tokens.weight": torch.randn(V, D, generator=g), "model.norm.weight": norm()}
    for i in range(L):
        p = f"model.layers.{i}."
        w.update({p + "input_layernorm.weight": norm(), p + "post_attention_layernorm.weight": norm(),
                  p + "self_attn.q_k_v_proj.weight": matrix((H + 2 * K) * HD, D), p + "self_attn.g_proj.weight": matrix(H, D),
                  p + "self_attn.o_proj.weight": matrix(D, H * HD), p + "mlp.gate_proj.weight": matrix(FF, D),
                  p + "mlp.up_proj.weight": matrix(FF, D), p + "mlp.down_proj.weight": matrix(D, FF)})
    return w


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rotate(x, theta, dims):
    """x [T, heads, HD]: the first `dims` components, halves paired."""
    angle = torch.arange(T)[:, None] * theta ** (-torch.arange(0, dims, 2) / dims)[None]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b, rest = x[..., :dims // 2], x[..., dims // 2:dims], x[..., dims:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def forward(w, ids):
    h = w["model.embed_tokens.weight"][ids]
    back = torch.arange(T)[:, None] - torch.arange(T)[None]
    for i in range(L):
        p, full = f"model.layers.{i}.", (i + 1) % 4 == 0
        x = rms(h, w[p + "input_layernorm.weight"])
        q, k, v = (x @ w[p + "self_attn.q_k_v_proj.weight"].T).split([H * HD, K * HD, K * HD], -1)
        q, k, v = q.view(T, H, HD), k.view(T, K, HD), v.view(T, K, HD)
        theta, dims = (5e6, HD // 4) if full else (1e4, HD)
        q, k = rotate(q, theta, dims), rotate(k, theta, dims)
        k, v = k.repeat_interleave(H // K, 1), v.repeat_interleave(H // K, 1)
        seen = (back >= 0) & (full | (back < WINDOW))
        scores = torch.einsum("thd,shd->hts", q, k) / HD ** 0.5
        o = torch.einsum("hts,shd->thd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)
        o = o * torch.sigmoid(x @ w[p + "self_attn.g_proj.weight"].T)[..., None]
        h = h + o.reshape(T, -1) @ w[p + "self_attn.o_proj.weight"].T
        x = rms(h, w[p + "post_attention_layernorm.weight"])
        h = h + (F.gelu(x @ w[p + "mlp.gate_proj.weight"].T) * (x @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    return rms(h, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def test_spark(tmp_path):
    config = {"model_type": "spark2_5", "vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H,
              "num_key_value_heads": K, "head_dim": HD, "intermediate_size": FF, "sliding_window": WINDOW, "rms_norm_eps": EPS,
              "max_position_embeddings": 64, "tie_word_embeddings": True, "hidden_act": "gelu",
              "headwise_attn_output_gate": True, "gate_attn_act_mode": "sigmoid"}
    w = weights()
    ids = torch.randint(0, V, (T,), generator=torch.Generator().manual_seed(1))
    save_file(w, str(tmp_path / "model.safetensors"))
    save_file({"input_ids": ids[None], "logits": forward(w, ids)[None].contiguous()}, str(tmp_path / "golden.safetensors"))
    spellings = [{}, {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
                 {"rope_theta": 5e6, "partial_rotary_factor": 0.25},
                 {"rope_parameters": {"full_attention": {"rope_theta": 5e6, "partial_rotary_factor": 0.25},
                                      "sliding_attention": {"rope_theta": 1e4, "partial_rotary_factor": 1.0}}}]
    for keys in spellings:
        (tmp_path / "config.json").write_text(json.dumps({**config, **keys}))
        run = subprocess.run([os.environ["SLUICE"], "verify", tmp_path], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
