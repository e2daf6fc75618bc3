#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record what transformers computes for a model, so that `sluice verify` can compute it again.

Everything is computed in fp32 on the CPU with eager attention. Written beside the model (or, with --out, into a new
directory with links to its files):
  golden.safetensors  input_ids, logits, hidden.<layer> (residual stream after the layer), first_token_share.<layer>
                      (attention to key 0, mean over heads), and where the model has them gate.<layer> (after the
                      activation) with attn_out_pre_gate.<layer>, and sink_share.<layer> (learned sinks)
  decode.json         ways of splitting the prompt over cached calls, with the largest difference that transformers shows
  greedy.json         greedily chosen tokens, with the smallest gap between the two best logits on the way

Example:
  tools/make_reference.py models/qwen3 --tokens 64 && sluice verify models/qwen3
"""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file


# ---- loading -------------------------------------------------------------------------------------------------------

def wrapped(folder):
    """transformers knows Step-3.5's language model only inside the wrapper: a directory that says so."""
    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") != "step3p5":
        return folder, None
    keep = tempfile.TemporaryDirectory(prefix="make-reference-")
    vision = {"hidden_size": 16, "width": 16, "layers": 1, "heads": 2, "image_size": 28, "patch_size": 14}
    outer = {"model_type": "step3p7", "text_config": {k: v for k, v in config.items() if k != "architectures"},
             "vision_config": vision, "tie_word_embeddings": config.get("tie_word_embeddings", False)}
    for entry in folder.iterdir():
        if entry.name != "config.json":
            (pathlib.Path(keep.name) / entry.name).symlink_to(entry.resolve())
    (pathlib.Path(keep.name) / "config.json").write_text(json.dumps(outer))
    return pathlib.Path(keep.name), keep


def load(folder, trust_remote_code=False):
    """The model in fp32. Tensors that the files lack are an error, not random numbers; towers for images are not needed."""
    folder, keep = wrapped(pathlib.Path(folder))
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    text_only = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or trust_remote_code
    auto = transformers.AutoModelForCausalLM if text_only else transformers.AutoModelForImageTextToText
    model, info = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
                                       trust_remote_code=trust_remote_code)
    tied = model.config.get_text_config().tie_word_embeddings
    missing = [k for k in info["missing_keys"] if not (tied and k == "lm_head.weight")
               and not any(part in k for part in ("vision", "visual", "projector", "adapter", "mtp."))]
    if missing or info["mismatched_keys"]:
        raise SystemExit(f"{folder}: missing or of another shape: {', '.join(map(str, missing or info['mismatched_keys']))}")
    if keep:
        keep.cleanup()
    return model.eval()


def text_model(model):
    base = getattr(model, "model", model)
    return getattr(base, "language_model", base)


# ---- recording -----------------------------------------------------------------------------------------------------

def gate_of(attention):
    """(module that gives the logits, function from them to scores [B,T,H] or [B,T,H,hd]), or None."""
    dim = attention.head_dim
    heads = attention.o_proj.in_features // dim
    if hasattr(attention, "g_proj"):
        act = torch.nn.functional.softplus if "Laguna" in type(attention).__name__ else torch.sigmoid
        return attention.g_proj, lambda y: act(y if y.shape[-1] == heads else y.unflatten(-1, (heads, dim)))
    if hasattr(attention, "gate_proj"):
        return attention.gate_proj, lambda y: torch.sigmoid(y.unflatten(-1, (heads, dim)))
    if attention.q_proj.out_features == 2 * heads * dim:
        return attention.q_proj, lambda y: torch.sigmoid(y.unflatten(-1, (heads, 2 * dim))[..., dim:])
    return None


class Recorder:
    """Listens to one forward pass."""

    def __init__(self, model):
        self.out, self.gated, self.hooks, self.patched = {}, {}, [], {}
        for i, layer in enumerate(text_model(model).layers):
            self.listen(layer, f"hidden.{i}", lambda y: y[0] if isinstance(y, tuple) else y)
            attention = getattr(layer, "self_attn", None)
            if attention is not None:
                self.listen_attention(i, attention)

    def listen(self, module, name, value):
        self.hooks.append(module.register_forward_hook(
            lambda m, a, y: self.out.__setitem__(name, value(y).detach().float().clone())))

    def listen_attention(self, i, attention):
        module = sys.modules[type(attention).__module__]
        if module not in self.patched and hasattr(module, "eager_attention_forward"):
            self.patched[module] = module.eager_attention_forward
            module.eager_attention_forward = self.eager(module.eager_attention_forward)
        gate = gate_of(attention)
        if gate:
            self.listen(gate[0], f"gate.{i}", gate[1])
            self.hooks.append(attention.o_proj.register_forward_pre_hook(
                lambda m, a: self.gated.__setitem__(i, a[0].detach().float().clone())))

    def eager(self, original):
        def forward(module, *args, **kwargs):
            y, probs = original(module, *args, **kwargs)
            i = module.layer_idx
            self.out[f"attn_out_pre_gate.{i}"] = y.detach().float().clone()
            self.out[f"first_token_share.{i}"] = probs[..., 0].float().mean(1)
            if hasattr(module, "sinks"):
                self.out[f"sink_share.{i}"] = 1 - probs.float().sum(-1).mean(1)
            return y, probs
        return forward

    def close(self):
        for hook in self.hooks:
            hook.remove()
        for module, original in self.patched.items():
            module.eager_attention_forward = original

    def tensors(self):
        """What was heard; gates only where gate * output is what the output projection read."""
        for i, read in self.gated.items():
            before, gate = self.out.get(f"attn_out_pre_gate.{i}"), self.out[f"gate.{i}"]
            wide = gate if gate.ndim == 4 else gate[..., None]
            if before is None or (before * wide - read.view_as(before)).abs().max() > 1e-4:
                self.out.pop(f"gate.{i}")
        for name in [n for n in self.out if n.startswith("attn_out_pre_gate.") and "gate." + n.split(".")[1] not in self.out]:
            self.out.pop(name)
        return self.out


def record(model, ids):
    recorder = Recorder(model)
    try:
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits.float()
    finally:
        recorder.close()
    return {"input_ids": ids, "logits": logits, **recorder.tensors()}


def cached(model, ids, chunks):
    """Logits of the prompt in chunks; the last size repeats."""
    cache = transformers.DynamicCache(config=model.config.get_text_config())
    at, step, parts = 0, 0, []
    with torch.no_grad():
        while at < ids.shape[1]:
            n = min(chunks[min(step, len(chunks) - 1)], ids.shape[1] - at)
            parts.append(model(input_ids=ids[:, at:at + n], past_key_values=cache, use_cache=True).logits.float())
            at, step = at + n, step + 1
    return torch.cat(parts, 1)


def splits(model, golden, plans):
    rows = []
    for chunks in plans:
        worst = float((cached(model, golden["input_ids"], chunks) - golden["logits"]).abs().max())
        rows.append({"chunks": chunks, "max_abs_logit_diff": worst})
    return {"input": "golden.safetensors", "splits": rows}


def greedy(model, prompt, count):
    ids, tokens, gap = prompt, [], float("inf")
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=ids, use_cache=False).logits[:, -1].float()
            best = logits.topk(2, -1).values
            gap = min(gap, float(best[0, 0] - best[0, 1]))
            tokens.append(int(logits.argmax(-1)))
            ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], 1)
    return {"prompt": prompt[0].tolist(), "tokens": tokens, "smallest_top2_gap": gap}


def write(out, model, ids, plans, count):
    golden = record(model, ids)
    save_file({k: v.contiguous() for k, v in golden.items()}, str(out / "golden.safetensors"))
    (out / "decode.json").write_text(json.dumps(splits(model, golden, plans), indent=1))
    if count:
        (out / "greedy.json").write_text(json.dumps(greedy(model, ids[:1, :9], count), indent=1))
    return golden


# ---- command -------------------------------------------------------------------------------------------------------

def numbers(text):
    return [int(n) for n in text.split(",")]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=pathlib.Path, help="Hugging Face model directory")
    p.add_argument("--out", type=pathlib.Path, help="write into this new directory instead, with links to the model's files")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--ids", type=numbers, help="prompt as token ids: 1,2,3")
    what.add_argument("--text", help="prompt as text, by the model's tokenizer")
    p.add_argument("--tokens", type=int, default=64, help="length of a prompt of random ids (default: %(default)s)")
    p.add_argument("--batch", type=int, default=1, help="rows of random ids (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="of the random ids (default: %(default)s)")
    p.add_argument("--split", type=numbers, action="append", metavar="N,N,...",
                   help="chunk sizes of a cached run, the last repeats; may be given again (default: 1 and 7,5,16)")
    p.add_argument("--greedy", type=int, default=16, help="tokens to choose greedily, 0 = none (default: %(default)s)")
    p.add_argument("--trust-remote-code", action="store_true", help="run the Python files of the model directory")
    return p.parse_args()


def random_ids(model, batch, tokens, seed):
    """Ids that stand for text: those of images and the like make wrappers do other things."""
    config = model.config
    special = {v for k, v in vars(config).items() if k.endswith("_token_id") and isinstance(v, int)}
    ids = [i for i in range(config.get_text_config().vocab_size) if i not in special]
    rng = random.Random(seed)
    return torch.tensor([[rng.choice(ids) for _ in range(tokens)] for _ in range(batch)])


def prompt_of(options, model):
    if options.ids:
        return torch.tensor([options.ids])
    if options.text:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        return tokenizer(options.text, return_tensors="pt").input_ids
    return random_ids(model, options.batch, options.tokens, options.seed)


def main():
    options = parse()
    transformers.utils.logging.set_verbosity_error()
    model = load(options.model, options.trust_remote_code)
    out = options.out or options.model
    if options.out:
        out.mkdir(parents=True)
        for entry in options.model.iterdir():
            os.symlink(entry.resolve(), out / entry.name)
    golden = write(out, model, prompt_of(options, model), options.split or [[1], [7, 5, 16]], options.greedy)
    shape = " x ".join(str(n) for n in golden["logits"].shape)
    print(f"{out}: golden.safetensors with {len(golden)} tensors (logits {shape}), decode.json"
          f"{', greedy.json' if options.greedy else ''}")


if __name__ == "__main__":
    main()
