"""Rows of copies, of room without values, of slices put into tensors, and of two older operations on images."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.errors import FailedPreconditionError, InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

X = np.arange(12.0).reshape(3, 4)
WORDS = np.array([b"a", b"bc"], object)


def _with(at: Any, value: Any) -> Array:
    changed = X.copy()
    changed[at] = value
    return changed


def _updates() -> list[OpCase]:
    value, name = np.array([[9.0, -1.0], [0.5, 2.0]]), "TensorStridedSliceUpdate"
    words = np.array([b"a", b"x", b"c", b"y"], object)
    return [
        OpCase(name, (X, [0, 1], [2, 3], [1, 1], value), expected=_with(np.s_[0:2, 1:3], value)),
        OpCase(name, (X, [0, 1], [2, 3], [1, 1], np.array(5.0)), expected=_with(np.s_[0:2, 1:3], 5), label="scalar"),
        OpCase(name, (X, [0, 1], [2, 3], [1, 1], value[:1]), expected=_with(np.s_[0:2, 1:3], value[:1]), label="row"),
        OpCase(name, (X, [2, 0], [0, 4], [-1, 2], value), {"end_mask": 2}, expected=_with(np.s_[2:0:-1, ::2], value),
               label="backwards"),
        OpCase(name, (X, [1], [2], [1], X[0]), {"shrink_axis_mask": 1}, expected=_with(1, X[0]), label="index"),
        OpCase(name, (X, [0, 1], [0, 2], [1, 0], X[0]), {"ellipsis_mask": 1, "shrink_axis_mask": 2},
               error=InvalidArgumentError, label="stride 0"),
        OpCase(name, (X, [1, 0], [1, 0], [1, 1], np.zeros((0, 0))), expected=X, label="empty", gradient=False),
        OpCase(name, (X, [1, 0], [1, 0], [1, 1], X), expected=X, label="any value for no elements"),
        OpCase(name, (X, [0, 1], [2, 3], [1, 1], value[None, :1]), expected=_with(np.s_[0:2, 1:3], value[:1]),
               label="of a higher rank"),
        OpCase(name, (X, [1, 1], [2, 2], [1, 1], value[:1, :1]), {"shrink_axis_mask": 3}, expected=_with((1, 1), 9),
               label="a matrix for a scalar"),
        OpCase(name, (X, [1], [2], [1], np.stack([X[0], X[0]])), {"shrink_axis_mask": 1},
               error=(ValueError, InvalidArgumentError), label="two of them"),
        OpCase(name, (X, [0], [1], [1], np.ones((1, 3))), error=(ValueError, InvalidArgumentError),
               label="other shape"),
        OpCase(name, (np.array([b"a", b"b", b"c", b"d"], object), [1], [4], [2], np.array([b"x", b"y"], object)),
               expected=words, label="strings"),
    ]  # fmt: skip


def _copies() -> list[OpCase]:
    return [
        OpCase("Empty", ([2, 3],), {"dtype": np.float32, "init": True}, expected=np.zeros((2, 3), np.float32)),
        OpCase("Empty", (np.zeros(0, np.int32),), {"dtype": np.int64}, expected=np.int64(0), label="scalar"),
        OpCase("Empty", ([2],), {"dtype": object}, expected=np.array([b"", b""], object), label="strings"),
        OpCase("Empty", ([-1],), {"dtype": np.float32}, error=(ValueError, InvalidArgumentError), label="negative"),
        OpCase("DeepCopy", (X,), expected=X),
        OpCase("DeepCopy", (WORDS,), expected=WORDS, label="strings"),
        OpCase("DebugGradientIdentity", (X,), expected=X),
        OpCase("DebugGradientIdentity", (WORDS,), expected=WORDS, label="strings"),
    ]


IMAGES = np.random.default_rng(4).integers(0, 256, (2, 5, 4, 3)).astype(np.uint8)


def _contrast(images: Array, factor: float, least: float, most: float) -> Array:
    mean = images.mean(axis=(1, 2), keepdims=True)
    return np.clip((images - mean) * factor + mean, least, most).astype(np.float32)


def _is_a_part(outputs: list[Array]) -> None:
    (part,) = outputs
    places = [(i, j) for i in range(4) for j in range(2) if (IMAGES[0, i : i + 2, j : j + 3] == part).all()]
    assert part.shape == (2, 3, 3)
    assert places


def _images() -> list[OpCase]:
    image = IMAGES[0]
    return [
        OpCase("AdjustContrast", (IMAGES, 1.7, 10.0, 200.0), expected=_contrast(IMAGES, 1.7, 10, 200), tolerance=1e-5),
        OpCase("RandomCrop", (image, np.array([2, 3])), verify=_is_a_part, static_shape=True, constants=("size",)),
        OpCase("RandomCrop", (image, np.array([5, 4])), expected=image, label="all", static_shape=True,
               constants=("size",)),
        OpCase("RandomCrop", (image, np.array([6, 3])), error=FailedPreconditionError, label="larger"),
    ]  # fmt: skip


CASES = [*_updates(), *_copies(), *_images()]
