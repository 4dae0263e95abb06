"""Rows of the op table: boxes, morphological dilation, connectionist temporal classification."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.ops.images.boxes import COLOURS
from anabranch.testing.op_cases import OpCase
from tests.oracles import windows

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(2006)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


# ---------------------------------------------------------------------- boxes
def framed(images: Array, boxes: Array, colours: Array = COLOURS) -> Array:
    """A pixel is coloured if it lies within the box, on one of its four lines."""
    out = images.copy()
    height, width = images.shape[1:3]
    for b, i in np.ndindex(*boxes.shape[:2]):
        top, left, bottom, right = np.trunc(boxes[b, i] * [height - 1, width - 1, height - 1, width - 1])
        for y, x in np.ndindex(height, width):
            within = top <= y <= bottom and left <= x <= right
            if within and (y in (top, bottom) or x in (left, right)):
                out[b, y, x] = colours[i % len(colours)][: images.shape[3]]
    return out


def is_a_box(least: float) -> Any:
    def verify(outputs: list[Array]) -> None:
        begin, size, box = outputs
        y, x = begin[:2]
        height, width = size[:2]
        assert (begin[2], size[2]) == (0, -1)
        assert 0 <= y <= 40 - height
        assert 0 <= x <= 60 - width
        assert least <= height * width <= 40 * 60
        np.testing.assert_allclose(box[0, 0] * [40, 60, 40, 60], [y, x, y + height, x + width], rtol=1e-5)

    return verify


PICTURES = RNG.uniform(size=(2, 7, 9, 3)).astype(np.float32)
FRAMES = np.array([[[0, 0, 1, 1], [0.3, 0.2, 0.6, 0.8]], [[-0.4, 0.5, 0.5, 1.7], [0.9, 0.9, 0.1, 0.1]]], np.float32)
SIZE = np.array([40, 60, 3], np.int32)
OBJECT = np.array([[[0.1, 0.2, 0.8, 0.9]]], np.float32)
NOTHING = np.zeros((1, 0, 4), np.float32)

BOXES = [
    OpCase("DrawBoundingBoxes", (PICTURES, FRAMES), oracle=framed),
    OpCase(
        "DrawBoundingBoxes",
        (PICTURES[..., :1], FRAMES),
        oracle=lambda x, b: framed(x, b, np.ones((1, 1))),
        label="grey",
    ),
    OpCase("DrawBoundingBoxesV2", (PICTURES, FRAMES, normal(1, 4)), oracle=framed),
    OpCase("SampleDistortedBoundingBox", (SIZE, OBJECT), verify=is_a_box(0.05 * 2400)),
    OpCase("SampleDistortedBoundingBox", (SIZE, NOTHING), error=InvalidArgumentError, label="no objects"),
    OpCase(
        "SampleDistortedBoundingBoxV2",
        (SIZE, NOTHING, np.float32(0.3)),
        {"use_image_if_no_bounding_boxes": True, "area_range": [0.5, 0.9], "seed": 3},
        verify=is_a_box(0.5 * 2400),
    ),
]


# ---------------------------------------------------------------------- dilation
def above_nan(value: Any) -> Any:
    return -np.inf if np.isnan(value) else value


def dilated(strides: tuple[int, int], rates: tuple[int, int], padding: str) -> Any:
    def best(x: Array, w: Array) -> Any:
        outputs, _ = windows.positions(x.shape[1:3], w.shape[:2], strides, rates, padding)
        for b, c in np.ndindex(x.shape[0], x.shape[3]):
            walk = windows.positions(x.shape[1:3], w.shape[:2], strides, rates, padding)[1]
            for at, seen in walk:
                sums = [above_nan(x[(b, *place, c)] + w[(*tap, c)]) for tap, place in seen]
                yield (b, *at, c), seen[sums.index(max(sums))], outputs

    def value(x: Array, w: Array) -> Array:
        found = list(best(x, w))
        out = np.zeros((x.shape[0], *found[0][2], x.shape[3]), x.dtype)
        for at, (tap, place), _ in found:
            out[at] = x[(at[0], *place, at[3])] + w[(*tap, at[3])]
        return out

    def to_input(x: Array, w: Array, g: Array) -> Array:
        out = np.zeros_like(x)
        for at, (_, place), _ in best(x, w):
            out[(at[0], *place, at[3])] += g[at]
        return out

    def to_filter(x: Array, w: Array, g: Array) -> Array:
        out = np.zeros_like(w)
        for at, (tap, _), _ in best(x, w):
            out[(*tap, at[3])] += g[at]
        return out

    return value, to_input, to_filter


X, W, G = normal(2, 5, 6, 3), normal(2, 3, 3), normal(2, 3, 3, 3)
SPOILT = W.copy()
SPOILT[0, 0, 0] = SPOILT[1, 2, 1] = np.nan
PLAIN = {"strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}
WIDE = {"strides": [1, 1, 1, 1], "rates": [1, 2, 2, 1], "padding": "VALID"}
VALUE, TO_INPUT, TO_FILTER = dilated((2, 2), (1, 1), "SAME")

DILATIONS = [
    OpCase("Dilation2D", (X, W), PLAIN, VALUE),
    OpCase("Dilation2D", (X, W), WIDE, dilated((1, 1), (2, 2), "VALID")[0], label="dilated"),
    *(
        OpCase(op, inputs, PLAIN, oracle, gradient=False, label="NaN")
        for op, inputs, oracle in (
            ("Dilation2D", (X, SPOILT), VALUE),
            ("Dilation2DBackpropInput", (X, SPOILT, G), TO_INPUT),
            ("Dilation2DBackpropFilter", (X, SPOILT, G), TO_FILTER),
        )
    ),
    OpCase("Dilation2D", (np.int32(X * 9), np.int32(W * 9)), PLAIN, VALUE, label="int32"),
    OpCase("Dilation2D", (X, W[..., :2]), PLAIN, error=InvalidArgumentError, label="channels"),
    *(
        OpCase(op, args, {**PLAIN, "strides": [1, stride, 1, 1]}, error=InvalidArgumentError, label=f"stride {stride}")
        for op, args in (
            ("Dilation2D", (X, W)),
            ("Dilation2DBackpropInput", (X, W, G)),
            ("Dilation2DBackpropFilter", (X, W, G)),
        )
        for stride in (0, -1)
    ),
    OpCase("Dilation2DBackpropInput", (X, W, G), PLAIN, TO_INPUT),
    OpCase("Dilation2DBackpropFilter", (X, W, G), PLAIN, TO_FILTER),
]


# ---------------------------------------------------------------------- sequences of labels
def read(path: tuple[int, ...], blank: int, merge: bool = True) -> tuple[int, ...]:
    """The labels that a path stands for."""
    merged = [c for i, c in enumerate(path) if not merge or i == 0 or path[i - 1] != c]
    return tuple(c for c in merged if c != blank)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def probability(logits: Array, labels: tuple[int, ...], merge: bool = True) -> float:
    """The sum over all paths, one by one."""
    steps, classes = logits.shape
    chances = softmax(logits.astype(np.float64))
    paths = itertools.product(range(classes), repeat=steps)
    return sum(np.prod(chances[range(steps), p]) for p in paths if read(p, classes - 1, merge) == labels)


def ctc(labels: list[tuple[int, ...]], merge: bool = True) -> Any:
    def oracle(logits: Array, indices: Array, values: Array, lengths: Array) -> list[Array]:
        grad, loss = np.zeros(logits.shape), np.zeros(len(labels))
        for b, own in enumerate(labels):
            x = logits[: lengths[b], b].astype(np.float64)
            loss[b] = -np.log(probability(x, own, merge))
            for at in np.ndindex(*x.shape):
                step = np.zeros(x.shape)
                step[at] = 1e-5
                ends = [np.log(probability(x + s * step, own, merge)) for s in (-1, 1)]
                grad[at[0], b, at[1]] = (ends[0] - ends[1]) / 2e-5
        return [loss.astype(logits.dtype), grad.astype(logits.dtype)]

    return oracle


def best_labels(logits: Array, count: int) -> list[tuple[tuple[int, ...], float]]:
    chances: dict[tuple[int, ...], float] = {}
    steps, classes = logits.shape
    for path in itertools.product(range(classes), repeat=steps):
        labels = read(path, classes - 1)
        chances[labels] = chances.get(labels, 0.0) + float(np.prod(softmax(logits)[range(steps), path]))
    return sorted(chances.items(), key=lambda item: -item[1])[:count]


def sparse(rows: list[tuple[int, ...]]) -> list[Array]:
    indices = [(b, i) for b, row in enumerate(rows) for i in range(len(row))]
    values = [label for row in rows for label in row]
    shape = [len(rows), max(map(len, rows))]
    return [np.array(indices, np.int64).reshape(-1, 2), np.array(values, np.int64), np.array(shape, np.int64)]


def beams(logits: Array, lengths: Array) -> list[Array]:
    found = [best_labels(logits[: lengths[b], b].astype(np.float64), 2) for b in range(len(lengths))]
    first, second = (sparse([found[b][k][0] for b in range(len(lengths))]) for k in (0, 1))
    parts = [part for pair in zip(first, second, strict=True) for part in pair]
    return [*parts, np.log([[score for _, score in row] for row in found]).astype(np.float32)]


def greedy(logits: Array, lengths: Array) -> list[Array]:
    paths = [tuple(logits[:n, b].argmax(-1)) for b, n in enumerate(lengths)]
    rows = [read(path, logits.shape[2] - 1) for path in paths]
    scores = [[-logits[:n, b].max(-1).sum()] for b, n in enumerate(lengths)]
    return [*sparse(rows), np.array(scores, np.float32)]


def ctc_labels(rows: list[tuple[int, ...]]) -> tuple[Array, Array]:
    indices, values, _ = sparse(rows)
    return indices, values.astype(np.int32)


LOGITS = normal(4, 3, 4)
LENGTHS = np.array([4, 3, 2], np.int32)
LABELS: list[tuple[int, ...]] = [(1, 1), (0, 2, 1), (2,)]
PLACES, NAMES = ctc_labels(LABELS)

SEQUENCES = [
    OpCase("CTCLoss", (LOGITS, PLACES, NAMES, LENGTHS), oracle=ctc(LABELS), tolerance=1e-4, gradient=False),
    OpCase(
        "CTCLoss",
        (LOGITS.astype(np.float64), PLACES, NAMES, LENGTHS),
        {"preprocess_collapse_repeated": True},
        ctc([(1,), (0, 2, 1), (2,)]),
        tolerance=1e-6,
        gradient=False,
        label="collapsed",
    ),
    OpCase(
        "CTCLoss",
        (LOGITS, PLACES, NAMES, LENGTHS),
        {"ctc_merge_repeated": False},
        ctc(LABELS, merge=False),
        tolerance=1e-4,
        gradient=False,
        label="unmerged",
    ),
    OpCase("CTCLoss", (LOGITS, PLACES, NAMES, LENGTHS - 1), error=InvalidArgumentError, label="too short"),
    OpCase("CTCLoss", (LOGITS, PLACES, NAMES - 1, LENGTHS), error=InvalidArgumentError, label="negative"),
    OpCase(
        "CTCLoss",
        (LOGITS, *ctc_labels([(1, 1, 3), (0, 2, 1), (2, 7)]), LENGTHS),
        oracle=ctc(LABELS),
        tolerance=1e-4,
        gradient=False,
        label="filled up with blanks",
    ),
    OpCase(
        "CTCLoss",
        (LOGITS, *ctc_labels([(3, 3), (0, 2, 1), (2,)]), LENGTHS),
        oracle=ctc([(), (0, 2, 1), (2,)]),
        tolerance=1e-4,
        gradient=False,
        label="nothing but blanks",
    ),
    OpCase(
        "CTCLoss",
        (LOGITS, *ctc_labels([(1, 3, 1), (0, 2, 1), (2,)]), LENGTHS),
        error=InvalidArgumentError,
        label="a label after a blank",
    ),
    OpCase(
        "CTCLoss",
        (LOGITS, *ctc_labels([(1, 1), (0, 2, 1), (2, 2, 2)]), LENGTHS),
        {"preprocess_collapse_repeated": True},
        error=InvalidArgumentError,
        label="too long before they are collapsed",
    ),
    OpCase(
        "CTCLoss", (LOGITS, *ctc_labels([(1, 1), (), (2,)]), LENGTHS), error=InvalidArgumentError, label="no labels"
    ),
    OpCase("CTCLoss", (LOGITS, PLACES[::-1], NAMES[::-1], LENGTHS), error=InvalidArgumentError, label="out of order"),
    OpCase(
        "CTCLoss",
        (LOGITS, np.maximum(PLACES, [0, 1]), NAMES, LENGTHS),
        error=InvalidArgumentError,
        label="two in one place",
    ),
    OpCase("CTCLoss", (LOGITS, PLACES, NAMES, LENGTHS + 1), error=InvalidArgumentError, label="too long"),
    OpCase(
        "CTCLossV2",
        (LOGITS, PLACES, NAMES + 1, LENGTHS),
        oracle=lambda logits, places, names, lengths: [
            ctc(LABELS)(np.roll(logits, -1, 2), places, names - 1, lengths)[0],
            np.roll(ctc(LABELS)(np.roll(logits, -1, 2), places, names - 1, lengths)[1], 1, 2),
        ],
        tolerance=1e-4,
        gradient=False,
    ),
    OpCase("CTCLossV2", (LOGITS, PLACES, NAMES, LENGTHS), error=InvalidArgumentError, label="the blank as a label"),
    OpCase("CTCGreedyDecoder", (LOGITS, LENGTHS), {"merge_repeated": True}, greedy),
    OpCase(  # a label of NaN is not greater than another; the first is greatest until another is greater
        "CTCGreedyDecoder",
        (np.float32([[[1, np.nan, 0]], [[0, 2, np.nan]], [[np.nan, 1, 2]]]), np.int32([3])),
        expected=[np.int64([[0, 0], [0, 1], [0, 2]]), np.int64([0, 1, 0]), np.int64([1, 3]), np.float32([[np.nan]])],
        label="NaN",
    ),
    OpCase(
        "CTCBeamSearchDecoder",
        (LOGITS, LENGTHS),
        {"beam_width": 50, "top_paths": 2, "merge_repeated": False},
        beams,
    ),
    OpCase(
        "CTCBeamSearchDecoder",
        (LOGITS, LENGTHS),
        {"beam_width": 1, "top_paths": 2},
        error=InvalidArgumentError,
        label="more paths than beams",
    ),
    *(
        OpCase(
            "CTCBeamSearchDecoder",
            (np.full((2, 1, classes), value, np.float32), np.int32([2])),
            {"beam_width": 5, "top_paths": paths},
            error=InvalidArgumentError,
            label=label,
        )
        for classes, value, paths, label in ((2, 0.0, 3, "paths that cannot be"), (3, np.nan, 2, "NaN"))
    ),
]


# ---------------------------------------------------------------------- windows with noise around the image
def glimpses(height: int, width: int, centered: bool, normalized: bool) -> Any:
    def oracle(images: Array, size: Array, offsets: Array) -> Array:
        out = np.zeros((len(images), height, width, images.shape[3]), np.float32)
        sizes = np.array(images.shape[1:3])
        for b, middle in enumerate(offsets * sizes if normalized else offsets):
            y, x = np.trunc((middle / 2 + sizes / 2 if centered else middle) - np.array([height, width]) / 2).astype(
                int
            )
            for i, j in np.ndindex(height, width):
                if 0 <= y + i < sizes[0] and 0 <= x + j < sizes[1]:
                    out[b, i, j] = images[b, y + i, x + j]
        return out

    return oracle


def between_the_values(images: Array) -> Any:
    """Noise is between the least and the greatest value, and not all the same."""

    def verify(outputs: list[Array]) -> None:
        (noise,) = outputs
        assert images.min() <= noise.min() < noise.max() <= images.max()
        assert len(np.unique(noise)) > noise.size / 2

    return verify


FAR = np.array([[9, 9], [-9, 0]], np.float32)
NO_NOISE: dict[str, Any] = {"uniform_noise": False, "noise": "zero"}
GLIMPSES = [
    *(
        OpCase(
            "ExtractGlimpse",
            (PICTURES, np.array([4, 3], np.int32), offsets),
            {"centered": centered, "normalized": normalized, **NO_NOISE},
            glimpses(4, 3, centered, normalized),
            label=f"{centered}, {normalized}",
        )
        for centered, normalized, offsets in (
            (True, True, np.array([[0.1, -0.2], [0.8, -0.9]], np.float32)),
            (False, True, np.array([[0.1, 0.45], [0.8, 1.3]], np.float32)),
            (True, False, np.array([[1.25, -3], [9, 2]], np.float32)),
            (False, False, np.array([[3, 4], [-1.5, 7.2]], np.float32)),
        )
    ),
    OpCase(
        "ExtractGlimpse",
        (PICTURES, np.array([12, 2], np.int32), np.zeros((2, 2), np.float32)),
        NO_NOISE,
        glimpses(12, 2, True, True),
        label="greater than the image",
    ),
    *(
        OpCase(
            "ExtractGlimpse",
            (PICTURES, np.array([4, 3], np.int32), FAR),
            {"uniform_noise": noise == "uniform", "noise": noise},
            verify=between_the_values(PICTURES),
            label=noise,
        )
        for noise in ("uniform", "gaussian")
    ),
]

CASES = [*BOXES, *DILATIONS, *GLIMPSES, *SEQUENCES]
