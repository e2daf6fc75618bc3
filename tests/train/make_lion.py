# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/train/lion.json: six updates of Lion by a transcription of its paper (Chen et al. 2023, algorithm 2)
into PyTorch, in double, on values that a float holds. Run from the root of the repository."""
import json
import torch

LR, BETA1, BETA2, DECAY, SCALE, COUNT, STEPS = 0.01, 0.9, 0.99, 0.3, 0.5, 37, 6


def lion(p, m, g):
    """One update of a tensor; p and m change in place."""
    update = m.mul(BETA1).add(g, alpha=1 - BETA1).sign()
    p.mul_(1 - LR * DECAY).add_(update, alpha=-LR)
    m.mul_(BETA2).add_(g, alpha=1 - BETA2)


torch.manual_seed(7)
p = torch.randn(COUNT).double()
m = torch.zeros(COUNT).double()
grads = [torch.randn(COUNT).double() for _ in range(STEPS)]
for g in grads[2:]:
    g[:3] = 0  # a parameter without gradient
grads[0][0] = 0  # and one that never had one
grads[1][0] = 0
out = {"learning_rate": LR, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "grad_scale": SCALE,
       "start": p.tolist(), "gradients": [g.tolist() for g in grads]}
for g in grads:
    lion(p, m, g * SCALE)
out["parameters"], out["momentum"] = p.tolist(), m.tolist()
with open("tests/data/train/lion.json", "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")
