#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How time and memory grow: with the length of a prompt, of a training window, with batch, parameters and threads.

    growth.py --build build/release --folder FOLDER [--longest 131072] [--output FILE.md]      needs numpy

Every line compares with the line before: the factor of time, the factor that theory allows (multiply-adds: linear layers
grow with the tokens, causal attention with their square), and the memory that was allocated at most. A factor of time more
than 25 % above theory is marked; a short run mostly gets faster per token when it grows.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys

if importlib.util.find_spec("numpy") is None:
    print("left out: growth needs numpy, which makes its models")
    sys.exit()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_models

SMALL = make_models.QWEN35 | {
    "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 2,
    "intermediate_size": 704, "vocab_size": 4096, "layer_types": ["full_attention"] * 2, "max_position_embeddings": 1 << 20,
    "linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "rope_parameters": make_models.ROPE | {"rope_theta": 1e6, "partial_rotary_factor": 1.0, "mrope_section": [11, 11, 10]}}
DELTA = SMALL | {"layer_types": ["linear_attention"] * 2, "linear_num_key_heads": 4, "linear_num_value_heads": 4,
                 "linear_key_head_dim": 64, "linear_value_head_dim": 64}


def run(command: list) -> dict:
    return json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout)


class Table:
    def __init__(self, lines: list):
        self.lines = lines

    def start(self, title: str, first: str) -> None:
        self.before = None
        self.say(f"\n{title}\n\n| {first} | time | factor | theory | memory | factor |\n|---|---|---|---|---|---|")

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def add(self, name, seconds: float, work: float, memory: int) -> None:
        factors = ["", "", ""]
        if self.before:
            time, theory = seconds / self.before[0], work / self.before[1]
            factors = [f"{time:.2f}{' **above**' if time > 1.25 * theory else ''}", f"{theory:.2f}", f"{memory / self.before[2]:.2f}"]
        self.before = (seconds, work, memory)
        unit = f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"
        self.say(f"| {name} | {unit} | {factors[0]} | {factors[1]} | {memory / 1e6:.1f} MB | {factors[2]} |")


def work_of_prompt(config: dict, tokens: int) -> float:
    """Multiply-adds of a prompt, its last logits included; the chunked delta rule counts 64 products with its state a chunk."""
    d, mlp, heads, dim, kv = (config[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "head_dim",
                                                  "num_key_value_heads"))
    work = config["vocab_size"] * d
    for kind in config["layer_types"]:
        work += tokens * 3 * d * mlp
        if kind == "full_attention":
            work += tokens * d * dim * (3 * heads + 2 * kv) + tokens * tokens * heads * dim
        else:
            value = config["linear_num_value_heads"] * config["linear_value_head_dim"]
            work += tokens * d * 5 * value + tokens * value * (3 * 64 + 2 * config["linear_key_head_dim"])
    return work


def prompts(b, table: Table) -> None:
    for name, config in (("gated softmax attention", SMALL), ("gated delta rule", DELTA)):
        folder = os.path.join(b.folder, name.replace(" ", "-"))
        make_models.write_directory(folder, config)
        table.start(f"Prompt of T tokens, {name}, 2 layers of width 256, {b.threads} threads", "T")
        tokens = 1024
        while tokens <= b.longest:
            r = run([b.sluice, "bench", "infer", folder, "--prefill", tokens, "--decode", 0, "--repeat",
                             3 if tokens <= 32768 else 1, "--threads", b.threads, "--json"])
            table.add(tokens, tokens / r["infer"][0]["prefill_tokens_per_second"], work_of_prompt(config, tokens), r["peak_bytes"])
            tokens *= 2
    table.start(f"One token behind D others, gated softmax attention, {b.threads} threads", "D")
    folder = os.path.join(b.folder, "gated-softmax-attention")
    for depth in (0, 4096, 16384, 65536):
        r = run([b.sluice, "bench", "infer", folder, "--prefill", 0, "--decode", 64, "--depth", depth, "--repeat", 1,
                         "--threads", b.threads, "--json"])
        work = work_of_prompt(SMALL, 1) + 2 * 2 * (depth + 32) * 4 * 64
        table.add(depth, 1 / r["infer"][0]["decode_tokens_per_second"], work, r["peak_bytes"])


def train(b, table: Table, first: str, title: str, shapes: list) -> None:
    table.start(title, first)
    for name, shape, threads, work in shapes:
        r = run([b.sluice, "bench", "train", "--shape", shape, "--gates", "elementwise", "--steps", 3, "--warmup", 1,
                         "--threads", threads, "--json"])
        row = r["train"][0]
        table.add(name, row["step_ms"] / 1e3, row["flops"] / work, row["peak_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--folder", default="bench/models", help="for models with random weights")
    parser.add_argument("--longest", type=int, default=131072, help="prompt, in tokens")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", help="write the tables, as Markdown")
    b = parser.parse_args()
    b.sluice = os.path.join(b.build, "sluice")
    machine = run([b.sluice, "bench", "kernels", "--seconds", "0.001", "--json"])["machine"]
    table = Table([])
    table.say(f"{machine['cpu']}, fp32 products {machine['gemm_gflops']:.0f} GFLOP/s, copy {machine['copy_gbs']:.1f} GB/s")
    prompts(b, table)
    train(b, table, "T", f"A training step on one window of T tokens, `small` with an elementwise gate, {b.threads} threads",
          [(t, f"small:1x{t}", b.threads, 1) for t in (256, 512, 1024, 2048, 4096, 8192, 16384)])
    train(b, table, "batch", f"The same on windows of 256 tokens, {b.threads} threads",
          [(n, f"small:{n}x256", b.threads, 1) for n in (1, 2, 4, 8, 16, 32)])
    train(b, table, "model", f"The same of three models, 1024 tokens, {b.threads} threads",
          [(m, f"{m}:4x256", b.threads, 1) for m in ("d512", "small", "124M")])
    train(b, table, "threads", "The same with threads (theory: all of them)",
          [(n, "small:4x256", n, n) for n in range(1, b.threads + 1)])
    if b.output:
        with open(b.output, "w", encoding="utf-8") as f:
            f.write("\n".join(table.lines) + "\n")


if __name__ == "__main__":
    main()
