#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole table of speeds: this project and its peers in turn, best of several rounds, one ratio a row.

    compare.py --build build/release --models FOLDER [--rows train,infer] [--rounds 5] [--threads N] [--output FILE.json]

Rows whose peer is not installed are named and left out. Models with random weights are made in FOLDER (6 GB) where numpy
is installed; with --smollm2 FILE.gguf or SLUICE_SMOLLM2 (SmolLM2-135M-Instruct) also that model in three types and as a
directory. Tokenizer and text are those of ../shared, or of SLUICE_SHARED, where they are there.
Ratios above 1 are in our favour. SLUICE_CPU=avx2 or --levels avx2 limits this project, and PyTorch and oneDNN alike. llama.cpp is
compiled for one level, so --llama-avx2 names a directory with another llama-cpp-python, made by

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" \
        pip install --no-deps --no-binary llama-cpp-python --target DIRECTORY llama-cpp-python

which then stands beside the level avx2; without it the peer of that level is the llama.cpp that is installed.
"""
import argparse
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {  # targets: ratio to PyTorch, share of the fp32 product peak; steps of a run
    "124M:4x64": (1.25, 0.85, 4), "124M:4x256": (1.0, 0.95, 2), "124M:1x1024": (1.0, 0.92, 2), "small:16x256": (1.25, 0.88, 8)}
INFER = {  # model file: prefill target, decode target
    "qwen3-0.6b-q8_0.gguf": (2.0, 1.0), "qwen3-0.6b-q4_0.gguf": (1.8, 1.0), "qwen3-0.6b-bf16.gguf": (1.3, None),
    "qwen3-0.6b-f16.gguf": (None, 1.0), "gated-0.6b-q8_0.gguf": (2.0, 1.0), "qwen3.5-0.8b-q8_0.gguf": (2.5, 1.6),
    "qwen3.5-0.8b-bf16.gguf": (2.0, 1.2), "smollm2-f32.gguf": (1.5, 1.1), "smollm2-q8_0.gguf": (1.5, 1.1),
    "smollm2-q4_1.gguf": (1.5, 1.1)}
READ_SHARES = dict.fromkeys(("qwen3-0.6b-q8_0.gguf", "qwen3-0.6b-q4_0.gguf", "qwen3-0.6b-f16.gguf", "gated-0.6b-q8_0.gguf"), 0.95)
PARALLEL = ("qwen3-0.6b-q8_0.gguf", "qwen3-0.6b-q4_0.gguf", "qwen3-0.6b-bf16.gguf", "qwen3.5-0.8b-q8_0.gguf")
SMOLLM2 = ("F32", "Q8_0", "Q4_1")
PEERS = ("torch", "transformers", "llama-cpp-python", "tokenizers", "tiktoken")
SHARED = os.environ.get("SLUICE_SHARED", os.path.join(HERE, "..", "..", "shared"))
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}


class Bench:
    def __init__(self, args: argparse.Namespace):
        self.args, self.left_out = args, []
        self.sluice = os.path.join(args.build, "sluice")
        self.levels = args.levels.split(",")
        self.rows, self.machine = {level: [] for level in self.levels}, {}

    def json_of(self, command: list, level: str = "", path: str = "") -> dict:
        environment = os.environ | ({"SLUICE_CPU": level} if level else {}) | (AVX2 if level == "avx2" else {})
        environment |= {"PYTHONPATH": path} if path else {}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command[:4]))}: {done.stderr.strip()[-200:]}")
        return json.loads(done.stdout)

    def ours(self, level: str, *words, threads: int = 0) -> dict:
        return self.json_of([self.sluice, "bench", *words, "--threads", threads or self.args.threads, "--json"], level)

    def peer(self, script: str, *words, level: str = "", threads: int = 0) -> dict:
        path = self.args.llama_avx2 if script == "llama.py" and level == "avx2" else ""
        command = [sys.executable, os.path.join(HERE, "peers", script), *words, "--threads", threads or self.args.threads]
        return self.json_of(command, level, path)

    def peers(self, name: str, *words) -> dict:
        """Calls for alternate() of one peer, once for every limit that it can be held to, keyed by both."""
        script = {"llama.cpp": "llama.py", "transformers": "hf.py"}[name]
        limits = {self.limit(name, level) for level in self.levels}
        return {(name, limit): (lambda limit=limit: self.peer(script, *words, level=limit)) for limit in sorted(limits)}

    def limit(self, name: str, level: str) -> str:
        return "avx2" if level == "avx2" and (name != "llama.cpp" or self.args.llama_avx2) else ""

    def alternate(self, calls: dict, before=lambda: None) -> dict:
        """The results of every call in turn, a list each."""
        results = {name: [] for name in calls}
        for _ in range(self.args.rounds):
            for name, call in calls.items():
                before()
                results[name].append(call())
        return results

    def at_levels(self, *words, threads: int = 0) -> dict:
        """Calls of `sluice bench` for alternate(), one a level."""
        return {level: (lambda level=level: self.ours(level, *words, threads=threads)) for level in self.levels}

    def add(self, level: str, what: str, unit: str, ours: float, peer: float, target, higher: bool = True, note: str = "") -> None:
        row = {"what": what, "unit": unit, "ours": ours, "peer": peer, "ratio": ours / peer if higher else peer / ours,
               "target": target, "note": note}
        self.rows[level].append(row)
        self.write(level)
        mark = "" if target is None else "   met" if row["ratio"] >= target else "   MISSED"
        print(f"{level:7}{what:62} {ours:10.4g} {peer:10.4g} {unit:6} {row['ratio']:6.2f} x  target "
              f"{'-' if target is None else f'{target:.2f}':5}{mark}   {note}", flush=True)

    def wants(self, name: str) -> bool:
        return any(part in name for part in (self.args.only or "").split(","))

    def write(self, level: str) -> None:
        """All rows so far, so that a run that is stopped leaves what it has measured."""
        if not self.args.output:
            return
        name, kind = os.path.splitext(self.args.output)
        path = f"{name}-{level}{kind}" if len(self.levels) > 1 else self.args.output
        with open(path + ".new", "w") as f:
            json.dump({"date": time.strftime("%Y-%m-%d"), "machine": self.machine[level], "load": os.getloadavg()[0],
                       "rounds": self.args.rounds, "peers": peer_versions(self.args, level), "rows": self.rows[level],
                       "left_out": self.left_out}, f, indent=1)
            f.write("\n")
        os.replace(path + ".new", path)

    def has(self, what: str, *modules: str) -> bool:
        missing = [m for m in modules if importlib.util.find_spec(m) is None]
        if missing:
            self.left_out.append(f"{what}: {', '.join(missing)} not installed")
        return not missing


@functools.cache
def version(name: str, path=None) -> str:
    found = importlib.metadata.distributions(name=name, **({"path": [path]} if path else {}))
    return next((d.version for d in found), "not installed")


def peer_versions(args: argparse.Namespace, level: str) -> dict:
    versions = {name: version(name) for name in PEERS}
    if level == "avx2" and args.llama_avx2:
        versions["llama-cpp-python"] = version("llama-cpp-python", args.llama_avx2) + ", built for AVX2"
    return versions


def rows_train(b: Bench) -> None:
    for level in b.levels if b.has("train", "torch") else ():
        rows_train_at(b, level)


def rows_train_at(b: Bench, level: str) -> None:
    formats, ways = b.args.dtype.split(","), b.args.how.split(",")
    if "bf16" in formats and "bf16" not in b.machine[level]["cpu"]:
        b.left_out.append(f"training bf16, {level or 'here'}: no bf16 products")
        formats.remove("bf16")
    for dtype, (shape, (ratio, share, steps)) in itertools.product(formats, SHAPES.items()):
        if not b.wants(shape):
            continue
        calls = {kind: lambda kind=kind: b.ours(level, "train", "--gates", "none", "--shape", shape, "--dtype", kind, "--steps", str(steps))
                 for kind in dict.fromkeys((dtype, "float32"))}
        for how in ways:
            calls[how] = lambda how=how: b.peer("torch_train.py", shape, "--dtype", dtype, "--steps", str(steps), "--how", how, level=level)
        r = b.alternate(calls)
        rate = {kind: max(x["train"][0]["tokens_per_second"] for x in r[kind]) for kind in dict.fromkeys((dtype, "float32"))}
        peers = {how: max(x["tokens_per_second"] for x in r[how]) for how in ways}
        peer = max(peers, key=peers.get)
        b.add(level, f"training {dtype} {shape} beside PyTorch, {peer}", "tok/s", rate[dtype], peers[peer], 1.4 if dtype == "bf16" else ratio,
              note=", ".join(f"{how} {peers[how]:.4g}" for how in peers if how != peer))
        if dtype == "bf16":
            b.add(level, f"training bf16 {shape} beside our fp32", "tok/s", rate[dtype], rate["float32"], 1.7)
            continue
        run = max(r[dtype], key=lambda x: x["train"][0]["share_of_gemm_peak"])
        peak = run["machine"]["gemm_gflops"]
        b.add(level, f"training fp32 {shape}, share of the product peak of the same run", "GF/s",
              peak * run["train"][0]["share_of_gemm_peak"], peak, share)
        if shape == "124M:4x64":
            fastest = min((x["train"][0] for x in r[dtype]), key=lambda x: x["adamw_ms"])
            b.add(level, "AdamW pass, 124M, beside PyTorch fused", "ms", fastest["adamw_ms"],
                  min(x["adamw_ms"] for how in peers for x in r[how]), 1.0, higher=False)
            b.add(level, "AdamW pass, 124M, beside 28 bytes a parameter at copy speed", "ms", fastest["adamw_ms"],
                  fastest["adamw_ms"] / fastest["adamw_over_floor"], 1 / 1.2, higher=False)


def slower(run: dict, than: dict, rate: str) -> float:
    return 100 * (than[rate] / run[rate] - 1)


def rows_gates(b: Bench) -> None:
    """The cost of a gate beside our own model without one, the models in turn in one run. At most: its products and 1 %."""
    for level, (shape, (_, _, steps)) in itertools.product(b.levels, SHAPES.items()):
        if not b.wants(shape):
            continue
        results = b.ours(level, "train", "--shape", shape, "--steps", str(steps * b.args.rounds))["train"]
        by = {x["gate"]: x for x in results}
        for gate in ("headwise", "elementwise"):
            more = by[gate]["flops"] / by["none"]["flops"] - 1 if gate == "elementwise" else 0
            b.add(level, f"gate {gate} {shape} beside none", "ms", by[gate]["step_ms"], by["none"]["step_ms"], 1 / (1.01 + more), higher=False,
                  note=f"{slower(by[gate], by['none'], 'tokens_per_second'):+.1f} % time (medians "
                       f"{slower(by[gate], by['none'], 'tokens_per_second_median'):+.1f} %), {100 * more:+.1f} % products")


def rows_attention(b: Bench) -> None:
    program, script = os.path.join(b.args.build, "tests", "test_kernels_attention"), os.path.join(HERE, "attention.py")
    if not b.has("attention", "torch") or not os.path.exists(program):
        return
    for level, dim, (length, heads) in itertools.product(b.levels, (64, 128), ((1024, 4), (4096, 2), (16384, 1))):
        shape = f"1x{length}x{heads}x{dim}"
        if not b.wants(shape):
            continue
        call = [sys.executable, script, program, "--threads", b.args.threads, "--shape", shape]
        r = b.alternate({who: (lambda who=who: b.json_of([*call, "--who", who], level)) for who in ("ours", "torch")})
        for direction in ("forward", "backward"):
            ours, peer = (min(x[direction] for x in r[who]) for who in ("ours", "torch"))
            b.add(level, f"attention {direction} {shape} beside PyTorch", "ms", 1e3 * ours, 1e3 * peer, 1.3, higher=False)


def make_smollm2(b: Bench) -> None:
    source = os.path.join(b.args.models, "smollm2")
    targets = [(source, "bf16")] + [(f"{source}-{kind.lower()}.gguf", kind) for kind in SMOLLM2]
    for target, kind in targets:
        if not os.path.exists(target):
            subprocess.run([b.sluice, "convert", b.args.smollm2, target, "--dtype", kind, "--quiet"], check=True)


@functools.cache
def make_models(b: Bench) -> None:
    if b.args.smollm2:
        make_smollm2(b)
    if b.has("infer, models with random weights", "numpy"):
        subprocess.run([sys.executable, os.path.join(HERE, "make_models.py"), b.sluice, b.args.models], check=True,
                       stdout=subprocess.DEVNULL)


def model_files(b: Bench, rows: str, names):
    """(name, path) of the models that are there."""
    make_models(b)
    for name in filter(b.wants, names):
        file = os.path.join(b.args.models, name)
        if os.path.exists(file):
            yield name, file
        else:
            b.left_out.append(f"{rows}: no {file}")


def transformers_calls(b: Bench, name: str) -> dict:
    """SmolLM2 runs in transformers as well; its bf16 is the faster type there."""
    directory = os.path.join(b.args.models, "smollm2")
    if not name.startswith("smollm2") or not os.path.isdir(directory) or not b.has(f"{name} beside transformers", "transformers"):
        return {}
    return b.peers("transformers", directory)


def rows_infer(b: Bench) -> None:
    if not b.has("infer", "llama_cpp"):
        return
    for name, file in model_files(b, "infer", INFER):
        warm(file)
        peers = b.peers("llama.cpp", file) | transformers_calls(b, name)
        r = b.alternate(b.at_levels("infer", file, "--repeat", "1", "--reader") | peers)
        for level in b.levels:
            beside = {who: r[who, limit] for who, limit in peers if limit == b.limit(who, level)}
            add_infer(b, level, name, [x["infer"][0] for x in r[level]], beside, *INFER[name])


def add_infer(b: Bench, level: str, name: str, mine: list, peers: dict, prefill, decode) -> None:
    for key, target in (("prefill", prefill), ("decode", decode)):
        rate = f"{key}_tokens_per_second"
        best = {who: max(x[rate] for x in results) for who, results in peers.items()}
        peer = max(best, key=best.get)
        middle = [statistics.median(x[rate] for x in results) for results in (mine, peers[peer])]
        b.add(level, f"{key} {'512' if key == 'prefill' else '128'} {name} beside {peer}", "tok/s", max(x[rate] for x in mine),
              best[peer], target, note=f"medians {middle[0]:.4g}, {middle[1]:.4g}: {middle[0] / middle[1]:.2f} x")
    shares = sorted((x["decode_weight_gbs"] / x["reader_gbs"], x["decode_weight_gbs"], x["reader_gbs"]) for x in mine)
    share = shares[len(shares) // 2]  # memory changes its speed within a run, so the best would be luck
    b.add(level, f"decode {name}, weights beside a reader in turn (median)", "GB/s", *share[1:], READ_SHARES.get(name),
          note=f"{shares[0][0]:.2f} to {shares[-1][0]:.2f}")


def warm(file: str) -> None:
    """Into the page cache, in pages as large as the system grants: it may have dropped the file since the last run."""
    with open(file, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        sum(pages[i] for i in range(0, len(pages), 4096))


def rows_load(b: Bench) -> None:
    """From the call to the logits of one token, the file in the page cache."""
    if not b.has("load", "llama_cpp"):
        return
    for name, file in model_files(b, "load", INFER):
        words = ("--prefill", "1", "--decode", "1")
        calls = b.at_levels("infer", file, "--repeat", "1", *words) | b.peers("llama.cpp", file, *words)
        r = b.alternate(calls, before=lambda: warm(file))
        for level in b.levels:
            peer = min(x["first_token_seconds"] for x in r["llama.cpp", b.limit("llama.cpp", level)])
            ours = min(x["infer"][0]["first_token_seconds"] for x in r[level])
            b.add(level, f"load to first token {name} beside llama.cpp", "s", ours, peer, 1.0, higher=False)


def rows_parallel(b: Bench) -> None:
    """Eight sequences in one pass, as a server decodes them."""
    if not b.has("parallel", "llama_cpp"):
        return
    for name, file in model_files(b, "parallel", PARALLEL):
        words = ("--prefill", "0", "--decode", "32")
        r = b.alternate(b.at_levels("infer", file, "--parallel", "8", "--repeat", "1", *words) |
                        b.peers("llama.cpp", file, "--sequences", "8", *words))
        for level in b.levels:
            peer = max(x["decode_tokens_per_second"] for x in r["llama.cpp", b.limit("llama.cpp", level)])
            ours = max(x["infer"][0]["decode_tokens_per_second"] for x in r[level])
            b.add(level, f"decode, 8 parallel sequences, {name} beside llama.cpp", "tok/s", ours, peer, 1.5)


def rows_tokenizer(b: Bench) -> None:
    if not b.args.tokenizer or not b.args.text:
        b.left_out.append("tokenizer: needs --tokenizer and --text")
        return
    libraries = [name for name in ("tiktoken", "tokenizers") if b.has("tokenizer", name)]
    for threads in sorted({1, b.args.threads}):
        calls = b.at_levels("tokenize", b.args.tokenizer, b.args.text, threads=threads)
        for name in libraries:
            calls[name] = lambda name=name: b.peer("encode.py", name, b.args.tokenizer, b.args.text, threads=threads)
        r = b.alternate(calls)
        for level, name in itertools.product(b.levels, libraries):
            b.add(level, f"encode {os.path.basename(b.args.text)} beside {name}, {threads} thread{'s' * (threads > 1)}", "MB/s",
                  max(x["encode_mbs"] for x in r[level]), max(x["encode_mbs"] for x in r[name]), 1.5 if name == "tiktoken" else 15)
            if name == "tokenizers" and threads == 1:
                b.add(level, "load tokenizer.json beside tokenizers", "s", min(x["load_seconds"] for x in r[level]),
                      min(x["load_seconds"] for x in r["tokenizers"]), 3, higher=False)


def rows_bpe(b: Bench) -> None:
    if not b.args.text or not b.has("BPE training", "tokenizers"):
        b.left_out += [] if b.args.text else ["BPE training: needs --text"]
        return
    with tempfile.TemporaryDirectory() as folder:
        for size in (8192, 32768):
            command = [b.sluice, "tokenize", "train", "--output", os.path.join(folder, "bpe.json"), "--vocab-size", size,
                       "--min-frequency", 2, "--normalizer", "NFC", "--special-tokens", "", "--threads", b.args.threads,
                       "--quiet", "--json", b.args.text]
            r = b.alternate({level: (lambda level=level: b.json_of(command, level)) for level in b.levels} |
                            {"peer": lambda: b.peer("bpe.py", b.args.text, "--vocab-size", str(size))})
            for level in b.levels:
                ours, peer = (min(x["seconds"] for x in r[who]) for who in (level, "peer"))
                b.add(level, f"BPE training {size} {os.path.basename(b.args.text)} beside tokenizers", "s", ours, peer, 3.0, higher=False)


ROWS = {"train": rows_train, "gates": rows_gates, "attention": rows_attention, "infer": rows_infer, "load": rows_load, "parallel": rows_parallel,
        "tokenizer": rows_tokenizer, "bpe": rows_bpe}


def shared(name: str):
    """A file of the references that the tests use where they are there."""
    path = os.path.join(SHARED, "data", name)
    return path if os.path.exists(path) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release", help="where sluice and its tests are")
    parser.add_argument("--models", default="bench/models", help="where make_models.py wrote")
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated list of " + ", ".join(ROWS))
    parser.add_argument("--only", help="comma-separated parts of the names of models or shapes to run")
    parser.add_argument("--dtype", default="float32,bf16", help="comma-separated list of what to train in")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--how", default="eager,compile", help="comma-separated list of how PyTorch trains; the fastest counts")
    parser.add_argument("--smollm2", default=os.environ.get("SLUICE_SMOLLM2"),
                        help="SmolLM2-135M-Instruct as a GGUF file (default: SLUICE_SMOLLM2, as for the tests)")
    parser.add_argument("--llama-avx2", help="a directory with a llama-cpp-python built for AVX2, the peer of that level")
    parser.add_argument("--tokenizer", default=shared("qwen3-tokenizer/tokenizer.json"), help="a tokenizer.json")
    parser.add_argument("--text", default=shared("sotu.txt"), help="a text file to encode and to train BPE on")
    parser.add_argument("--levels", default=os.environ.get("SLUICE_CPU", ""), help="comma-separated values of SLUICE_CPU")
    parser.add_argument("--output", help="write all rows as JSON; with several levels, to a file each, NAME-LEVEL.json")
    b = Bench(parser.parse_args())
    unknown = set(b.args.rows.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"--rows: unknown {', '.join(sorted(unknown))}")
    for level in b.levels:
        b.machine[level] = m = b.ours(level, "kernels", "--seconds", "0.001")["machine"]
        print(f"{m['cpu']}, {m['threads']} threads, fp32 products {m['gemm_gflops']:.0f} GFLOP/s, copy {m['copy_gbs']:.1f} GB/s, "
              f"read {m['read_gbs']:.1f} GB/s, load {os.getloadavg()[0]:.1f}", flush=True)
    for name in b.args.rows.split(","):
        try:
            ROWS[name](b)
        except RuntimeError as e:
            b.left_out.append(f"{name}: {e}")
    for line in b.left_out:
        print("left out:", line)
    for level in b.levels:
        b.write(level)


if __name__ == "__main__":
    main()
