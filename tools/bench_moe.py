#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a mixture of experts in plain PyTorch, beside `sluice bench train --shape moe:BxT`: the same sizes, a
Python loop over experts that gathers their tokens (index_add back), router losses, clipping at 1, fused AdamW.

    python3 tools/bench_moe.py --threads 1 --shape 4x128 8x256
    sluice bench train --threads 1 --shape moe:4x128 --gates none

Absolute speeds of shared machines move: run both in turn and compare the best steps."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, D, HEADS, HEAD_DIM, EXPERTS, TOP, WIDTH, VOCAB = 4, 256, 4, 64, 32, 4, 176, 4096


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x):
        return F.rms_norm(x, (D,), self.weight, 1e-6)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(D, 2 * WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, D, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x, losses):
        logits = self.router(x)
        prob = logits.softmax(-1)
        weight, choice = prob.topk(TOP, dim=-1)
        share = torch.bincount(choice.flatten(), minlength=EXPERTS) / choice.numel()
        losses.append(0.01 * EXPERTS * (share * prob.mean(0)).sum() + 0.001 * logits.logsumexp(-1).square().mean())
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = (choice == e).nonzero(as_tuple=True)
            if len(token):
                y = y.index_add(0, token, expert(x[token]) * weight[token, slot, None])
        return y


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.mlp = Norm(), Norm(), Mixture()
        self.qkv = nn.Linear(D, 3 * HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, D, bias=False)

    def forward(self, h, cos, sin, losses):
        b, t, _ = h.shape
        q, k, v = self.qkv(self.norm1(h)).view(b, t, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return h + self.mlp(self.norm2(h).flatten(0, 1), losses).view_as(h)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(LAYERS)), Norm()

    def forward(self, ids, labels):
        t = ids.shape[1]
        angle = torch.outer(torch.arange(t).float(), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        losses, h = [], self.embed(ids)
        for layer in self.layers:
            h = layer(h, angle.cos(), angle.sin(), losses)
        logits = F.linear(self.norm(h), self.embed.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), labels.flatten()) + sum(losses)


def measure(shape, steps, warmup):
    batch, length = map(int, shape.split("x"))
    torch.manual_seed(1)
    model = Model()
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, labels = torch.randint(VOCAB, (2, batch, length))
    seconds = []
    for step in range(warmup + steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(ids, labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    tokens = batch * length
    return {
        "shape": "moe:" + shape,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_second": round(tokens / min(seconds), 1),
        "tokens_per_second_median": round(tokens / statistics.median(seconds), 1),
        "step_ms": round(1e3 * min(seconds), 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", nargs="*", default=["4x128", "8x256"])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(json.dumps({"torch": torch.__version__, "cpu": cpu, "threads": options.threads}))
    for shape in options.shape:
        print(json.dumps(measure(shape, options.steps, options.warmup)), flush=True)


if __name__ == "__main__":
    main()
