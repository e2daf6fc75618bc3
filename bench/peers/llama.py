#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode of GGUF files by llama.cpp, through the C calls of llama-cpp-python.

    llama.py FILE.gguf --threads N [--prefill 512] [--decode 128] [--depth 0] [--sequences 1] [--repeat 1]

Logits of the last prompt token and of every decoded one. Prints one JSON object.
"""
import argparse
import ctypes
import json
import random
import time

import llama_cpp as ll


class Run:
    def __init__(self, path: str, threads: int, room: int, chunk: int, sequences: int):
        start = time.perf_counter()
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        self.load_seconds = time.perf_counter() - start
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = room * sequences, chunk, 512, sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"{path}: llama.cpp cannot make a context")
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.random = random.Random(7)
        self.batch = ll.llama_batch_init(chunk, 0, 1)
        self.eval(1, 0, 1)
        self.first_token_seconds = time.perf_counter() - start

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)

    def copy_to(self, sequences: int) -> None:
        """What sequence 0 holds, to all others."""
        for s in range(1, sequences):
            ll.llama_memory_seq_cp(ll.llama_get_memory(self.context), 0, s, -1, -1)

    def eval(self, count: int, position: int, sequences: int) -> None:
        b, n = self.batch, 0
        for s in range(sequences):
            for i in range(count):
                b.token[n], b.pos[n] = self.random.randrange(self.vocab), position + i
                b.n_seq_id[n], b.seq_id[n][0], b.logits[n] = 1, s, i == count - 1
                n += 1
        b.n_tokens = n
        if ll.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        ll.llama_synchronize(self.context)
        ll.llama_get_logits(self.context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    for name, default in (("threads", 1), ("prefill", 512), ("decode", 128), ("depth", 0), ("sequences", 1), ("repeat", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    quiet = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    chunk = max(args.prefill, args.depth, args.sequences, 32)
    run = Run(args.model, args.threads, max(args.prefill, args.depth + args.decode) + 64, chunk, args.sequences)
    prefill, decode = [], []
    for _ in range(args.repeat + 1):  # the first warms up
        run.clear()
        start = time.perf_counter()
        if args.prefill:
            run.eval(args.prefill, 0, 1)
        prefill.append(time.perf_counter() - start)
        run.clear()
        if args.depth:
            run.eval(args.depth, 0, 1)
            run.copy_to(args.sequences)
        start = time.perf_counter()
        for i in range(args.decode):
            run.eval(1, args.depth + i, args.sequences)
        decode.append(time.perf_counter() - start)
    out = {"load_seconds": run.load_seconds, "first_token_seconds": run.first_token_seconds}
    if args.prefill:
        out["prefill_tokens_per_second"] = args.prefill / min(prefill[1:])
    if args.decode:
        out["decode_tokens_per_second"] = args.decode * args.sequences / min(decode[1:])
    print(json.dumps(out))


if __name__ == "__main__":
    main()
