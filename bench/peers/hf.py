#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode of a model directory by transformers, SDPA attention: the bare loop over a cache, greedy.

    hf.py DIR --threads N [--dtype float32|bfloat16] [--prefill 512] [--decode 128] [--repeat 2]

Prints one JSON object.
"""
import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM


def decode(model, ids, count: int) -> float:
    out = model(ids[:, :4], use_cache=True)
    start = time.perf_counter()
    for _ in range(count):
        out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    for name, default in (("threads", 1), ("prefill", 512), ("decode", 128), ("repeat", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa").eval()
    ids = torch.randint(0, model.config.vocab_size, (1, args.prefill), generator=torch.Generator().manual_seed(7))
    prefills, decodes = [], []
    with torch.no_grad():
        model(ids[:, :16])
        for _ in range(args.repeat):
            start = time.perf_counter()
            model(ids, logits_to_keep=1, use_cache=True)
            prefills.append(time.perf_counter() - start)
            decodes.append(decode(model, ids, args.decode))
    print(json.dumps({"prefill_tokens_per_second": args.prefill / min(prefills),
                      "decode_tokens_per_second": args.decode / min(decodes)}))


if __name__ == "__main__":
    main()
