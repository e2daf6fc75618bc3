#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with random weights in the shapes that the bench measures: Hugging Face directories in bf16, and GGUF files
made of them by `sluice convert`. Random weights cost what real ones cost.

    make_models.py SLUICE FOLDER [SHAPE ...]      needs numpy

Shapes: qwen3-0.6b; gated-0.6b (the same with an elementwise output gate, as qwen3_5_text without linear layers);
qwen3.5-0.8b (three gated delta rule layers to one of gated attention).
"""
import json
import os
import struct
import subprocess
import sys

import numpy as np

COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False,
          "attention_dropout": 0.0, "initializer_range": 0.02, "torch_dtype": "bfloat16", "max_position_embeddings": 40960}
QWEN3 = COMMON | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
                  "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
                  "vocab_size": 151936, "rope_theta": 1e6}
ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
        "mrope_interleaved": True}
QWEN35 = COMMON | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "attn_output_gate": True,
                   "linear_conv_kernel_dim": 4, "full_attention_interval": 4}
SHAPES = {
    "qwen3-0.6b": QWEN3,
    "gated-0.6b": QWEN35 | {k: QWEN3[k] for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim",
                                                  "num_key_value_heads", "intermediate_size", "vocab_size")} | {
        "layer_types": ["full_attention"] * 28, "linear_num_key_heads": 1, "linear_num_value_heads": 1,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "rope_parameters": ROPE | {"rope_theta": 1e6, "partial_rotary_factor": 1.0, "mrope_section": [22, 21, 21]}},
    "qwen3.5-0.8b": QWEN35 | {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 8, "head_dim": 256,
                              "num_key_value_heads": 2, "intermediate_size": 3584, "vocab_size": 248320,
                              "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 6, "linear_num_key_heads": 16,
                              "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                              "rope_parameters": ROPE}}
TYPES = {"qwen3-0.6b": ("Q8_0", "Q4_0", "BF16", "F16"), "gated-0.6b": ("Q8_0",), "qwen3.5-0.8b": ("Q8_0", "BF16")}


def attention_shapes(c: dict) -> dict:
    d, dim, heads, kv = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    rows = heads * dim * (2 if c.get("attn_output_gate") else 1)
    return {"self_attn.q_proj": (rows, d), "self_attn.k_proj": (kv * dim, d), "self_attn.v_proj": (kv * dim, d),
            "self_attn.o_proj": (d, heads * dim), "self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,)}


def linear_shapes(c: dict) -> dict:
    d, heads = c["hidden_size"], c["linear_num_value_heads"]
    key, value = c["linear_num_key_heads"] * c["linear_key_head_dim"], heads * c["linear_value_head_dim"]
    name = "linear_attn."
    return {name + "in_proj_qkv": (2 * key + value, d), name + "in_proj_z": (value, d), name + "in_proj_b": (heads, d),
            name + "in_proj_a": (heads, d), name + "conv1d": (2 * key + value, 1, c["linear_conv_kernel_dim"]),
            name + "A_log": (heads,), name + "dt_bias": (heads,), name + "norm": (c["linear_value_head_dim"],),
            name + "out_proj": (d, value)}


def tensor_shapes(c: dict) -> dict:
    d, mlp = c["hidden_size"], c["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
    for i in range(c["num_hidden_layers"]):
        kind = c.get("layer_types", ["full_attention"] * c["num_hidden_layers"])[i]
        layer = {"input_layernorm": (d,), "post_attention_layernorm": (d,), "mlp.gate_proj": (mlp, d),
                 "mlp.up_proj": (mlp, d), "mlp.down_proj": (d, mlp)}
        layer |= attention_shapes(c) if kind == "full_attention" else linear_shapes(c)
        for name, shape in layer.items():
            whole = name.endswith(("A_log", "dt_bias"))
            shapes[f"model.layers.{i}.{name}{'' if whole else '.weight'}"] = shape
    return shapes


def as_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def values(shape: tuple, random: np.random.Generator) -> np.ndarray:
    if len(shape) == 1:
        return np.zeros(shape, np.uint16)
    pool = as_bf16(0.02 * random.standard_normal(1 << 20, np.float32))  # repeated: only the distribution counts
    count = int(np.prod(shape))
    return np.resize(pool, count)


def write_directory(folder: str, config: dict) -> None:
    os.makedirs(folder, exist_ok=True)
    random, header, at = np.random.default_rng(1), {}, 0
    shapes = tensor_shapes(config)
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            f.write(values(shape, random).tobytes())
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


def main() -> None:
    sluice, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(SHAPES)
    for name in names:
        source = os.path.join(folder, name)
        if not os.path.exists(os.path.join(source, "config.json")):
            write_directory(source, SHAPES[name])
        for kind in TYPES[name]:
            target = f"{source}-{kind.lower()}.gguf"
            if not os.path.exists(target):
                subprocess.run([sluice, "convert", source, target, "--dtype", kind, "--quiet"], check=True)
            print(target)


if __name__ == "__main__":
    main()
