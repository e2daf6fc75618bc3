# SPDX-License-Identifier: Apache-2.0
"""Random hybrids of transformers: what it saves loads here and gives its logits, whole and through the cache.

SLUICE_HYBRIDS=n tries n of each family instead of the usual few; SLUICE_HYBRIDS_SEED=n begins elsewhere."""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
save_file = safetensors.save_file

COUNT = int(os.environ.get("SLUICE_HYBRIDS", "4"))
SEED = int(os.environ.get("SLUICE_HYBRIDS_SEED", "0"))
FAMILIES = ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "olmo_hybrid"]


def layer_types(r, layers):
    kinds = [r.choice(["linear_attention", "linear_attention", "full_attention"]) for _ in range(layers)]
    kinds[r.randrange(layers)] = "full_attention"
    if all(k == "full_attention" for k in kinds):
        kinds[r.randrange(layers - 1)] = "linear_attention"
    return kinds if "full_attention" in kinds else kinds[:-1] + ["full_attention"]


def rope(r, rotary):
    p = {"rope_type": "default", "rope_theta": r.choice([1e4, 1e7]), "partial_rotary_factor": rotary}
    if r.random() < 0.3:
        p.update(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    return p


def sizes(r):
    keys = r.choice([1, 2, 3, 4])
    kv = r.choice([1, 2, 3])
    layers = r.choice([2, 3, 5])
    return {
        "vocab_size": 97, "hidden_size": r.choice([16, 24, 40]), "intermediate_size": r.choice([17, 48]),
        "num_hidden_layers": layers, "num_attention_heads": kv * r.choice([1, 2, 4]), "num_key_value_heads": kv,
        "head_dim": r.choice([8, 16]), "max_position_embeddings": 512, "rms_norm_eps": r.choice([1e-6, 1e-5]),
        "layer_types": layer_types(r, layers), "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * r.choice([1, 1, 2, 3, 5]), "linear_key_head_dim": r.choice([3, 8, 16, 20]),
        "linear_value_head_dim": r.choice([4, 12, 16, 33]), "linear_conv_kernel_dim": r.choice([2, 3, 4, 4, 7, 11]),
        "attention_bias": r.random() < 0.3, "tie_word_embeddings": r.random() < 0.5,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    }


def experts(r, count):
    return {"num_experts": count, "num_experts_per_tok": r.randint(1, 3), "moe_intermediate_size": r.choice([8, 20]),
            "shared_expert_intermediate_size": r.choice([8, 13])}


def config_of(family, r):
    s = sizes(r)
    if family == "olmo_hybrid":
        s["hidden_size"] = s["num_attention_heads"] * 8
        del s["head_dim"]
        s["pad_token_id"] = 0
        s["linear_allow_neg_eigval"] = r.random() < 0.7
        s["rope_parameters"] = r.choice([{"rope_type": "default", "rope_theta": None}, None,
                                         {"rope_type": "default", "rope_theta": 5e5}])
        return transformers.OlmoHybridConfig(**s)
    s["rope_parameters"] = rope(r, r.choice([0.25, 0.5, 1.0]))
    if family == "qwen3_next":
        s.update(experts(r, r.choice([0, 4, 9])), norm_topk_prob=r.random() < 0.5, decoder_sparse_step=r.choice([1, 1, 2]),
                 mlp_only_layers=r.choice([[], [0]]))
        return transformers.Qwen3NextConfig(**s)
    if family == "qwen3_5_moe_text":
        s.update(experts(r, r.choice([4, 9])))
        return transformers.Qwen3_5MoeTextConfig(**s)
    return transformers.Qwen3_5TextConfig(**s)


def wrapped(config):
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 4,
              "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": config.hidden_size,
              "num_position_embeddings": 16}
    return transformers.Qwen3_5Config(text_config=config.to_dict(), vision_config=vision, image_token_id=90,
                                      video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
                                      tie_word_embeddings=config.tie_word_embeddings)


def randomise(model, generator):
    """No part is inert: norms are spread, gates and decays move, attention is peaked."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("A_log"):
            value = torch.log(0.05 + 6 * torch.rand(p.shape, generator=generator))
        elif name.endswith("dt_bias"):
            value = noise
        elif "norm" in name and p.dim() == 1:
            value = (0.0 if "Zero" in type(model).__name__ or p.mean() == 0 else 1.0) + 0.3 * noise
        elif "conv1d" in name:
            value = 0.5 * noise
        elif p.dim() == 1:
            value = 0.2 * noise
        elif "embed" in name:
            value = noise
        else:
            value = 1.3 * noise / p.shape[-1] ** 0.5
        p.data.copy_(value)


def released_form(config, path):
    """transformers 5.18 saves OLMo's convolution as three equal parts, whatever the widths of q, k and v are."""
    tensors = safetensors.load_file(path)
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    for name in [n for n in tensors if n.endswith("q_conv1d.weight")]:
        names = [name, name.replace("q_conv1d", "k_conv1d"), name.replace("q_conv1d", "v_conv1d")]
        parts = torch.cat([tensors[n] for n in names]).split([keys, keys, values])
        tensors.update({n: p.contiguous() for n, p in zip(names, parts)})
    save_file(tensors, path)


def run(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, output_hidden_states=True, use_cache=False)


def largest_difference(a, b):
    pairs = [(a.logits, b.logits), *zip(a.hidden_states, b.hidden_states)]
    return max((x - y).abs().max().item() for x, y in pairs)


def own_error(model, ids, out):
    """How far transformers is from itself: with the rule token by token instead of by chunks, and with embeddings that
    differ by one rounding. Where a head's output is nearly zero, its norm enlarges both."""
    layer = next(m for m in model.modules() if type(m).__name__.endswith("GatedDeltaNet"))
    module = sys.modules[type(layer).__module__]
    chunk = module.torch_chunk_gated_delta_rule
    module.torch_chunk_gated_delta_rule = module.torch_recurrent_gated_delta_rule
    try:
        other = run(model, ids)
    finally:
        module.torch_chunk_gated_delta_rule = chunk
    embedding = model.get_input_embeddings().weight
    kept = embedding.data.clone()
    embedding.data.mul_(1 + 1.2e-7 * torch.sign(torch.sin(1e4 * kept)))
    moved = run(model, ids)
    embedding.data.copy_(kept)
    return max(largest_difference(out, other), largest_difference(out, moved))


def record(model, folder, ids, r):
    out = run(model, ids)
    tensors = {"input_ids": ids, "logits": out.logits.contiguous()}
    layers = len(out.hidden_states) - 1
    for i in range(layers - 1):  # transformers gives the last one behind the final norm
        tensors[f"hidden.{i}"] = out.hidden_states[i + 1].contiguous()
    save_file(tensors, folder / "golden.safetensors")
    splits = [{"chunks": [r.randint(1, 70) for _ in range(r.randint(1, 8))]} for _ in range(4)]
    (folder / "decode.json").write_text(json.dumps({"splits": splits}))
    return max(1e-3, 8 * own_error(model, ids, out))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("number", range(SEED, SEED + COUNT))
def test_hybrid(tmp_path, family, number):
    r = random.Random(f"{family} {number}")
    generator = torch.Generator().manual_seed(r.randrange(1 << 30))
    config = config_of(family, r)
    if family == "qwen3_5":
        model = transformers.Qwen3_5ForConditionalGeneration(wrapped(config))
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.float().eval()
    randomise(model, generator)
    if config.tie_word_embeddings:
        model.tie_weights()
    model.save_pretrained(tmp_path)
    if family == "olmo_hybrid":
        released_form(config, tmp_path / "model.safetensors")
    batch, length = r.choice([1, 1, 2]), r.choice([1, 2, 3, 5, 63, 64, 65, 100, 128, 129, 150])
    ids = torch.randint(0, 90, (batch, length), generator=generator)
    tolerance = record(model, tmp_path, ids, r)
    command = [os.environ["SLUICE"], "verify", str(tmp_path), "--tolerance", f"{tolerance:g}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{config}\n{ids.shape}\n{result.stdout}\n{result.stderr}"
    assert pathlib.Path(tmp_path / "model.safetensors").is_file()
