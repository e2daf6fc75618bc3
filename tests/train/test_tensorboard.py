# SPDX-License-Identifier: Apache-2.0
"""Event files of `sluice train` as TensorBoard's own reader sees them, across a kill and a resume."""
import json
import os
import signal
import subprocess
import time

import pytest

SLUICE = os.environ["SLUICE"]


def train(directory, *more):
    return [SLUICE, "train", "--quiet", "--threads=1", f"--text={directory}/book.txt", "--vocab-size=264", "--hidden-size=16",
            "--num-hidden-layers=2", "--num-attention-heads=2", "--seq-len=16", "--per-device-train-batch-size=2",
            "--gate-position=sdpa", "--save-steps=5", "--probe-steps=10", f"--output-dir={directory}/run", "--resume", *more]


def test_tensorboard_reads_a_resumed_run(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "book.txt").write_text("the light was upon the waters, and evening came.\n" * 800)
    child = subprocess.Popen(train(tmp_path, "--max-steps=300"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.time() + 120
    while not list(tmp_path.glob("run/checkpoints/step-1?")) and time.time() < deadline and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    subprocess.run(train(tmp_path, "--max-steps=300"), check=True)
    events = reader.EventAccumulator(str(tmp_path / "run"), size_guidance={"scalars": 0})
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    want = {line["step"]: line["loss"] for line in lines if line["type"] == "train"}
    got = {event.step: event.value for event in events.Scalars("train/loss")}
    assert sorted(want) == list(range(1, 301))
    assert len(events.Scalars("train/loss")) == 300 and got == pytest.approx(want, rel=1e-6)
    assert "first_token_share/layer_01" in events.Tags()["scalars"] and "gate_mean/layer_00" in events.Tags()["scalars"]
