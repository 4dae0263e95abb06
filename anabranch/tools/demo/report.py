"""What the best checkpoint makes of the held-out digits, as a picture; run in a process of its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.tools.demo.digits import Digits, load_digits
from anabranch.tools.demo.network import build_network

_COLUMNS = 10


def predict(checkpoint: str, digits: Digits) -> tuple[Any, Any]:
    """Restores `checkpoint` into a fresh graph; returns predictions int32 [n] and probabilities float32 [n, 10]."""
    with tf.Graph().as_default():
        network = build_network()
        with tf.Session() as session:
            tf.train.Saver().restore(session, checkpoint)
            fetches = [network.predictions, network.probabilities]
            predictions, probabilities = session.run(fetches, {network.images: digits.test_images})
            return predictions, probabilities


def draw(digits: Digits, predictions: HostArray, probabilities: HostArray, path: Path) -> int:
    """Draws the mistakes (all of them) and then other test digits, each with its prediction; returns the mistakes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    wrong = np.flatnonzero(predictions != digits.test_labels)
    right = np.flatnonzero(predictions == digits.test_labels)
    shown = np.concatenate([wrong, right])[: _COLUMNS * 5]
    figure, axes = plt.subplots(5, _COLUMNS, figsize=(_COLUMNS * 1.1, 7))
    for axis, i in zip(axes.flat, shown, strict=False):
        good = predictions[i] == digits.test_labels[i]
        axis.imshow(digits.test_images[i, ..., 0], cmap="gray_r")
        label = (
            f"{predictions[i]}  {probabilities[i].max():.0%}"
            if good
            else f"{predictions[i]}, is {digits.test_labels[i]}"
        )
        axis.set_title(label, fontsize=8, color="black" if good else "red")
        axis.axis("off")
    accuracy = float(np.mean(predictions == digits.test_labels))
    figure.suptitle(f"{len(predictions)} held-out digits, {len(wrong)} wrong: {accuracy:.2%} right (mistakes first)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return len(wrong)


def main(argv: list[str] | None = None) -> int:
    """``python -m anabranch.tools.demo.report CHECKPOINT PNG``: draws, and prints how many are right."""
    parser = argparse.ArgumentParser(description="Draws what a checkpoint of the demonstration predicts.")
    parser.add_argument("checkpoint", help="prefix of the checkpoint")
    parser.add_argument("png", type=Path, help="where to put the picture")
    arguments = parser.parse_args(argv)
    digits = load_digits()
    predictions, probabilities = predict(arguments.checkpoint, digits)
    mistakes = draw(digits, predictions, probabilities, arguments.png)
    print(f"{len(predictions) - mistakes} of {len(predictions)} held-out digits right")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
