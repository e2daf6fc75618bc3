#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/data/tokenizer/small.json (a tokenizer) and small_cases.json (what the tokenizers package makes of texts and ids, and the
merges that its trainer finds), for machines that do not have the package.    record_small.py OUT_DIR"""
import json
import os
import pathlib
import random
import sys

os.environ.setdefault("SLUICE", "")
sys.path.insert(0, os.path.dirname(__file__))
import test_hf as hf  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, processors  # noqa: E402

out = pathlib.Path(sys.argv[1])
tok = hf.bpe(hf.byte_level(hf.split(Regex(hf.QWEN2))), norm=hf.N.NFC(), vocab=420)
tok.add_special_tokens([AddedToken("<|im_start|>", normalized=False), AddedToken("<mask>", lstrip=True)])
tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("mask", single_word=True)])
tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
model = json.loads(tok.to_str())
(out / "small.json").write_text(json.dumps(model, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
tok = Tokenizer.from_str(tok.to_str())
texts = hf.texts(42, 150) + ["<|im_start|>user\nHi <mask>x", "unmasked mask.", "<think>\nok", "e\u0301<|im_start|>e\u0301", "a" * 300, " " * 70, "好" * 60]
cases = []
for text in texts:
    ids = tok.encode(text, add_special_tokens=False).ids
    cases.append({"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "decoded_skip_special": tok.decode(ids)})
r = random.Random(1)
decode = [[r.randrange(tok.get_vocab_size()) for _ in range(r.randint(1, 9))] for _ in range(60)]
train = {}
for name, pre in {"gpt2": hf.P.ByteLevel(add_prefix_space=False), "qwen2": hf.BYTE_LEVEL["qwen2"], "qwen3.5": hf.BYTE_LEVEL["qwen3.5"], "llama3": hf.BYTE_LEVEL["llama3"]}.items():
    train[name] = [" ".join(m) for m in hf.hf_trained(hf.CORPUS, pre, 500)["merges"]]
equal = "abab abba aabb babaab abaabba bbabab aababb abbbaab"
train_equal = [" ".join(m) for m in hf.hf_trained(equal, hf.P.ByteLevel(add_prefix_space=False), 1000)["merges"]]
data = {"cases": cases, "decode": [{"ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)} for ids in decode], "corpus": hf.CORPUS, "train": train,
        "equal_corpus": equal, "train_equal": train_equal}
(out / "small_cases.json").write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n")
