#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a byte-level BPE by tokenizers, reading of the file included: Qwen2's pattern, NFC, pairs from two occurrences on.

    bpe.py FILE --vocab-size N --threads N [--save TOKENIZER.json]

Prints one JSON object; "merges" is a digest of the merge list, for comparison.
"""
import argparse
import hashlib
import json
import os
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    start = time.perf_counter()
    lines = open(args.file, encoding="utf-8").read().splitlines(keepends=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=args.vocab_size, min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    seconds = time.perf_counter() - start
    if args.save:
        tokenizer.save(args.save)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    text = "\n".join(m if isinstance(m, str) else " ".join(m) for m in merges)
    print(json.dumps({"seconds": seconds, "merges": hashlib.sha256(text.encode()).hexdigest()[:16]}))


if __name__ == "__main__":
    main()
