#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts models to GGUF with sluice and compares the logits of llama.cpp (llama-cpp-python) with those of transformers.

    python tools/gguf_agreement.py --sluice build/release/sluice DIR [DIR ...]

Each DIR is a Hugging Face directory; what `sluice train` writes into run/model is one (gated models get a neutral layer on
the way, without which llama.cpp aborts: docs/gguf.md). For every type the file is opened by llama.cpp, fed the same token ids, and the largest
difference of logits is printed together with that to transformers in fp32 on the original directory. Results of the run
that docs/gguf.md shows were made with llama-cpp-python 0.3.36 and transformers 5.18. llama.cpp keeps keys and values as F16
unless told otherwise; here they are F32.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def llama_logits(path, ids):
    from llama_cpp import llama_cpp as L

    L.llama_backend_init()
    params = L.llama_model_default_params()
    params.n_gpu_layers = 0
    model = L.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"llama.cpp cannot open {path}")
    context = L.llama_context_default_params()
    context.n_ctx = context.n_batch = 512
    context.n_threads = context.n_threads_batch = 2
    context.type_k = context.type_v = 0  # F32
    context.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    ctx = L.llama_init_from_model(model, context)
    size = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    batch = L.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    if L.llama_decode(ctx, batch):
        sys.exit(f"llama.cpp cannot run {path}")
    return np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), shape=(size,)).copy() for i in range(len(ids))])


def reference_logits(path, ids):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def run_alone(function, path, ids):
    """In a process of its own: a crash of one model must not end the run."""
    code = f"import sys, json, numpy as np; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); " \
           f"import gguf_agreement as g; np.save(sys.argv[2], g.{function}(sys.argv[1], json.loads(sys.argv[3])))"
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        done = subprocess.run([sys.executable, "-c", code, path, out.name, json.dumps(ids)], capture_output=True)
        return np.load(out.name) if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--types", nargs="+", default=["F32", "F16", "BF16", "Q8_0"])
    parser.add_argument("directories", nargs="+", metavar="DIR")
    args = parser.parse_args()
    ids = list(range(5, 37))
    print(f"{'model':28} {'type':5} {'largest |logit|':>15} {'largest difference':>19} {'relative':>9}")
    for path in args.directories:
        want = run_alone("reference_logits", path, ids)
        for kind in args.types:
            with tempfile.TemporaryDirectory() as temporary:
                file = os.path.join(temporary, "model.gguf")
                done = subprocess.run([args.sluice, "convert", path, file, "--dtype", kind, "--quiet"],
                                      capture_output=True, text=True)
                name = "/".join(os.path.normpath(path).split(os.sep)[-2:])[-28:]
                if done.returncode:
                    print(f"{name:28} {kind:5} not converted: {done.stderr.strip()}")
                    break
                got = run_alone("llama_logits", file, ids)
            if got is None or want is None:
                print(f"{name:28} {kind:5} {'llama.cpp failed' if got is None else 'transformers failed'}")
                continue
            relative = np.sqrt(((got - want) ** 2).sum() / (want ** 2).sum())
            print(f"{name:28} {kind:5} {np.abs(want).max():15.4f} {np.abs(got - want).max():19.2e} {relative:9.1e}")


if __name__ == "__main__":
    main()
