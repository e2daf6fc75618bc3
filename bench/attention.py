#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of this project and of PyTorch in turn: causal, fp32, q, k, v inside one fused row.

    bench/attention.py PROGRAM [--threads N] [--rounds R]      needs torch
    bench/attention.py PROGRAM --shape 1x4096x2x64 --who ours|torch      one of them, as JSON, for compare.py

PROGRAM is test_kernels_attention of a release build. Prints the best time of each over all rounds.
One thread is measured in processor time, several in wall time.
"""
import argparse
import json
import re
import subprocess
import time

import torch

SHAPES = [(8, 64, 2, 32), (8, 64, 12, 64), (2, 256, 4, 64)] + [
    (1, length, heads, dim) for length, heads in ((1024, 4), (4096, 2)) for dim in (32, 64, 128)]


def ours(program: str, threads: int, shape: tuple) -> tuple:
    out = subprocess.run([program, "--bench", str(threads), *map(str, shape)], check=True, text=True,
                         capture_output=True).stdout
    return tuple(float(x) * 1e-6 for x in re.search(r"none +forward +([\d.]+) .*backward +([\d.]+) ", out).groups())


def best(call, seconds: float, clock) -> float:
    least, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        start = clock()
        call()
        least = min(least, clock() - start)
    return least


def torchs(threads: int, shape: tuple) -> tuple:
    batch, length, heads, dim = shape
    clock = time.thread_time if threads == 1 else time.perf_counter
    rows = torch.randn(batch, length, 4 * heads * dim)
    q, k, v = (rows[..., i * heads * dim:(i + 1) * heads * dim].unflatten(-1, (heads, dim)).transpose(1, 2)
               .detach().requires_grad_() for i in range(3))
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def forward():
        with torch.no_grad():
            sdpa(q, k, v, is_causal=True)
    y = sdpa(q, k, v, is_causal=True)
    grad = torch.randn_like(y)
    back = best(lambda: torch.autograd.grad(y, (q, k, v), grad, retain_graph=True), 0.7, clock)
    return best(forward, 0.7, clock), back


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", help="batch x length x heads x head_dim")
    parser.add_argument("--who", choices=["ours", "torch"])
    args = parser.parse_args()
    if (args.shape is None) != (args.who is None):
        parser.error("--shape and --who go together")
    torch.set_num_threads(args.threads)
    if args.shape:
        shape = tuple(map(int, args.shape.split("x")))
        forward, backward = ours(args.program, args.threads, shape) if args.who == "ours" else torchs(args.threads, shape)
        print(json.dumps({"forward": forward, "backward": backward}))
        return
    print("| batch x length x heads x head_dim | forward | PyTorch | ratio | backward | PyTorch | ratio |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        runs = [(ours(args.program, args.threads, shape), torchs(args.threads, shape)) for _ in range(args.rounds)]
        f, b = (min(r[0][i] for r in runs) for i in (0, 1))
        tf, tb = (min(r[1][i] for r in runs) for i in (0, 1))
        print(f"| {' x '.join(map(str, shape))} | {f * 1e6:.0f} us | {tf * 1e6:.0f} us | {tf / f:.2f} | {b * 1e6:.0f} us | "
              f"{tb * 1e6:.0f} us | {tb / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()
