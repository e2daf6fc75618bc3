#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loading and encoding by tokenizers or tiktoken: the whole file as one text.

    encode.py tokenizers|tiktoken TOKENIZER.json FILE --threads N

With several threads tiktoken gets the lines as a batch, its only way to use them. Prints one JSON object.
"""
import argparse
import json
import os
import time


def bytes_of_characters() -> dict:
    """The byte that each character of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def load_tiktoken(path: str):
    import tiktoken
    spec = json.load(open(path, encoding="utf-8"))
    table = bytes_of_characters()
    ranks = {bytes(table[c] for c in token): rank for token, rank in spec["model"]["vocab"].items()}
    pattern = spec["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={t["content"]: t["id"] for t in spec["added_tokens"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=["tokenizers", "tiktoken"])
    parser.add_argument("tokenizer")
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    text = open(args.file, encoding="utf-8").read()
    start = time.perf_counter()
    if args.library == "tiktoken":
        tokenizer = load_tiktoken(args.tokenizer)
        encode = lambda: tokenizer.encode_ordinary(text)
        if args.threads > 1:
            lines = text.splitlines(keepends=True)
            encode = lambda: tokenizer.encode_ordinary_batch(lines, num_threads=args.threads)
    else:
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(args.tokenizer)
        encode = lambda: tokenizer.encode(text, add_special_tokens=False)
    load, times = time.perf_counter() - start, []
    for _ in range(2 if args.library == "tiktoken" else 1):
        start = time.perf_counter()
        encode()
        times.append(time.perf_counter() - start)
    print(json.dumps({"load_seconds": load, "encode_mbs": len(text.encode()) / min(times) / 1e6}))


if __name__ == "__main__":
    main()
