# SPDX-License-Identifier: Apache-2.0
"""Small models with random options of every family that transformers has: what it computes, recorded by
tools/make_reference.py, has to come out of `sluice verify`, through the cache as well. SLUICE_RANDOM_MODELS is the
number of models of each family (default 2), SLUICE_RANDOM_SEED where to start."""
import json
import os
import pathlib
import random
import subprocess
import sys
import zlib

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
save_file = pytest.importorskip("safetensors.torch").save_file
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
make_reference = pytest.importorskip("make_reference")

MODELS = int(os.environ.get("SLUICE_RANDOM_MODELS", "2"))
SEED = int(os.environ.get("SLUICE_RANDOM_SEED", "0"))
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


# ---- options -------------------------------------------------------------------------------------------------------

def maybe(rng, p=0.5):
    return rng.random() < p


def sizes(rng, head_dims=(8, 16)):
    kv = rng.choice([1, 2])
    return {"vocab_size": rng.choice([61, 96]), "hidden_size": rng.choice([24, 32]) * 2, "intermediate_size": rng.choice([40, 56]),
            "num_hidden_layers": rng.choice([2, 3, 4]), "num_attention_heads": kv * rng.choice([1, 2, 4]),
            "num_key_value_heads": kv, "head_dim": rng.choice(head_dims), "max_position_embeddings": rng.choice([32, 128]),
            "rms_norm_eps": rng.choice([1e-6, 1e-5]), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            "tie_word_embeddings": maybe(rng)}


def rope(rng, dim, kinds=("default", "linear", "dynamic", "yarn", "llama3", "longrope")):
    kind = rng.choice(kinds)
    p = {"rope_type": kind, "rope_theta": rng.choice([1e4, 5e5])}
    if kind != "default":
        p["factor"] = rng.choice([2.0, 4.0])
    if kind in ("yarn", "llama3", "longrope"):
        p["original_max_position_embeddings"] = 16
    if kind == "yarn":
        p.update(rng.choice([{}, {"truncate": False}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 1.2},
                             {"mscale": 0.8, "mscale_all_dim": 0.6}]))
    if kind == "llama3":
        p.update({"low_freq_factor": 1.0, "high_freq_factor": 4.0})
    if kind == "longrope":
        p["short_factor"] = [1 + 0.05 * i for i in range(dim // 2)]
        p["long_factor"] = [1 + 0.5 * i for i in range(dim // 2)]
    return p


def plain_act(rng):
    return {} if maybe(rng, 0.7) else {"hidden_act": rng.choice(["gelu", "gelu_pytorch_tanh"])}


def llama(rng):
    c = {**sizes(rng), "attention_bias": maybe(rng), "mlp_bias": maybe(rng), **plain_act(rng)}
    c["hidden_size"] = 16 * c["num_attention_heads"]
    c["rope_parameters"] = rope(rng, c["head_dim"])
    return c


def windows(rng, c):
    c.update(rng.choice([{}, {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
                         {"use_sliding_window": True, "sliding_window": 7, "layer_types":
                          [rng.choice(["full_attention", "sliding_attention"]) for _ in range(c["num_hidden_layers"])]}]))
    return c


def qwen2(rng):
    c = sizes(rng)
    del c["head_dim"]
    c["hidden_size"] = 8 * c["num_attention_heads"]
    c["rope_parameters"] = rope(rng, 8)
    return windows(rng, c)


def qwen3(rng):
    c = {**sizes(rng), "attention_bias": maybe(rng), **plain_act(rng)}
    c["rope_parameters"] = rope(rng, c["head_dim"])
    return windows(rng, c)


def experts(rng):
    n = rng.choice([4, 6])
    return {"num_experts": n, "num_experts_per_tok": rng.choice([1, 2, 3]), "moe_intermediate_size": rng.choice([12, 16])}


def qwen3_moe(rng):
    c = {**sizes(rng), **experts(rng), "norm_topk_prob": maybe(rng), "decoder_sparse_step": rng.choice([1, 2]),
         "mlp_only_layers": rng.choice([[], [0]]), "attention_bias": maybe(rng)}
    c.update(rng.choice([{}, {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 9}]))
    c["rope_parameters"] = rope(rng, c["head_dim"])
    return c


def qwen2_moe(rng):
    c = {**qwen2(rng), **experts(rng), "shared_expert_intermediate_size": rng.choice([16, 20]), "norm_topk_prob": maybe(rng),
         "qkv_bias": maybe(rng), "decoder_sparse_step": rng.choice([1, 2])}
    c.pop("layer_types", None)
    return c


def smollm3(rng):
    c = {**sizes(rng), "attention_bias": maybe(rng), "mlp_bias": maybe(rng)}
    c["hidden_size"] = c["head_dim"] * c["num_attention_heads"]
    del c["head_dim"]
    c.update(rng.choice([{}, {"no_rope_layer_interval": 2},
                         {"no_rope_layers": [rng.choice([0, 1]) for _ in range(c["num_hidden_layers"])]}]))
    c.update(rng.choice([{}, {"use_sliding_window": True, "sliding_window": 6}]))
    c["rope_parameters"] = rope(rng, 8, ("default", "yarn", "linear"))
    if maybe(rng, 0.3):
        del c["rope_parameters"]
    return c


def mistral(rng):
    c = {**sizes(rng), "sliding_window": rng.choice([None, 6, 4096])}
    c["rope_parameters"] = rope(rng, c["head_dim"], ("default", "yarn", "linear"))
    return c


def mixtral(rng):
    return {**mistral(rng), "num_local_experts": rng.choice([3, 5]), "num_experts_per_tok": 2}


def afmoe(rng):
    c = {**sizes(rng), **experts(rng), "num_shared_experts": rng.choice([1, 2]), "num_dense_layers": rng.choice([0, 1, 2]),
         "route_scale": rng.choice([1.0, 2.826]), "mup_enabled": maybe(rng), "sliding_window": rng.choice([5, 9]),
         "global_attn_every_n_layers": rng.choice([2, 4]), "attention_bias": maybe(rng)}
    if maybe(rng):
        c["layer_types"] = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]
    c["rope_parameters"] = rope(rng, c["head_dim"], ("default", "yarn", "linear"))
    return c


def gpt_oss(rng):
    c = {**sizes(rng), "num_local_experts": rng.choice([3, 5]), "num_experts_per_tok": rng.choice([1, 2]), "sliding_window": 6,
         "attention_bias": maybe(rng, 0.8)}
    if maybe(rng):
        c["layer_types"] = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]
    if maybe(rng, 0.7):
        c["rope_parameters"] = rope(rng, c["head_dim"], ("default", "yarn"))
    return c


def by_type(rng, dim, types):
    p = {}
    for kind in sorted(set(types)):
        partial = rng.choice([0.5, 1.0])
        p[kind] = {**rope(rng, int(dim * partial), ("default", "yarn", "llama3")), "partial_rotary_factor": partial}
    return p


def laguna(rng):
    c = {**sizes(rng), **experts(rng), "shared_expert_intermediate_size": rng.choice([16, 20]), "attention_bias": maybe(rng),
         "gating": rng.choice([True, "per-head", "per-element"]), "sliding_window": 5,
         "moe_routed_scaling_factor": rng.choice([1.0, 2.5]), "moe_router_logit_softcapping": rng.choice([0.0, 2.0])}
    n = c["num_hidden_layers"]
    types = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(n)]
    if maybe(rng, 0.8):
        c["layer_types"] = types
    c["rope_parameters"] = by_type(rng, c["head_dim"], types + ["full_attention", "sliding_attention"])
    if "layer_types" in c and maybe(rng):
        c["num_attention_heads_per_layer"] = [c["num_key_value_heads"] * rng.choice([1, 2, 3]) for _ in range(n)]
    if maybe(rng):
        c["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(n)]
    return c


def step(rng):
    c = {**sizes(rng), "sliding_window": 6, "moe_num_experts": rng.choice([4, 6]), "moe_top_k": 2,
         "moe_intermediate_size": 16, "share_expert_dim": 24, "moe_router_scaling_factor": rng.choice([1.0, 3.0]),
         "attention_bias": maybe(rng)}
    n = c["num_hidden_layers"] = 4
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    c["num_attention_groups"] = c.pop("num_key_value_heads")
    mtp = rng.choice([0, 2])
    c["layer_types"] = types + ["sliding_attention"] * mtp
    if mtp:
        c["num_nextn_predict_layers"] = mtp
    c["rope_theta"] = [{"full_attention": 5e6, "sliding_attention": 1e4}[t] for t in c["layer_types"]]
    c["partial_rotary_factors"] = [{"full_attention": 0.5, "sliding_attention": 1.0}[t] for t in c["layer_types"]]
    if maybe(rng):
        c["rope_scaling"] = {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 16,
                             "low_freq_factor": 1.0, "high_freq_factor": 32.0}
        c["yarn_only_types"] = ["full_attention"]
    if maybe(rng):
        c["attention_other_setting"] = {"attention_type": "sliding_attention", "num_attention_groups": c["num_attention_groups"],
                                        "num_attention_heads": 3 * c["num_attention_groups"], "head_dim": c["head_dim"]}
    if maybe(rng, 0.7):
        c["moe_layers_enum"] = rng.choice(["1,2,3", "2", "0,3"])
    if maybe(rng):
        c["swiglu_limits"] = [rng.choice([0.0, 1.5, None]) for _ in range(n + mtp)]
        c["swiglu_limits_shared"] = [rng.choice([0.0, 2.0]) for _ in range(n + mtp)]
    c["query_pre_attn_scalar"] = rng.choice([c["head_dim"], 24])
    return {"model_type": "step3p7", "text_config": {"model_type": "step3p5", **c},
            "vision_config": {"hidden_size": 16, "width": 16, "layers": 1, "heads": 2, "image_size": 28, "patch_size": 14},
            "tie_word_embeddings": c["tie_word_embeddings"]}


def muse(rng):
    c = {**sizes(rng), "sliding_window": 6, "qk_scale_factor": rng.choice([1.0, 3.87]), "post_norm_eps": rng.choice([1e-8, 1e-5]),
         "output_multiplier": rng.choice([0.2, 2.0]), "final_logit_softcapping": rng.choice([5.0, 20.0]),
         "attention_bias": maybe(rng), "hidden_activation": rng.choice(["silu", "gelu_pytorch_tanh"])}
    n = c["num_hidden_layers"]
    c["hidden_size"] = c["num_attention_heads"] * 16
    c["rope_parameters"] = rope(rng, c["head_dim"], ("default", "yarn", "linear"))
    if maybe(rng):
        c["layer_rope_theta"] = [rng.choice([0, 1e4]) for _ in range(n)]
    if maybe(rng):
        c["layer_types"] = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(n)]
    vision = {"model_type": "muse_glimmer_vision", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4, "patch_temporal": 2,
              "max_position_embeddings": 16, "merge_size": 2, "layer_types": ["full_attention"]}
    return {"model_type": "muse_glimmer", "text_config": {"model_type": "muse_glimmer_text", **c}, "vision_config": vision,
            "image_token_id": 5, "video_token_id": 6, "out_hidden_size": 64, "projector_hidden_size": 16,
            "tie_word_embeddings": c["tie_word_embeddings"]}


FAMILIES = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "qwen3_moe": qwen3_moe, "qwen2_moe": qwen2_moe, "smollm3": smollm3,
            "mistral": mistral, "mixtral": mixtral, "afmoe": afmoe, "gpt_oss": gpt_oss, "laguna": laguna, "step3p7": step,
            "muse_glimmer": muse}


# ---- models --------------------------------------------------------------------------------------------------------

def fill(model, seed):
    """No part inert: peaked attention, spread gates, norms around 1 (or 0), biases that matter."""
    named = dict(model.named_parameters())
    named.update({k: b for k, b in model.named_buffers() if k.endswith("e_score_correction_bias")})
    with torch.no_grad():
        for name, p in named.items():
            g = torch.Generator().manual_seed(seed * 1000003 + zlib.crc32(name.encode()))
            x = torch.randn(p.shape, generator=g)
            if "norm" in name and p.ndim == 1:
                p.copy_(0.3 * x if p.abs().max() == 0 else 1 + 0.3 * x)
            elif p.ndim == 1:
                p.copy_(0.3 * x)
            elif "embed_tokens" in name:
                p.copy_(x)
            else:
                stacked = "experts" in name and p.ndim == 3
                fan = p.shape[1] if stacked and "GptOss" in type(model).__name__ else p.shape[-1]
                p.copy_(x * (1.5 if any(n in name for n in ("q_proj", "k_proj", "gate.weight", "router")) else 1.1) / fan ** 0.5)


def new_model(raw, folder):
    (folder / "config.json").write_text(json.dumps(raw))
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    text_only = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    auto = transformers.AutoModelForCausalLM if text_only else transformers.AutoModelForImageTextToText
    return auto.from_config(config).float().eval()


def store(model, raw, folder, form):
    """save: as save_pretrained writes it. raw: its weights beside the configuration as a publisher wrote it. fused: names
    as in memory."""
    if form == "fused":
        tied = model.config.get_text_config().tie_word_embeddings
        save_file({k: v.contiguous().clone() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")},
                  str(folder / "model.safetensors"), metadata={"format": "pt"})
    else:
        model.save_pretrained(folder)
    if form == "flat":
        raw = {**raw["text_config"]}
    if form != "save":
        (folder / "config.json").write_text(json.dumps(raw))


def forms_of(family):
    if family == "step3p7":
        return ["raw", "save", "flat"]
    if family == "muse_glimmer":
        return ["raw", "save"]
    return ["raw", "save", "fused"]


@pytest.mark.parametrize("number", range(MODELS))
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, number, tmp_path):
    seed = SEED + number
    rng = random.Random(f"{family} {seed}")
    raw = {"model_type": family, **FAMILIES[family](rng)}
    form = forms_of(family)[(seed + zlib.crc32(family.encode())) % len(forms_of(family))]
    model = new_model(raw, tmp_path)
    fill(model, seed)
    store(model, raw, tmp_path, form)
    ids = make_reference.random_ids(model, rng.choice([1, 2]), 24, seed)
    make_reference.write(tmp_path, make_reference.load(tmp_path), ids, [[1], [5, 1, 9]], 0)
    run = subprocess.run([os.environ["SLUICE"], "verify", tmp_path, "--threads", "1"], capture_output=True, text=True)
    assert run.returncode == 0, f"{form} {json.dumps(raw)}\n{run.stdout}\n{run.stderr}"


def test_command(tmp_path):
    """The recorder as a program: a directory of links, and what is missing is an error."""
    tool = pathlib.Path(make_reference.__file__)
    raw = {"model_type": "qwen3", **qwen3(random.Random(4)), "tie_word_embeddings": True}
    source = tmp_path / "model"
    source.mkdir()
    model = new_model(raw, source)
    fill(model, 1)
    store(model, raw, source, "raw")
    call = [sys.executable, tool, source, "--out", tmp_path / "case", "--ids", "3,1,4,1,5,9,2,6", "--greedy", "3"]
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "case" / "greedy.json").exists() and not (source / "golden.safetensors").exists()
    run = subprocess.run([os.environ["SLUICE"], "verify", tmp_path / "case"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (source / "model.safetensors").unlink()
    save_file({"model.embed_tokens.weight": model.model.embed_tokens.weight.detach().clone()},
              str(source / "model.safetensors"), metadata={"format": "pt"})
    call[4] = tmp_path / "other"
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode != 0 and "missing" in run.stderr
