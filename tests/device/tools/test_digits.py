"""The demonstration's digits: scikit-learn's, whose import takes longer than reading them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from anabranch.tools.demo.digits import Digits, load_digits

datasets: Any = pytest.importorskip("sklearn.datasets", reason="the digits")


def in_order(digits: Digits) -> list[tuple[int, bytes]]:
    """The labels and pixels of all images, sorted."""
    pictures = np.concatenate([digits.train_images, digits.test_images])
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    return sorted((int(label), picture.tobytes()) for picture, label in zip(pictures, labels, strict=True))


def test_they_are_those_of_scikit_learn() -> None:
    bunch = datasets.load_digits()
    wanted = sorted(
        (int(label), picture.tobytes())
        for picture, label in zip((bunch.images / 16.0).astype(np.float32), bunch.target, strict=True)
    )
    digits = load_digits()
    assert in_order(digits) == wanted
    assert digits.train_images.shape == (1438, 8, 8, 1)
    assert digits.test_labels.dtype == np.int32


def test_they_are_the_same_where_the_file_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load_digits()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for one, other in zip(astuple(read), astuple(load_digits()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_scikit_learn_is_not_imported_for_them() -> None:
    program = (
        "from anabranch.tools.demo import digits; digits.load_digits(); import sys; print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"
