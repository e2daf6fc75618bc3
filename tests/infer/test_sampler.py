# SPDX-License-Identifier: Apache-2.0
"""The sampling filters against transformers' processors in the order of generate(), on random logits with ties, extreme
values and tokens that are already filtered."""
import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers.generation import logits_process as lp  # noqa: E402


def reference(params, logits, history):
    scores, ids = logits[None].clone(), torch.tensor([history], dtype=torch.long)
    for token in set(history):
        scores[0, token] -= params.get("presence_penalty", 0) + params.get("frequency_penalty", 0) * history.count(token)
    steps = [("repetition_penalty", lambda x: lp.RepetitionPenaltyLogitsProcessor(penalty=x)),
             ("temperature", lp.TemperatureLogitsWarper), ("top_k", lp.TopKLogitsWarper), ("top_p", lp.TopPLogitsWarper),
             ("min_p", lp.MinPLogitsWarper), ("typical_p", lp.TypicalLogitsWarper)]
    for name, make in steps:
        if name in params and (name != "repetition_penalty" or history):
            scores = make(params[name])(ids, scores)
    return torch.softmax(scores.double(), -1)[0]


def logits_of(kind, generator, size):
    z = torch.randn(size, generator=generator) * 3
    if kind == "ties":
        z = torch.randint(-2, 3, (size,), generator=generator).float()
    elif kind == "equal":
        z = torch.zeros(size)
    elif kind == "extreme":
        z = z * torch.tensor([1e-3, 1.0, 30.0, 1e4])[torch.randint(0, 4, (size,), generator=generator)]
    elif kind == "filtered":
        z[torch.rand(size, generator=generator) < 0.4] = -float("inf")
        z[0] = 0.5
    elif kind == "peaked":
        z[int(torch.randint(0, size, (1,), generator=generator))] = 60
    return z


CHOICES = {"temperature": [0.1, 0.5, 0.7, 1.3, 5.0], "top_k": [1, 2, 5, 20, 1000], "top_p": [0.01, 0.1, 0.5, 0.8, 0.9, 0.95, 0.999],
           "min_p": [0.01, 0.05, 0.1, 0.5, 1.0], "typical_p": [0.05, 0.2, 0.5, 0.9, 0.95, 0.999],
           "repetition_penalty": [0.7, 1.1, 1.5, 3.0], "presence_penalty": [0.5, -1.0], "frequency_penalty": [0.25, 1.0]}


def draw_params(generator):
    pick = lambda n: int(torch.randint(0, n, (1,), generator=generator))  # noqa: E731
    return {name: values[pick(len(values))] for name, values in CHOICES.items() if pick(3) == 0}


@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "extreme", "filtered", "peaked"])
def test_distribution(kind):
    process = subprocess.Popen([os.environ["SLUICE_SAMPLE"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    generator = torch.Generator().manual_seed(len(kind))
    for _ in range(400):
        size = [2, 7, 50, 300][int(torch.randint(0, 4, (1,), generator=generator))]
        logits = logits_of(kind, generator, size)
        history = torch.randint(0, size, (int(torch.randint(0, 12, (1,), generator=generator)),), generator=generator).tolist()
        params = draw_params(generator)
        line = {"params": params, "history": history, "logits": [None if x == -float("inf") else x for x in logits.tolist()]}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        got = torch.tensor(json.loads(process.stdout.readline())["probs"], dtype=torch.double)
        want = reference(params, logits, history)
        if "typical_p" in params and not torch.equal(want > 0, reference(params, logits.double(), history) > 0):
            continue  # which tokens are nearest to the entropy is a matter of rounding here
        # Which of several equal logits top-p keeps is left to torch's sort, which is not stable: compare without names.
        got, want = got.sort().values, want.sort().values
        assert (got[want == 0] == 0).all() and (got[want > 1e-37] > 0).all(), (params, logits, history, got, want)
        assert (got - want).abs().max() < 2e-6, (params, logits, history, got, want)
    process.stdin.close()
    assert process.wait() == 0
