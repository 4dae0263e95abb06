"""The data: the 1,797 handwritten digits of 8x8 pixels that scikit-learn ships, a fifth of them held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SIDE = 8
CLASSES = 10
_HELD_OUT = 5  # one in five
_SPLIT_SEED = 2016


@dataclass(frozen=True)
class Digits:
    """Images float32 [n, 8, 8, 1] in [0, 1], labels int32 [n]."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def load_digits() -> Digits:
    """The data set, split the same way every time.

    Raises:
        ImportError: scikit-learn is not installed (it belongs to the extra `demo`).
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = bunch.target.astype(np.int32)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = np.split(order, [len(order) // _HELD_OUT])
    return Digits(images[train], labels[train], images[test], labels[test])


def batches(digits: Digits, size: int, rng: np.random.Generator) -> Any:
    """Endless shuffled batches (images, labels); each image is shifted by up to one pixel in each direction."""
    count = len(digits.train_images)
    while True:
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            chosen = order[start : start + size]
            yield _shifted(digits.train_images[chosen], rng), digits.train_labels[chosen]


def _shifted(images: Array, rng: np.random.Generator) -> Array:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    out = np.empty_like(images)
    for i, (down, right) in enumerate(rng.integers(0, 3, (len(images), 2))):
        out[i] = padded[i, down : down + SIDE, right : right + SIDE]
    return out
