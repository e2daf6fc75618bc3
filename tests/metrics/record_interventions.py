#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Transcription of the forward pass with interventions into PyTorch, in float64, written from the definitions in
docs/inspect.md alone; records what test_interventions.c compares with.

    python record_interventions.py METRICS_DIR > tests/data/metrics/interventions.json

METRICS_DIR holds models as tests/data/metrics does: NAME/{config.json, weights.safetensors, golden.json}."""

import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

CHANGES = {
    "none": {},
    "gate 1": {"gate": 1.0},
    "gate 0": {"gate": 0.0},
    "gate 0.15": {"gate": 0.15},
    "gate layer mean": {"gate": "layer"},
    "gate channel mean": {"gate": "channel"},
    "massive zero": {"massive": "zero"},
    "massive mean": {"massive": "mean"},
    "window 8": {"window": 8},
    "window 8 sinks 3": {"window": 8, "sinks": 3},
    "window 20 sinks 1": {"window": 20, "sinks": 1},
    "window 1 sinks 60": {"window": 1, "sinks": 60},
    "clip 2": {"clip": 2.0},
    "all": {"gate": 0.5, "massive": "mean", "window": 8, "sinks": 2, "clip": 5000.0},
}
ACTIVATIONS = {"sigmoid": torch.sigmoid, "silu": F.silu}


def norm(x, weight, eps):
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def rotate(x, theta):  # [B,T,n,d], pairs (i, i + d/2)
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * theta ** (-torch.arange(half) * 2.0 / x.shape[-1])
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def gated(c, layer, where, y, x, w, change, seen):
    """y [B,T,n,d] behind the gate, if it stands at this place."""
    if c["gate_position"] != where:
        return y
    width = 1 if c["gate_granularity"] == "headwise" else c["head_dim"]
    score = ACTIVATIONS[c["gate_act"]]((x @ w["gate_proj"].T).unflatten(-1, (y.shape[2], width)))
    seen["scores"].append(score)
    if change.get("gate") is not None:
        value = change["gate"]
        if value == "layer":
            value = seen["base"]["scores"][layer].mean()
        elif value == "channel":
            value = seen["base"]["scores"][layer].mean((0, 1))
        score = torch.zeros_like(score) + value
    return y * score if c["gate_op"] == "multiply" else y + score


def visible(change, tokens):
    q, k = torch.arange(tokens)[:, None], torch.arange(tokens)[None]
    see = k <= q
    if change.get("window"):
        see &= (k > q - change["window"]) | (k < change.get("sinks", 0))
    return see


def attention(c, layer, x, w, change, seen):
    batch, tokens, _ = x.shape
    d, heads, kv = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    q = (x @ w["q_proj"].T).view(batch, tokens, heads, d)
    k = (x @ w["k_proj"].T).view(batch, tokens, kv, d)
    v = gated(c, layer, "value", (x @ w["v_proj"].T).view(batch, tokens, kv, d), x, w, change, seen)
    if c["use_qk_norm"]:
        q, k = norm(q, w["q_norm"], c["rms_norm_eps"]), norm(k, w["k_norm"], c["rms_norm_eps"])
    q, k = rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"])
    k, v = k.repeat_interleave(heads // kv, 2), v.repeat_interleave(heads // kv, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d)
    p = scores.masked_fill(~visible(change, tokens), -math.inf).softmax(-1)
    seen["attention"].append(p)
    y = torch.einsum("bhqk,bkhd->bqhd", p, v)
    return gated(c, layer, "sdpa", y, x, w, change, seen).flatten(2) @ w["o_proj"].T


def clip(x, change):
    return x.clamp(-change["clip"], change["clip"]) if change.get("clip") else x


def is_massive(h, base):
    median = base.abs().flatten().median()  # the lower one
    return (h.abs() > 100) & (h.abs() >= 1000 * median)


def change_massive(h, layer, change, seen):
    if not change.get("massive"):
        return h
    base = seen["base"]["residual"][layer]
    value = torch.zeros(h.shape[-1], dtype=h.dtype)
    if change["massive"] == "mean":
        found = is_massive(base, base)
        count = found.sum((0, 1))
        value = torch.where(count > 0, (base * found).sum((0, 1)) / count.clamp(min=1), value)
    return torch.where(is_massive(h, base), value, h)


def forward(c, tensors, ids, change, base=None):
    seen = {"attention": [], "residual": [], "scores": [], "base": base}
    h = tensors["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        name = f"model.layers.{i}."
        w = {k[len(name) :].split(".")[-2]: t for k, t in tensors.items() if k.startswith(name + "self_attn.")}
        mlp = {k.split(".")[-2]: t for k, t in tensors.items() if k.startswith(name + "mlp.")}
        x = norm(h, tensors[name + "input_layernorm.weight"], c["rms_norm_eps"])
        h = h + clip(attention(c, i, x, w, change, seen), change)
        x = norm(h, tensors[name + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        y = (F.silu(x @ mlp["gate_proj"].T) * (x @ mlp["up_proj"].T)) @ mlp["down_proj"].T
        h = change_massive(h + clip(y, change), i, change, seen)
        seen["residual"].append(h)
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    seen["logits"] = norm(h, tensors["model.norm.weight"], c["rms_norm_eps"]) @ head.T
    return seen


def measure(seen, ids):
    logp = seen["logits"][:, :-1].log_softmax(-1)
    nll = -logp.gather(-1, ids[:, 1:, None])[..., 0]
    late = nll[:, ids.shape[1] // 2 :]
    return {
        "loss": nll.mean().item(),
        "perplexity_half": late.mean().exp().item(),
        "f_attn": [p[:, :, 1:, 0].mean().item() for p in seen["attention"]],
        "f_attn_heads": [p[:, :, 1:, 0].mean((0, 2)).tolist() for p in seen["attention"]],
        "entropy": [
            torch.special.entr(p[:, :, 1:]).sum(-1).mean((0, 2)).tolist() for p in seen["attention"]
        ],
        "max": [h.abs().max().item() for h in seen["residual"]],
        "mean_square": [h.square().mean().item() for h in seen["residual"]],
    }


def main():
    torch.set_default_dtype(torch.float64)
    out = {}
    for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/golden.json")):
        c = json.loads((folder / "config.json").read_text())
        tensors = {k: t.double() for k, t in load_file(folder / "weights.safetensors").items()}
        ids = torch.tensor(json.loads((folder / "golden.json").read_text())["ids"])
        base = forward(c, tensors, ids, {})
        rows = {}
        for name, change in CHANGES.items():
            if change.get("gate") is not None and c["gate_position"] == "none":
                change = {k: v for k, v in change.items() if k != "gate"}
                if not change:
                    continue
            rows[name] = {"change": change, **measure(forward(c, tensors, ids, change, base), ids)}
        out[folder.name] = rows
    print(json.dumps(json.loads(json.dumps(out), parse_float=lambda x: float(f"{float(x):.10g}"))))


main()
