"""Shows a training's event files on TensorBoard's page in a headless Chromium, and keeps pictures of it.

    python tests/programs/tensorboard_in_chromium.py pictures/

Needs TensorBoard in the environment, and `chromium` and `chromedriver` on the PATH. Trains a small network, starts
TensorBoard on a free port of this machine, opens its pages, and fails unless they show the curves, the histograms, the
images, and every layer of the graph. Not part of the test suite: run it when summaries or the graph's export change.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.distributed.held_ports import HeldPorts

STEPS = 200
LAYERS = ("conv1", "conv2", "dense", "logits", "loss", "accuracy", "train")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1400,900",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
#: everything that a page shows, through the shadow roots of its parts
PAGE_TEXT = """
const found = [];
const walk = (node) => {
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE && child.textContent.trim()) found.push(child.textContent.trim());
    if (child.nodeName !== 'STYLE' && child.nodeName !== 'SCRIPT') walk(child);
  }
  if (node.shadowRoot) walk(node.shadowRoot);
};
walk(document.body);
return found.join('\\n');
"""


# ---------------------------------------------------------------------- a training
def squares_and_crosses(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy 12 x 12 pictures of a square (0) or a cross (1)."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, count)
    pictures = random.normal(0, 0.25, (count, 12, 12, 1)).astype(np.float32)
    for picture, label in zip(pictures, labels, strict=True):
        row, column = random.integers(1, 5, 2)
        box = picture[row : row + 6, column : column + 6, 0]
        if label:
            box[np.arange(6), np.arange(6)] += 1
            box[np.arange(6), np.arange(5, -1, -1)] += 1
        else:
            box[[0, -1], :] += 1
            box[1:-1, [0, -1]] += 1
    return pictures, labels.astype(np.int32)


def train(logdir: Path) -> None:
    """Trains a small convolutional network, and writes everything that TensorBoard shows of it."""
    tf.set_random_seed(1)
    images = tf.placeholder(tf.float32, [None, 12, 12, 1], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    features = tf.layers.conv2d(images, 8, 3, activation=tf.nn.relu, name="conv1")
    features = tf.layers.conv2d(features, 8, 3, strides=2, activation=tf.nn.relu, name="conv2")
    features = tf.layers.dense(tf.layers.flatten(features), 32, activation=tf.nn.relu, name="dense")
    logits = tf.layers.dense(features, 2, name="logits")
    with tf.name_scope("loss"):
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    with tf.name_scope("accuracy"):
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
    with tf.name_scope("train"):
        step = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    tf.summary.scalar("loss_value", loss)
    tf.summary.scalar("accuracy_value", accuracy)
    tf.summary.image("examples", images)
    for variable in tf.trainable_variables():
        tf.summary.histogram(variable.op.name, variable)
    summaries = tf.summary.merge_all()
    pictures, answers = squares_and_crosses(64 * STEPS)
    with tf.Session() as session, tf.summary.FileWriter(logdir, session.graph) as writer:
        session.run(tf.global_variables_initializer())
        for i in range(STEPS):
            feeds = {images: pictures[64 * i : 64 * (i + 1)], labels: answers[64 * i : 64 * (i + 1)]}
            session.run(step, feeds)
            if i % 10 == 0:
                writer.add_summary(session.run(summaries, feeds), i)
        metadata = tf.RunMetadata()
        session.run(step, feeds, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        writer.add_run_metadata(metadata, f"step {STEPS}", STEPS)


# ---------------------------------------------------------------------- servers
@contextmanager
def server(command: list[str], url: str) -> Iterator[None]:
    """A process that serves `url` until the block ends."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: answers(url, process, log), f"{command[0]} does not answer")
            yield
        finally:
            process.terminate()
            process.wait()


def answers(url: str, process: subprocess.Popen[bytes], log: Any) -> bool:
    if process.poll() is not None:
        log.seek(0)
        raise SystemExit(f"{process.args} ended: {log.read().decode(errors='replace')}")
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def wait_for(condition: Callable[[], Any], complaint: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(complaint)
        time.sleep(0.2)


class Browser:
    """A page of Chromium, driven through chromedriver's WebDriver interface."""

    def __init__(self, driver: str, profile: str) -> None:
        self._driver = driver
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        capabilities = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self._session = self._post("/session", capabilities)["sessionId"]

    def _post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self._driver + path, json.dumps(body).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"chromedriver: {error.read().decode()}") from error

    def open(self, url: str) -> None:
        self._post(f"/session/{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._post(f"/session/{self._session}/execute/sync", {"script": script, "args": []})

    def picture(self, path: Path) -> None:
        with urllib.request.urlopen(f"{self._driver}/session/{self._session}/screenshot", timeout=60) as response:
            path.write_bytes(base64.b64decode(json.load(response)["value"]))

    def close(self) -> None:
        request = urllib.request.Request(f"{self._driver}/session/{self._session}", method="DELETE")
        with urllib.request.urlopen(request, timeout=60):
            pass


# ---------------------------------------------------------------------- pages
def look(browser: Browser, base: str, folder: Path) -> None:
    """Opens each page, checks what it shows, and keeps a picture of it."""
    pages = {
        "scalars": ("scalars", ("loss_value", "accuracy_value")),
        "graph": ("graphs", LAYERS),
        "histograms": ("histograms", ("conv1/kernel",)),
        "images": ("images", ("examples/image/0",)),
    }
    for name, (plugin, shown) in pages.items():
        browser.open(f"{base}/#{plugin}")
        browser.run("location.reload()")
        seen: list[str] = []

        def complete(shown: tuple[str, ...] = shown, seen: list[str] = seen) -> bool:
            seen[:] = [browser.run(PAGE_TEXT)]
            return all(word in seen[0] for word in shown)

        try:
            wait_for(complete, f"the page of {plugin} lacks one of {shown}")
        except SystemExit:
            browser.picture(folder / f"{name}.png")
            print(seen[0][-3000:])
            raise
        time.sleep(3)  # the last animation
        browser.picture(folder / f"{name}.png")
        print(f"{plugin}: shows {', '.join(shown)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    # ports that nobody else gets before the servers listen there
    with tempfile.TemporaryDirectory() as scratch, HeldPorts(2) as held:
        logdir = Path(scratch, "logs", "run")
        train(logdir)
        board, driver = held.ports
        board_command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            str(logdir.parent),
            "--host",
            "127.0.0.1",
        ]
        with (
            server([*board_command, "--port", str(board)], f"http://127.0.0.1:{board}/"),
            server(["chromedriver", f"--port={driver}"], f"http://127.0.0.1:{driver}/status"),
        ):
            browser = Browser(f"http://127.0.0.1:{driver}", str(Path(scratch, "profile")))
            try:
                look(browser, f"http://127.0.0.1:{board}", folder)
            finally:
                browser.close()


if __name__ == "__main__":
    main()
