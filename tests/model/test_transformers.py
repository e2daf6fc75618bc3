# SPDX-License-Identifier: Apache-2.0
"""Models that Sluice saves open in transformers and give the logits that Sluice computes."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="sluice-test-hf-")  # our class is copied there before it is imported
os.environ["HF_HUB_OFFLINE"] = "1"

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.torch").load_file

TOOL = pathlib.Path(os.environ["SLUICE"]).parent / "tests" / "test_model_export"


@pytest.fixture(scope="session", autouse=True)
def remove_modules():
    yield
    shutil.rmtree(os.environ["HF_HOME"], ignore_errors=True)


SIZES = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
SDPA = {"gate_position": "sdpa"}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
WINDOW = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}

NATIVELY = {  # name: (keys, class of transformers)
    "llama": ({"use_qk_norm": False}, "LlamaForCausalLM"),
    "llama_untied_bias": ({"use_qk_norm": False, "tie_word_embeddings": False, "qkv_bias": True, "o_bias": True}, "LlamaForCausalLM"),
    "llama_llama3": ({"use_qk_norm": False, "rope_parameters": LLAMA3}, "LlamaForCausalLM"),
    "llama_linear": ({"use_qk_norm": False, "rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}},
                     "LlamaForCausalLM"),
    "llama_dynamic": ({"use_qk_norm": False, "max_position_embeddings": 10, "rope_parameters":
                       {"rope_type": "dynamic", "rope_theta": 5000.0, "factor": 2.0}}, "LlamaForCausalLM"),
    "qwen2": ({"use_qk_norm": False, "qkv_bias": True, "rms_norm_eps": 1e-5}, "Qwen2ForCausalLM"),
    "qwen2_window": ({"use_qk_norm": False, "qkv_bias": True, **WINDOW}, "Qwen2ForCausalLM"),
    "qwen3": ({}, "Qwen3ForCausalLM"),
    "qwen3_yarn": ({"rope_parameters": YARN, "max_position_embeddings": 32}, "Qwen3ForCausalLM"),
    "qwen3_longrope": ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
                                            "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.3],
                                            "long_factor": [1.0, 2.0, 3.0, 4.0]}}, "Qwen3ForCausalLM"),
    "qwen3_window": (WINDOW, "Qwen3ForCausalLM"),
    "qwen3_bias": ({"qkv_bias": True, "o_bias": True, "tie_word_embeddings": False}, "Qwen3ForCausalLM"),
    "elementwise": (SDPA, "Qwen3_5ForCausalLM"),
    "headwise": ({**SDPA, "gate_granularity": "headwise"}, "Qwen3_5ForCausalLM"),
    "headwise_untied_partial": ({**SDPA, "gate_granularity": "headwise", "tie_word_embeddings": False,
                                 "partial_rotary_factor": 0.5}, "Qwen3_5ForCausalLM"),
    "headwise_bias": ({**SDPA, "gate_granularity": "headwise", "qkv_bias": True, "o_bias": True}, "Qwen3_5ForCausalLM"),
    "elementwise_yarn": ({**SDPA, "rope_parameters": {**YARN, "partial_rotary_factor": 0.5}}, "Qwen3_5ForCausalLM"),
}
OURS = {
    "partial_rotary": {"partial_rotary_factor": 0.25, "use_qk_norm": False, "tie_word_embeddings": False},
    "no_rope": {"partial_rotary_factor": 0.0},
    "partial_yarn": {"rope_parameters": {**YARN, "partial_rotary_factor": 0.5}},
    "no_qk_norm_gate": {**SDPA, "use_qk_norm": False, "partial_rotary_factor": 0.25},
    "window": {**WINDOW, **SDPA},
    "rope_by_kind": {**WINDOW, "rope_parameters": {"full_attention": {"rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                                                   "sliding_attention": {**YARN, "rope_theta": 300.0}}},
    "sandwich": {"sandwich_norm": True},
    "clip": {"residual_clip": 0.5},
    "silu": {**SDPA, "gate_act": "silu"},
    "ns_sigmoid": {**SDPA, "gate_act": "ns_sigmoid"},
    "softplus": {**SDPA, "gate_act": "softplus"},
    "add_identity": {**SDPA, "gate_op": "add", "gate_act": "identity"},
    "add_silu_headwise": {**SDPA, "gate_op": "add", "gate_act": "silu", "gate_granularity": "headwise"},
    "bias": {**SDPA, "qkv_bias": True, "use_qk_norm": False},
    "dynamic": {"max_position_embeddings": 10, "partial_rotary_factor": 0.5,
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 5000.0, "factor": 2.0}},
    "plain": {},
    "value": {"gate_position": "value"},
    "value_headwise": {"gate_position": "value", "gate_granularity": "headwise"},
    "key": {"gate_position": "key"},
    "query": {"gate_position": "query"},
    "output": {"gate_position": "output"},
    "shared": {**SDPA, "gate_sharing": "shared"},
    "shared_logit": {**SDPA, "gate_sharing": "shared", "gate_share_mean": "logit"},
    "input_none": {**SDPA, "gate_input": "none"},
    "sdpa_norm": {"sdpa_norm": True},
    "sdpa_silu": {"sdpa_silu": True},
    "experts": {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 12},
    "experts_shared": {**SDPA, "num_experts": 4, "norm_topk_prob": True, "num_shared_experts": 2},
    "experts_gated_shared": {"num_experts": 4, "num_shared_experts": 1, "shared_expert_gate": True, "sandwich_norm": True},
    "switch_v": {"switch_head": "v", "switch_experts": 4, "switch_topk": 2},
    "switch_kv": {"switch_head": "kv", "switch_experts": 3, "switch_topk": 3, "gate_position": "value"},
    "gelu": {"mlp_type": "gelu"},
    "gelu_odd": {"mlp_type": "gelu", "hidden_size": 24, "intermediate_size": 37, "head_dim": 6},
}


def write(tmp_path, keys, layout):
    run = subprocess.run([TOOL, "write", tmp_path, json.dumps({**SIZES, **keys}), layout], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return load_file(tmp_path / "logits.safetensors")


def check(tmp_path, golden, remote):
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=remote, dtype=torch.float32)
    ids = golden["input_ids"].long()
    with torch.no_grad():
        got = model(ids).logits
        assert (got - golden["logits"]).abs().max() < 1e-4
        eager = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=remote, dtype=torch.float32,
                                                                  attn_implementation="eager")
        assert (eager(ids).logits - golden["logits"]).abs().max() < 1e-4
    return model, ids


def check_generate(model, ids):
    """Greedy generation with the KV cache chooses what the model without one chooses."""
    with torch.no_grad():
        out = model.generate(ids[:1, :9], max_new_tokens=10, do_sample=False, eos_token_id=None, pad_token_id=0)
        plain = ids[:1, :9]
        for _ in range(10):
            plain = torch.cat((plain, model(plain, use_cache=False).logits[:, -1:].argmax(-1)), dim=1)
    assert out.tolist() == plain.tolist()


@pytest.mark.parametrize("name", NATIVELY)
def test_class_of_transformers(tmp_path, name):
    keys, expected = NATIVELY[name]
    golden = write(tmp_path, keys, "auto")
    assert not list(tmp_path.glob("*.py"))
    model, _ = check(tmp_path, golden, remote=False)
    assert type(model).__name__ == expected


@pytest.mark.parametrize("name", OURS)
def test_own_class(tmp_path, name):
    golden = write(tmp_path, OURS[name], "native")
    model, ids = check(tmp_path, golden, remote=True)
    assert type(model).__name__ == "SluiceForCausalLM"
    if name != "dynamic":  # whose frequencies change with the length, cached keys keep the old ones
        check_generate(model, ids)


def test_own_class_saved_by_transformers(tmp_path):
    """transformers writes our class back, with its code, and Sluice's logits stay."""
    (tmp_path / "a").mkdir()
    golden = write(tmp_path / "a", {**SDPA, "use_qk_norm": False}, "native")
    model, _ = check(tmp_path / "a", golden, remote=True)
    model.save_pretrained(tmp_path / "b")
    check(tmp_path / "b", golden, remote=True)


def test_own_class_trains(tmp_path):
    golden = write(tmp_path, {**SDPA, "use_qk_norm": False}, "native")
    model, ids = check(tmp_path, golden, remote=True)
    loss = model(ids, labels=ids).loss
    loss.backward()
    expected = torch.nn.functional.cross_entropy(golden["logits"][:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - expected.item()) < 1e-4
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# The other way: what transformers and torch write is read by Sluice.
HF = {**{k: SIZES[k] for k in SIZES if k != "head_dim"}, "hidden_size": 32}
ROPE = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16}}
SAVED = {
    "llama": (transformers.LlamaConfig, {"attention_bias": True, "tie_word_embeddings": True}, {}),
    "llama_shards": (transformers.LlamaConfig, {}, {"max_shard_size": "8kB"}),
    "qwen2_window": (transformers.Qwen2Config, {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}, {}),
    "qwen3_yarn": (transformers.Qwen3Config, {"head_dim": 16, **ROPE}, {}),
    "qwen3_5": (transformers.Qwen3_5TextConfig, {"head_dim": 16, "layer_types": ["full_attention"] * 2}, {}),
    "qwen3_5_interval": (transformers.Qwen3_5TextConfig, {"head_dim": 16, "full_attention_interval": 1}, {}),
}


def transformers_model(name):
    config_class, extra, _ = SAVED[name]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config_class(**HF, **extra)).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "norm" in key and "qwen3_5" not in name else 0.0))
    return model


def compare(tmp_path, model):
    run = subprocess.run([TOOL, "logits", tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    got = load_file(tmp_path / "logits.safetensors")
    with torch.no_grad():
        assert (model(got["input_ids"].long()).logits - got["logits"]).abs().max() < 1e-4


@pytest.mark.parametrize("name", SAVED)
def test_read_what_transformers_saves(tmp_path, name):
    model = transformers_model(name)
    model.save_pretrained(tmp_path, **SAVED[name][2])
    if "shards" in name:
        assert not (tmp_path / "model.safetensors").exists()
    compare(tmp_path, model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("zipped", [True, False])
def test_read_what_torch_saves(tmp_path, dtype, zipped):
    model = transformers_model("llama")
    with torch.no_grad():
        for p in model.parameters():  # not model.to(dtype), which would round RoPE's buffers as well
            p.copy_(p.to(dtype))
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = {k: v.to(dtype) for k, v in model.state_dict().items()}
    wide = torch.cat([state["model.layers.0.self_attn.k_proj.weight"], state["model.layers.0.self_attn.v_proj.weight"]])
    rows = len(wide) // 2
    state["model.layers.0.self_attn.k_proj.weight"], state["model.layers.0.self_attn.v_proj.weight"] = wide[:rows], wide[rows:]
    state["model.layers.1.mlp.down_proj.weight"] = state["model.layers.1.mlp.down_proj.weight"].t().contiguous().t()
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    compare(tmp_path, model)


def test_trained_with_parameters_in_the_pickle(tmp_path):
    """nn.Parameter objects and an OrderedDict with _metadata, as careless scripts save them."""
    model = transformers_model("qwen3_yarn")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = model.state_dict(keep_vars=True)
    assert hasattr(state, "_metadata")
    torch.save(state, tmp_path / "pytorch_model.bin")
    compare(tmp_path, model)
