"""Uses of operations on images, volumes and rows, for `make_operation_fixture.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(2026)
PICTURES = RNG.uniform(size=(2, 7, 9, 3)).astype(np.float32)
KINDS = ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic")
MOVES = (
    ((7, 9), (1.0, 1.0), (0.0, 0.0)),
    ((5, 20), (0.6, 2.3), (0.25, -3.5)),
    ((3, 4), (0.31, 0.4), (1.5, 0.7)),
    ((9, 2), (4.0, 0.05), (-20.0, 1.0)),
)


def scaled_by(kind: str) -> Callable[[Any], Any]:
    def case(tf: Any) -> Any:
        fetched = []
        for antialias, (size, scale, translation) in ((True, MOVES[1]), (True, MOVES[2]), (False, MOVES[3])):
            pictures = tf.constant(PICTURES)
            scaled = tf.raw_ops.ScaleAndTranslate(
                images=pictures,
                size=np.array(size, np.int32),
                scale=np.array(scale, np.float32),
                translation=np.array(translation, np.float32),
                kernel_type=kind,
                antialias=antialias,
            )
            given = tf.constant(np.random.default_rng(7).uniform(size=(2, *size, 3)).astype(np.float32))
            fetched += [scaled, tf.gradients(scaled, pictures, given)[0]]
        return fetched

    return case


def scaled_whole_numbers(tf: Any) -> Any:
    move = {"size": [4, 12], "scale": [0.7, 1.4], "translation": [0.1, -0.2]}
    whole = (PICTURES * 200 - 70).astype(np.int32)
    dtypes = (np.int8, np.uint8, np.uint16, np.int64, np.float16, np.float64)
    return [tf.raw_ops.ScaleAndTranslate(images=np.abs(whole).clip(0, 127).astype(d), **move) for d in dtypes]


def patches_of_volumes(tf: Any) -> Any:
    fetched = []
    volume = np.random.default_rng(1).normal(size=(2, 4, 5, 6, 2)).astype(np.float32)
    for ksizes, strides in (([1, 2, 3, 1, 1], [1, 1, 2, 1, 1]), ([1, 3, 3, 3, 1], [1, 2, 2, 2, 1])):
        for padding in ("SAME", "VALID"):
            x = tf.constant(volume)
            y = tf.extract_volume_patches(x, ksizes, strides, padding)
            fetched += [y, tf.gradients(y * y, x)[0]]
    whole = np.arange(2 * 2 * 2 * 2).reshape(1, 2, 2, 2, 2)
    for dtype in (np.int8, np.uint16, np.int64, np.float64, np.float16):
        fetched.append(tf.extract_volume_patches(whole.astype(dtype), [1, 2, 1, 2, 1], [1] * 5, "SAME"))
    return fetched


def similarity_at_scales(tf: Any) -> Any:
    rng = np.random.default_rng(3)
    first = rng.uniform(size=(2, 23, 30, 2)).astype(np.float32)
    second = np.clip(first + 0.1 * rng.normal(size=first.shape), 0, 1).astype(np.float32)
    return [
        tf.image.ssim_multiscale(first, second, 1.0, (0.3, 0.7)),
        tf.image.ssim_multiscale(first, 1 - first, 1.0, (0.5, 0.5), filter_size=3),
    ]


def similarity_of_whole_numbers(tf: Any) -> Any:
    rng = np.random.default_rng(4)
    first = rng.integers(0, 255, size=(3, 17, 15, 1)).astype(np.uint8)
    second = (first * 0.9).astype(np.uint8)
    return [tf.image.ssim_multiscale(first, second, 255, (0.2, 0.3, 0.5), filter_size=4, filter_sigma=2.0)]


def fingerprints(tf: Any) -> Any:
    whole = np.arange(24).reshape(4, 3, 2)
    data = [whole.astype(d) for d in (np.int8, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64)]
    data += [whole % 3 == 0, np.zeros((3, 0)), np.arange(200.0).reshape(2, 100), np.arange(3)]
    words = [["a", "", "c"], [["a", "b"], ["é" * 50, ""]], [["one"], ["two"]]]
    return [tf.fingerprint(value) for value in (*data, *map(tf.constant, words))]


CASES = {
    **{f"scaled_by_{kind}": scaled_by(kind) for kind in KINDS},
    "scaled_whole_numbers": scaled_whole_numbers,
    "patches_of_volumes": patches_of_volumes,
    "similarity_at_scales": similarity_at_scales,
    "similarity_of_whole_numbers": similarity_of_whole_numbers,
    "fingerprints": fingerprints,
}
