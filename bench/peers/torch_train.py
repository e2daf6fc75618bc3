#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of plain PyTorch: forward, loss in fp32, backward, clipping by the global norm, fused AdamW.

    torch_train.py 124M:4x64 --dtype float32|bf16 --how eager|compile --threads N --steps N

The model is that of `sluice bench train`: RMSNorm, rotary positions, SwiGLU, tied head; bf16 is autocast. Prints one JSON object.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {"124M": (12, 768, 12, 2048, 50304), "small": (6, 256, 4, 704, 4096)}  # layers, hidden, heads, MLP, vocabulary


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, mlp: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden, eps=1e-6) for _ in range(2))
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * mlp, bias=False)
        self.down = nn.Linear(mlp, hidden, bias=False)

    def forward(self, x, cos, sin):
        def rotate(u):
            a, b = u.chunk(2, -1)
            return (u * cos + torch.cat((-b, a), -1) * sin).type_as(u)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, name: str, length: int):
        super().__init__()
        layers, hidden, heads, mlp, vocab = MODELS[name]
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        dim = hidden // heads
        angle = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, dim, 2).float() / dim)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bf16"])
    parser.add_argument("--how", default="eager", choices=["eager", "compile"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    name, size = args.shape.split(":")
    batch, length = map(int, size.split("x"))
    model = Model(name, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    call = torch.compile(model) if args.how == "compile" else model
    ids = torch.randint(0, MODELS[name][4], (batch, length + 1))
    times, adamw = [], []
    for step in range(args.steps + 2):  # two to warm up
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = call(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        if step >= 2:
            times.append(end - start)
            adamw.append(end - before)
    print(json.dumps({"tokens_per_second": batch * length / min(times), "adamw_ms": 1e3 * min(adamw)}))


if __name__ == "__main__":
    main()
