"""The data: the 1,797 handwritten digits of 8x8 pixels that scikit-learn ships, a fifth of them held out."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
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
    numbers = _numbers()
    images = (numbers[:, :-1].reshape(-1, SIDE, SIDE, 1) / 16.0).astype(np.float32)
    labels = numbers[:, -1].astype(np.int32)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = np.split(order, [len(order) // _HELD_OUT])
    return Digits(images[train], labels[train], images[test], labels[test])


def _numbers() -> Array:
    """A row for each digit: the pixels, from 0 to 16, and what it is."""
    # its import takes longer than ours, and each process of a cluster that trains on the digits would wait for it
    found = importlib.util.find_spec("sklearn")
    for folder in () if found is None else found.submodule_search_locations or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn import datasets

    bunch = datasets.load_digits()
    return np.column_stack([bunch.data, bunch.target])


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
