# SPDX-License-Identifier: Apache-2.0
"""Made-up inspect.json files for the test of the page: what the program writes, without models."""

import base64
import math
import random


def packed(values):
    return base64.b64encode(bytes(round(255 * v) for v in values)).decode()


def share(x):
    return {"all": x + 0.01, "from_1": x, "from_4": x, "from_quarter": x * 0.95}


def head_map(rng, n, sink):
    rows = []
    for q in range(n):
        rest = [rng.random() for _ in range(q)] + [1e-9]
        total = sum(rest) if q else 1
        rows += [sink + (1 - sink) * rest[0] / total if q else 1.0]
        rows += [(1 - sink) * w / total for w in rest[1:] + [rng.random() * 0.01]][:q]
    return packed(min(1, v) for v in rows)


def gate(rng, heads):
    hists = [[rng.randrange(1000) for _ in range(20)] for _ in range(heads)]
    return {
        "mean": 0.12, "std": 0.2, "min": 0.0, "max": 0.99, "below_0.1": 0.7, "below_0.5": 0.9,
        "hist": [sum(h[i] for h in hists) for i in range(20)], "below": 0, "above": 0,
        "heads_mean": [rng.random() * 0.3 for _ in range(heads)], "heads_std": [0.1] * heads,
        "heads_min": [0.0] * heads, "heads_max": [0.9] * heads, "heads_below_0.1": [rng.random() for _ in range(heads)],
        "heads_hist": hists, "quantiles": [0, 0.01, 0.03, 0.06, 0.1, 0.5, 0.9],
    }  # fmt: skip


def place(rng, height, massive):
    top = [
        {"window": i % 8, "position": 0, "channel": 507 if i < 4 else 14, "value": -height / (1 + 0.1 * i)}
        for i in range(8)
    ]
    return {
        "max": height, "median": 0.8 + rng.random(), "mean_square": 3.0, "massive": 8 if massive else 0,
        "token_0": height, "others": height / 3, "top": top,
    }  # fmt: skip


def delta(rng):
    return {
        "decay": 0.9, "decay_min": 0.1, "decay_max": 1.0, "decay_heads": [rng.random() for _ in range(4)], "decay_hist": [5] * 20,
        "beta": 0.4, "beta_min": 0.0, "beta_max": 0.9, "beta_heads": [rng.random() for _ in range(4)], "beta_hist": [5] * 20,
    }  # fmt: skip


def layer(rng, i, layers, heads, kv, gated, experts, hybrid):
    late = i > layers // 3
    sink = [min(1, max(0, (0.5 if late and not gated else 0.05) + rng.gauss(0, 0.1))) for _ in range(heads)]
    height = 20000.0 if late and not gated else 30.0 + i
    numbers = lambda: [rng.random() for _ in range(heads)]  # noqa: E731
    norms = lambda: {"token_0": [rng.random() for _ in range(kv)], "others": [2 + rng.random()] * kv}  # noqa: E731
    small = {f"{w}_{t}": rng.random() for w in ("before", "after", "control") for t in ("0.01", "0.001")}
    return {
        "f_attn": share(sum(sink) / heads),
        "f_attn_heads": {"all": sink, "from_1": sink, "from_quarter": sink},
        "sink_rate_0.3": 0.5, "sink_rate_0.3_64": 0.6,
        "residual": {"max": height, "median": 1.0, "massive": 8 if late and not gated else 0},
        "max_abs": {"attn_out": 5.0, "resid_attn": height, "ffn_out": height, "resid_ffn": height},
        "top3": [height, height / 2, height / 4],
        "first_token_peak": {"token_0": height, "others": 9.0, "median": 1.0},
        "value_norm": norms(), "key_norm": norms(),
        "gate": gate(rng, heads) if gated else None,
        "sparsity": {"mean_abs_before": 0.7, "mean_abs_after": 0.05, **small},
        "max_other_key_share": None,
        "share_queries": [1 / (1 + q) ** 0.3 for q in range(128)],
        "places": {k: place(rng, height, late and not gated) for k in ("attn_out", "resid_attn", "ffn_out", "resid_ffn")},
        "heads": {
            **{k: numbers() for k in ("entropy", "entropy_share", "distance", "self", "previous", "duplicate", "induction")},
            "marked": [None] * heads,
            "kind": [rng.choice(("sink", "other", "previous", "induction")) for _ in range(heads)],
        },
        "distance": [0.1] * 25, "matched_queries": 0.4,
        "router": {"experts": experts, "entropy": 0.9, "max_load": 1.7, "dead": 1, "load": [1 / experts] * experts} if experts else None,
        "delta": delta(rng) if hybrid and i % 2 else None,
        "learned_sink": None,
        "int8_error": {k: {"per_tensor": 0.05, "per_token": 0.01} for k in ("qkv", "o", "up", "down")},
    }  # fmt: skip


def summary(layers):
    mean = sum(l["f_attn"]["from_1"] for l in layers) / len(layers)
    gated = layers[0]["gate"] is not None
    return {
        "windows": 8, "seq_len": 512, "f_attn_mean": share(mean), "sink_rate_0.3_mean": 0.5,
        "sink_rate_0.3_64_mean": 0.6, "loss": {"scored": 4088, "loss": 3.9, "perplexity": math.exp(3.9), "perplexity_half": 41.0},
        "sink_heads": 12, "heads": sum(len(l["f_attn_heads"]["all"]) for l in layers), "m_act_mean": 1234.5,
        "massive_total": sum(l["residual"]["massive"] for l in layers), "gate_mean": 0.12 if gated else None,
    }  # fmt: skip


def brief(layers):
    return {
        **summary(layers),
        "by_layer": {
            "f_attn": [l["f_attn"]["from_1"] / 2 for l in layers],
            "f_attn_heads": [l["f_attn_heads"]["from_1"] for l in layers],
            "max": [l["residual"]["max"] / 3 for l in layers],
            "gate": [None] * len(layers),
        },
    }


def model(name, seed=1, layers=6, heads=4, kv=2, gated=False, tokens=24, step=None, experts=0, changes=(), hybrid=False):
    rng = random.Random(seed)
    all_layers = [layer(rng, i, layers, heads, kv, gated, experts, hybrid) for i in range(layers)]
    texts = [f" word{i}" if i % 5 else "\n" for i in range(tokens)]
    bins, dim = 64, 128
    out = {
        "name": name, "path": "models/" + name, "model_type": "qwen3", "family": "Qwen3", "parameters": 123456,
        "num_hidden_layers": layers, "hidden_size": dim, "max_position_embeddings": 2048,
        "num_attention_heads": [heads] * layers, "num_key_value_heads": [kv] * layers, "sliding_window": [0] * layers,
        "gate": {"position": "sdpa", "granularity": "headwise", "shared": False} if gated else None,
        "interventions": [
            {"name": c, "error": "the model has none"} if c.startswith("!") else {"name": c, "inspect": brief(all_layers)}
            for c in changes
        ],
        "first_token": None, "tokens": 4096, "uniform_share": share(0.0114),
        "origins": {"sink_layer": 3, "sink_layers": 3, "peak": {
            "layer": 2, "place": "ffn_out", "channel": 507, "position": 0, "value": 20000.0, "massive": True}},
        "inspect": {**summary(all_layers), "layers": all_layers},
        "map": {
            "packing": "lower", "tokens": texts,
            "layers": [[head_map(rng, tokens, x) for x in l["f_attn_heads"]["from_1"]] for l in all_layers],
            "gate": [[[rng.random() for _ in texts] for _ in range(heads)] for _ in all_layers] if gated else None,
        },
        "surface": {
            "tokens": texts, "channels": dim, "bins": bins,
            "layers": [{
                "max": l["residual"]["max"], "data": packed(rng.random() ** 4 for _ in range(tokens * bins)),
                "heavy": [{"channel": 57, "position": 0, "value": l["residual"]["max"]}],
            } for l in all_layers],
        },
        "weights": [
            {"name": f"model.layers.{i}.mlp.up_proj.weight", "shape": [512, 128], "per_tensor": 0.02 + 0.01 * i,
             "per_channel": 0.008, "max_over_rms": 12.0} for i in range(layers)],
        "seconds": 1.5,
    }  # fmt: skip
    if step is not None:
        out["step"] = step
    return out


def root(*models, **more):
    return {
        "format": "sluice-inspect-1", "version": "0.1.0", "created": "2026-01-01T00:00:00Z",
        "machine": {"cpu": "a CPU", "threads": 2}, "text": {"name": "book.txt", "bytes": 100000}, "models": list(models), **more,
    }  # fmt: skip


def hostile():
    nasty = "</script><img src=x onerror=alert(1)>"
    made = model(nasty, changes=(nasty,))
    made["map"]["tokens"] = made["surface"]["tokens"] = [nasty if i % 2 else "\u202e\u0000\u2028" for i in range(24)]
    made["interventions"].append({"name": nasty, "error": nasty})
    return root(made, {"name": nasty, "path": nasty, "error": nasty}, map_text=nasty)


def bare():
    """One layer, one head, a text of one token: hardly a number has a value."""
    made = model("bare", layers=1, heads=1, kv=1, tokens=1)
    one = made["inspect"]["layers"][0]
    nothing = {k: None for k in ("all", "from_1", "from_4", "from_quarter")}
    one.update(f_attn=nothing, f_attn_heads={"all": [1.0], "from_1": [None], "from_quarter": [None]}, heads=None, distance=None)
    one.update(share_queries=[1.0], int8_error=None, key_norm={"token_0": [1.0], "others": [None]})
    made["inspect"].update(f_attn_mean=nothing, loss=None, seq_len=1, windows=1, **{"sink_rate_0.3_64_mean": None})
    made.update(weights=[], origins={"sink_layer": None, "sink_layers": 0}, uniform_share=nothing)
    return root(made)


CASES = {
    "one": lambda: root(model("baseline", changes=("massive activations = 0", "window 64, 4 first keys", "!gate = 1")), map_text="a b"),
    "several": lambda: root(model("baseline"), model("gated", 2, gated=True, changes=("gate = 1",)), model("moe", 3, experts=8, hybrid=True)),
    "steps": lambda: root(*(model(f"checkpoints/step-{100 * i}", i, step=100 * i, tokens=8) for i in range(15))),
    "large": lambda: root(model("large", layers=80, heads=64, kv=8, gated=True, tokens=34)),
    "hostile": hostile,
    "bare": bare,
}  # fmt: skip
