"""The demonstration that learns to write, as a user runs it: as a process, ended, resumed, and sampled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anabranch as tf
from anabranch.tools.demo.text_files import ALPHABET, decode, encode, find_texts, held_out_windows, pipeline
from tests import quick_compilation


def run(directory: Path, texts: Path, steps: int) -> str:
    program = "import sys; from anabranch.tools.command_line import main; sys.exit(main(sys.argv[1:]))"
    options = ["--directory", str(directory), "--texts", str(texts), "--steps", str(steps), "--units", "32"]
    command = [sys.executable, "-c", program, "demo", "text", *options]
    env = {**os.environ, **quick_compilation.environment()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for i in range(6):
        (folder / f"{i}.txt").write_text("the cat sat on the mat.\n" * (150 + 10 * i))
    return folder


def test_the_demo_learns_resumes_and_writes(tmp_path: Path, texts: Path) -> None:
    first = run(tmp_path, texts, 50)
    assert "5 files" in first
    second = run(tmp_path, texts, 150)
    assert "goes on from step 50" in second
    bits = [float(found) for found in re.findall(r"([\d.]+) bits per character", first + second)]
    assert bits[1] < bits[0] < 6
    assert bits[1] < 2.5
    written = second.split("What it writes")[1].split("What is where")[0]
    assert len(set(written) & set("the cat sat on the mat.")) > 5
    assert list((tmp_path / "events").glob("events.out.tfevents.*"))
    samples = [
        value
        for file in (tmp_path / "events").iterdir()
        for event in tf.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    ]
    texts_written = [tf.make_ndarray(value.tensor).item().decode() for value in samples]
    assert len(texts_written) == 2
    assert any(written.split() == text.split() for text in texts_written), "what is shown is in the events too"
    assert str(tf.train.latest_checkpoint(str(tmp_path / "checkpoints"))).endswith("model-150")
    files = sorted((tmp_path / "events").iterdir())
    third = run(tmp_path, texts, 150)
    assert f"the run in {tmp_path} is finished: it is at step 150 (--steps 300 goes on, --fresh starts over)" in third
    assert "What it writes" in third
    assert "steps in" not in third
    assert sorted((tmp_path / "events").iterdir()) == files


def test_texts_are_found_and_read() -> None:
    found = find_texts()
    assert len(found.train) > 50
    assert found.characters > 1_000_000
    assert not set(found.train) & set(found.held_out)
    assert decode(encode(b"a\tb\xc3\xa9~\n")) == "a b??~\n"
    assert len(set(ALPHABET)) == len(ALPHABET) == 96


def test_windows_overlap_by_one_character(texts: Path) -> None:
    name = str(texts / "0.txt")
    batches = pipeline((name,), batch=4, steps=10, seed=1).make_one_shot_iterator().get_next()
    text = Path(name).read_text()
    with tf.Session() as session:
        windows = np.concatenate([session.run(batches) for _ in range(20)])
    assert windows.shape == (80, 11)
    assert windows.dtype == np.int32
    assert all(decode(window) in text for window in windows)
    held_out = held_out_windows((name,), 7, 10)
    assert held_out.shape == (7, 11)
    assert all(decode(window) in text for window in held_out)
