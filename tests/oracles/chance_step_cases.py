"""Random numbers and candidates: what is the same whatever is drawn, for `make_step_fixture.py`.

The numbers themselves are others (docs/decisions/0008). Compared are dtypes, shapes, bounds, parameters that leave no
choice, and whether means and spreads of many numbers are those of the distribution: both sides must say so.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_MANY = np.int32([4000])


def _near(tf: Any, x: Any, mean: float, spread: float) -> list[Any]:
    x = tf.cast(x, tf.float64)
    found, variance = tf.nn.moments(x, [0])
    slack = 6 * spread / 4000**0.5
    return [tf.abs(found - mean) < slack, tf.abs(tf.sqrt(variance) - spread) < 6 * slack]


def _forms(tf: Any, draw: Any) -> list[Any]:
    return [tf.shape(draw(np.int32(shape))) for shape in ([], [2, 0, 3])] + [tf.zeros_like(draw(np.int32([2])))]


def drawn_numbers(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for dtype in (tf.float32, tf.float64):
        seeds = {"seed": 3, "seed2": 4}
        stateless = {"seed": np.int32([5, 6])}
        for name, given, mean, spread in (
            ("RandomStandardNormal", seeds, 0.0, 1.0),
            ("RandomUniform", seeds, 0.5, 0.2887),
            ("TruncatedNormal", seeds, 0.0, 0.8796),
            ("StatelessRandomNormal", stateless, 0.0, 1.0),
            ("StatelessTruncatedNormal", stateless, 0.0, 0.8796),
            ("StatelessRandomUniform", stateless, 0.5, 0.2887),
        ):
            draw = functools.partial(_draw, getattr(R, name), {"dtype": dtype, **given})
            x = draw(_MANY)
            found = [*_forms(tf, draw), *(_near(tf, x, mean, spread) if dtype == tf.float32 else [])]
            if "Truncated" in name:
                found.append(tf.reduce_all(tf.abs(x) <= 2))
            if "Uniform" in name:
                found.append(tf.reduce_all((x >= 0) & (x < 1)))
            steps.append(found)
    return [steps]


def _draw(operation: Any, given: dict[str, Any], shape: Any) -> Any:
    return operation(shape=shape, **given)


def drawn_integers(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    for dtype in (np.int32, np.int64):
        bounds = {"minval": np.array(-3, dtype), "maxval": np.array(5, dtype)}
        for draw in (
            functools.partial(_draw, R.RandomUniformInt, {"seed": 1, "seed2": 2, **bounds}),
            functools.partial(_draw, R.StatelessRandomUniformInt, {"seed": np.int64([1, 2]), **bounds}),
        ):
            x = draw(_MANY)
            found += [*_forms(tf, draw), tf.reduce_min(x), tf.reduce_max(x), *_near(tf, x, 0.5, 2.2913)]
        one = {"minval": np.array(7, dtype), "maxval": np.array(8, dtype)}
        found += [R.RandomUniformInt(shape=[3], **one), R.StatelessRandomUniformInt(shape=[3], seed=[1, 2], **one)]
    for kind in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        draw = functools.partial(_draw, R.StatelessRandomUniformFullInt, {"seed": np.int32([1, 2]), "dtype": kind})
        found += _forms(tf, draw)
    empty = {"minval": np.int32(5), "maxval": np.int32(5)}
    low = tf.placeholder_with_default(np.int32(5), [])
    empty = {"minval": low, "maxval": low}
    return [
        found,
        R.RandomUniformInt(shape=[3], **empty),
        R.StatelessRandomUniformInt(shape=[3], seed=[1, 2], **empty),
        R.RandomUniformInt(shape=[0], **empty),
    ]


def drawn_by_parameters(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    for dtype in (np.float32,):
        alpha, rate = np.array([0.5, 4], dtype), np.array([0.5, 30], dtype)
        gamma = R.RandomGamma(shape=_MANY, alpha=alpha, seed=1)
        poisson = R.RandomPoissonV2(shape=_MANY, rate=rate, seed=1, dtype=tf.as_dtype(dtype))
        found += [
            tf.shape(gamma),
            tf.shape(poisson),
            tf.reduce_all(gamma > 0),
            tf.reduce_all(tf.equal(tf.floor(poisson), poisson)),
        ]
        for i in (0, 1):
            found += [
                *_near(tf, gamma[:, i], alpha[i], alpha[i] ** 0.5),
                *_near(tf, poisson[:, i], rate[i], rate[i] ** 0.5),
            ]
        found += [
            R.RandomPoissonV2(shape=[3], rate=np.array(0, dtype), dtype=tf.int64),
            tf.shape(R.RandomGamma(shape=[0], alpha=alpha)),
            tf.shape(R.RandomGamma(shape=np.int64([2, 2]), alpha=alpha[:0])),
        ]
        limits = {"means": dtype(1), "stdevs": dtype(2), "minvals": dtype(-1), "maxvals": dtype(3)}
        x = R.ParameterizedTruncatedNormal(shape=_MANY, seed=1, **limits)
        found += [tf.reduce_all((x >= -1) & (x <= 3)), tf.abs(tf.reduce_mean(x) - 1) < 0.05, tf.zeros_like(x[:3])]
        a = tf.constant(alpha)
        slope = tf.gradients(R.RandomGamma(shape=[1000], alpha=a, seed=1), a)[0]
        found += [tf.shape(slope), tf.reduce_all(tf.abs(slope / 1000 - 1) < 0.4)]  # d/da of the mean, a
    return [found]


def drawn_classes(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    for dtype in (np.float32,):
        certain = np.array([[-1e9, 0, -1e9], [0, -1e9, -1e9]], dtype)
        found += [
            R.Multinomial(logits=certain, num_samples=5, seed=1),
            R.StatelessMultinomial(logits=certain, num_samples=5, seed=[1, 2]),
        ]
        for x in (
            R.Multinomial(logits=np.zeros((1, 2), dtype), num_samples=4000, seed=1, output_dtype=tf.int32),
            R.StatelessMultinomial(
                logits=np.zeros((1, 2), dtype), num_samples=4000, seed=[3, 4], output_dtype=tf.int32
            ),
        ):
            found += _near(tf, x[0], 0.5, 0.5)
        found.append(tf.shape(R.Multinomial(logits=np.zeros((2, 3), dtype), num_samples=0)))
        found.append(tf.shape(R.Multinomial(logits=np.zeros((0, 3), dtype), num_samples=4)))
    for value in (
        np.arange(6),
        np.array(["a", "b", ""]),
        np.arange(4.0).reshape(4, 1),
        np.zeros((0, 2)),
        np.zeros((1, 3)),
    ):
        shuffled = R.RandomShuffle(value=tf.constant(value), seed=1)
        found.append(tf.sort(shuffled, 0) if value.dtype.kind != "U" else tf.shape(shuffled))
    return [found]


def drawn_candidates(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    true = np.int64([[0, 3], [2, 1], [4, 0]])
    base = {"true_classes": true, "num_true": 2, "seed": 1, "seed2": 2}
    for name in ("Uniform", "LogUniform", "LearnedUnigram", "ThreadUnsafeUnigram"):
        sampler = getattr(R, f"{name}CandidateSampler")
        some = sampler(num_sampled=4, unique=False, range_max=5, **base)
        every = sampler(num_sampled=5, unique=True, range_max=5, **base)
        steps.append(
            [
                tf.shape(some.sampled_candidates),
                tf.reduce_all((some.sampled_candidates >= 0) & (some.sampled_candidates < 5)),
                tf.sort(every.sampled_candidates),
                tf.shape(every.true_expected_count),
                tf.shape(every.sampled_expected_count),
                *([some.true_expected_count, tf.shape(some.sampled_expected_count)] if "Uniform" in name else []),
            ]
        )
    weights = [1.0, 2.0, 3.0, 4.0, 5.0]
    fixed = R.FixedUnigramCandidateSampler(
        num_sampled=4, unique=False, range_max=5, unigrams=weights, distortion=0.75, **base
    )
    kept = R.FixedUnigramCandidateSampler(
        num_sampled=4, unique=True, range_max=6, unigrams=weights, num_reserved_ids=1, num_shards=1, shard=0, **base
    )
    found = R.AllCandidateSampler(num_sampled=5, unique=True, **base)
    steps += [
        [fixed.true_expected_count, tf.shape(fixed.sampled_expected_count)],
        [tf.reduce_all(kept.sampled_candidates > 0), tf.shape(kept.true_expected_count)],
        list(found),
        list(R.AllCandidateSampler(num_sampled=5, unique=False, **base)),
    ]
    return steps


def drawn_boxes(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    for dtype in (np.int32, np.int64, np.uint8):
        size = np.array([40, 60, 3], dtype)
        boxes = np.float32([[[0.2, 0.3, 0.6, 0.9]]])
        whole = {"aspect_ratio_range": [0.5, 2.0], "area_range": [0.3, 0.9], "max_attempts": 50, "seed": 1, "seed2": 2}
        for drawn in (
            R.SampleDistortedBoundingBox(image_size=size, bounding_boxes=boxes, min_object_covered=0.2, **whole),
            R.SampleDistortedBoundingBoxV2(
                image_size=size, bounding_boxes=boxes, min_object_covered=np.float32(0.2), **whole
            ),
        ):
            begin, extent = tf.cast(drawn.begin, tf.int32), tf.cast(drawn.size, tf.int32)
            found += [
                tf.zeros_like(drawn.begin),
                tf.zeros_like(drawn.size),
                drawn.size[2],
                tf.reduce_all(begin[:2] + extent[:2] <= [40, 60]),
                tf.shape(drawn.bboxes),
                tf.reduce_all((drawn.bboxes >= 0) & (drawn.bboxes <= 1)),
            ]
    none = R.SampleDistortedBoundingBoxV2(
        image_size=[4, 6, 3],
        bounding_boxes=np.zeros((0, 0, 4), "f"),
        min_object_covered=np.float32(0),
        use_image_if_no_bounding_boxes=True,
        aspect_ratio_range=[1.5, 1.5],
        area_range=[1.0, 1.0],
        seed=1,
    )
    refused = R.SampleDistortedBoundingBoxV2(
        image_size=[4, 6, 3], bounding_boxes=np.zeros((0, 0, 4), "f"), min_object_covered=np.float32(0), seed=1
    )
    return [found, list(none), list(refused)]
