#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of this project and of PyTorch in turn: causal, fp32, q, k, v inside one fused row.

    bench/attention.py PROGRAM [--threads N] [--rounds R]      needs torch

PROGRAM is test_kernels_attention of a release build. Prints the best time of each over all rounds.
One thread is measured in processor time, several in wall time.
"""
import argparse
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
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
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
