"""Connectionist temporal classification: the loss of sequences without alignment, and decoders.

Logits are [time, batch, classes], the last class is the blank. A path emits one class per step; it stands for the
labels that remain when repeated classes are merged and blanks are dropped. All run on the host, as lengths vary.

The loss -log p(labels) sums over all paths by dynamic programming (Graves et al., 2006). The states are the labels
with blanks around each; `forward[t, u]` is the log probability of being in state u at time t, having emitted the states
up to it, and `backward[t, u]` that of emitting the rest after t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

Array = np.ndarray[Any, Any]

_NEVER = -np.inf


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _check_logits(inputs: TensorShape, sequence_length: TensorShape) -> TensorShape:
    inputs = shape_rules.with_rank(inputs, 3, "inputs")
    batch = shape_rules.with_rank(sequence_length, 1, "sequence_length").merge_with(inputs[1:2])
    return TensorShape([inputs[0], batch[0], inputs[2]])


def _check_lengths(inputs: Array, sequence_length: Array, ctx: OperationContext) -> None:
    ctx.check(
        (sequence_length >= 0) & (sequence_length <= inputs.shape[0]),
        f"sequence_length must be in [0, {inputs.shape[0]}], the number of time steps; got {{0}}",
        sequence_length,
    )


# ---------------------------------------------------------------------- loss
_LOSS_INPUTS = "labels_indices: int64, labels_values: int32, sequence_length: int32"
_LOSS_ATTRIBUTES = (
    "preprocess_collapse_repeated: bool = False, ctc_merge_repeated: bool = True, "
    "ignore_longer_outputs_than_inputs: bool = False"
)
_LOSS_RANKS = {"inputs": 3, "labels_indices": 2, "labels_values": 1, "sequence_length": 1}
#: a loss for each example, and a gradient as large as the inputs, whatever the labels are
_LOSS_SIZED_BY = {"inputs": "shape"}


def _loss_shapes(
    inputs: TensorShape, labels_indices: TensorShape, labels_values: TensorShape, sequence_length: TensorShape
) -> tuple[TensorShape, TensorShape]:
    shape_rules.merged(labels_values, shape_rules.with_rank(labels_indices, 2, "labels_indices")[:1])
    shape_rules.late(shape_rules.merged, labels_indices, TensorShape([None, 2]))
    logits = _check_logits(inputs, sequence_length)
    return logits[1:2], logits


def _losses(
    inputs: Array,
    labels_indices: Array,
    labels_values: Array,
    sequence_length: Array,
    *,
    preprocess_collapse_repeated: bool,
    ctc_merge_repeated: bool,
    ignore_longer_outputs_than_inputs: bool,
    ctx: OperationContext,
) -> tuple[Array, Array]:
    _check_lengths(inputs, sequence_length, ctx)
    _, batch, classes = inputs.shape
    ctx.check(batch > 0, "batch_size must not be 0")
    ctx.check(
        labels_values >= 0,
        f"labels must be in [0, {classes - 1}) (the class {classes - 1} is the blank), got {{0}}",
        labels_values,
    )
    rows, columns = labels_indices[:, 0], labels_indices[:, 1]
    ctx.check((rows >= 0) & (rows < batch), f"the labels' rows must be in [0, {batch}), got {{0}}", rows)
    ctx.check(columns >= 0, "the labels' columns must not be negative, got {0}", columns)
    follows = (rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1]))
    ctx.check(follows, "the labels' indices are out of order, or repeated: sort them with tf.sparse_reorder")
    loss, gradient = np.zeros(batch, inputs.dtype), np.zeros(inputs.shape, inputs.dtype)
    for b, steps in enumerate(sequence_length.tolist()):
        # these count as they were given: TensorFlow looks at the time before it merges or drops any
        given = labels_values[rows == b]
        labels = _without_blanks(given, b, classes - 1, preprocess_collapse_repeated, ctx)
        if len(given) > steps and ignore_longer_outputs_than_inputs:
            continue
        ctx.check(
            len(given) <= steps,
            f"not enough time for the labels of sequence {b}: {len(given)} labels, {steps} steps; shorten them or "
            "set ignore_longer_outputs_than_inputs",
        )
        if steps:
            loss[b], gradient[:steps, b] = _loss_of_one(_log_softmax(inputs[:steps, b]), labels, ctc_merge_repeated)
    return loss, gradient


def _without_blanks(labels: Array, row: int, blank: int, merge: bool, ctx: OperationContext) -> Array:
    """The labels before those, at the end, that are the blank or above it: sequences are filled up with these."""
    ctx.check(
        len(labels) > 0,
        f"sequence {row} has no labels; leave it out, or give it one that is the blank ({blank})",
    )
    if merge:
        labels = labels[np.append(True, labels[1:] != labels[:-1])]
    are_blank = labels >= blank
    ctx.check(
        are_blank[1:] | ~are_blank[:-1],
        f"a label of sequence {row} follows one that is the blank ({blank}) or above it: {labels.tolist()}",
    )
    kept: Array = labels[~are_blank]
    return kept


def _loss_gradient(op: Operation, grad_loss: Tensor, _: Tensor | None) -> Any:
    return raw.Mul(op.outputs[1], raw.ExpandDims(grad_loss, np.int32(-1))), None, None, None


CTCLoss = define_op(
    "CTCLoss",
    f"inputs: T, {_LOSS_INPUTS} -> loss: T, gradient: T",
    f"{_LOSS_ATTRIBUTES}, T: {{float, double}} = float32",
    ranks=_LOSS_RANKS,
    sized_by=_LOSS_SIZED_BY,
)
CTCLoss.shape(_loss_shapes)
CTCLoss.host_kernel(_losses)
CTCLoss.gradient(_loss_gradient)

CTCLossV2 = define_op(
    "CTCLossV2",
    f"inputs: float32, {_LOSS_INPUTS} -> loss: float32, gradient: float32",
    _LOSS_ATTRIBUTES,
    ranks=_LOSS_RANKS,
    sized_by=_LOSS_SIZED_BY,
)
CTCLossV2.shape(_loss_shapes)
CTCLossV2.gradient(_loss_gradient)


@CTCLossV2.host_kernel
def _(
    inputs: Array,
    labels_indices: Array,
    labels_values: Array,
    sequence_length: Array,
    *,
    preprocess_collapse_repeated: bool,
    ctc_merge_repeated: bool,
    ignore_longer_outputs_than_inputs: bool,
    ctx: OperationContext,
) -> tuple[Array, Array]:
    """The loss where the first class, not the last, is the blank."""
    classes = inputs.shape[2]
    ctx.check(
        (labels_values >= 1) & (labels_values < classes),
        f"labels must be in [1, {classes}) (the class 0 is the blank), got {{0}}",
        labels_values,
    )
    loss, gradient = _losses(
        np.roll(inputs, -1, axis=2),
        labels_indices,
        labels_values - 1,
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
        ctx=ctx,
    )
    return loss, np.roll(gradient, 1, axis=2)


def _loss_of_one(log_probabilities: Array, labels: Array, merge: bool) -> tuple[float, Array]:
    """-log p(labels), and its gradient with respect to the logits [time, classes].

    Labels that no path of this length stands for (repetitions need a blank between them) have the loss infinity.
    """
    classes = log_probabilities.shape[1]
    states = np.full(2 * len(labels) + 1, classes - 1)
    states[1::2] = labels
    stay = (states == classes - 1) | merge
    skip = np.zeros(len(states), bool)
    skip[2:] = (states[2:] != classes - 1) & ((states[2:] != states[:-2]) | (not merge))
    emitted = log_probabilities[:, states]
    forward = _forward(emitted, stay, skip)
    backward = _backward(emitted, stay, skip)
    both = forward + backward
    total = np.logaddexp.reduce(both[-1])
    shares: Array = np.exp(both - max(total, -1e300)) @ np.eye(classes)[states]
    return -total, np.exp(log_probabilities) - shares


def _forward(emitted: Array, stay: Array, skip: Array) -> Array:
    steps, count = emitted.shape
    log_probs = np.full((steps, count), _NEVER)
    log_probs[0, :2] = emitted[0, :2]
    for t in range(1, steps):
        before = log_probs[t - 1]
        total = np.where(stay, before, _NEVER)
        total[1:] = np.logaddexp(total[1:], before[:-1])
        total[2:] = np.logaddexp(total[2:], np.where(skip[2:], before[:-2], _NEVER))
        log_probs[t] = total + emitted[t]
    return log_probs


def _backward(emitted: Array, stay: Array, skip: Array) -> Array:
    steps, count = emitted.shape
    log_probs = np.full((steps, count), _NEVER)
    log_probs[-1, -2:] = 0
    for t in range(steps - 2, -1, -1):
        after = log_probs[t + 1] + emitted[t + 1]
        total = np.where(stay, after, _NEVER)
        total[:-1] = np.logaddexp(total[:-1], after[1:])
        total[:-2] = np.logaddexp(total[:-2], np.where(skip[2:], after[2:], _NEVER))
        log_probs[t] = total
    return log_probs


# ---------------------------------------------------------------------- decoders
def _sparse(rows: list[list[int]]) -> tuple[Array, Array, Array]:
    """Rows of labels as the indices, values and shape of a sparse matrix."""
    indices = [(b, i) for b, row in enumerate(rows) for i in range(len(row))]
    values = [label for row in rows for label in row]
    shape = [len(rows), max((len(row) for row in rows), default=0)]
    return np.array(indices, np.int64).reshape(-1, 2), np.array(values, np.int64), np.array(shape, np.int64)


def _merged(labels: list[int]) -> list[int]:
    return [label for i, label in enumerate(labels) if i == 0 or labels[i - 1] != label]


CTCGreedyDecoder = define_op(
    "CTCGreedyDecoder",
    "inputs: T, sequence_length: int32 -> "
    "decoded_indices: int64, decoded_values: int64, decoded_shape: int64, log_probability: T",
    "merge_repeated: bool = False, blank_index: int = -1, T: {float, double} = float32",
)
CTCGreedyDecoder.not_differentiable()


@CTCGreedyDecoder.shape
def _(inputs: TensorShape, sequence_length: TensorShape) -> list[TensorShape]:
    logits = _check_logits(inputs, sequence_length)
    return [TensorShape([None, 2]), TensorShape([None]), TensorShape([2]), TensorShape([logits[1], 1])]


@CTCGreedyDecoder.host_kernel
def _(inputs: Array, sequence_length: Array, *, merge_repeated: bool, blank_index: int, ctx: OperationContext) -> Any:
    _check_lengths(inputs, sequence_length, ctx)
    blank = blank_index % inputs.shape[2]
    # a label is better than those before it where it is greater: NaN is only where it comes first
    inputs = np.where(np.isnan(inputs) & (np.arange(inputs.shape[2]) > 0), _NEVER, inputs).astype(inputs.dtype)
    rows, scores = [], np.zeros((inputs.shape[1], 1), inputs.dtype)
    for b, steps in enumerate(sequence_length.tolist()):
        best = inputs[:steps, b].argmax(axis=-1).tolist()
        scores[b, 0] = -inputs[:steps, b].max(axis=-1).sum() if steps else 0
        rows.append([label for label in (_merged(best) if merge_repeated else best) if label != blank])
    return *_sparse(rows), scores


CTCBeamSearchDecoder = define_op(
    "CTCBeamSearchDecoder",
    "inputs: T, sequence_length: int32 -> decoded_indices: top_paths * int64, decoded_values: top_paths * int64, "
    "decoded_shape: top_paths * int64, log_probability: T",
    "beam_width: int >= 1, top_paths: int >= 1, merge_repeated: bool = True, T: {float, double} = float32",
)
CTCBeamSearchDecoder.not_differentiable()


@CTCBeamSearchDecoder.shape
def _(inputs: TensorShape, sequence_length: TensorShape, *, top_paths: int) -> Any:
    logits = _check_logits(inputs, sequence_length)
    pairs, numbers = TensorShape([None, 2]), TensorShape([None])
    both = TensorShape([2])
    return [pairs] * top_paths, [numbers] * top_paths, [both] * top_paths, TensorShape([logits[1], top_paths])


@CTCBeamSearchDecoder.host_kernel
def _(
    inputs: Array,
    sequence_length: Array,
    *,
    beam_width: int,
    top_paths: int,
    merge_repeated: bool,
    ctx: OperationContext,
) -> Any:
    ctx.check(top_paths <= beam_width, f"requested more paths than the beam width: {top_paths}, of {beam_width}")
    _check_lengths(inputs, sequence_length, ctx)
    paths: list[list[list[int]]] = [[] for _ in range(top_paths)]
    scores = np.zeros((inputs.shape[1], top_paths), inputs.dtype)
    for b, steps in enumerate(sequence_length.tolist()):
        beams = _beam_search(_log_softmax(inputs[:steps, b]), beam_width)[:top_paths]
        ctx.check(len(beams) == top_paths, f"sequence {b} has fewer than {top_paths} decodings")
        for k, (labels, score) in enumerate(beams):
            paths[k].append(_merged(list(labels)) if merge_repeated else list(labels))
            scores[b, k] = score
    sparse = [_sparse(rows) for rows in paths]
    return *([part[i] for part in sparse] for i in range(3)), scores


def _beam_search(log_probabilities: Array, width: int) -> list[tuple[tuple[int, ...], float]]:
    """The best label sequences with their log probabilities, best first.

    Every beam keeps the probability of its paths that end with the blank and of those that end with its last label:
    only after a blank does the same label again make the sequence longer.
    """
    blank = log_probabilities.shape[1] - 1
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, _NEVER)}
    for step in log_probabilities:
        extended: dict[tuple[int, ...], tuple[float, float]] = {}

        def add(
            labels: tuple[int, ...],
            ends_blank: float,
            ends_label: float,
            extended: dict[tuple[int, ...], tuple[float, float]] = extended,
        ) -> None:
            old = extended.get(labels, (_NEVER, _NEVER))
            extended[labels] = (np.logaddexp(old[0], ends_blank), np.logaddexp(old[1], ends_label))

        for labels, (ends_blank, ends_label) in beams.items():
            total = np.logaddexp(ends_blank, ends_label)
            add(labels, total + step[blank], ends_label + step[labels[-1]] if labels else _NEVER)
            for label in range(blank):
                before = ends_blank if labels and labels[-1] == label else total
                add((*labels, label), _NEVER, before + step[label])
        # what cannot be (a label twice with no blank between), or is NaN, makes no new beam
        possible = [item for item in extended.items() if item[0] in beams or np.logaddexp(*item[1]) > _NEVER]
        ranked = sorted(possible, key=lambda item: -np.logaddexp(*item[1]))
        beams = dict(ranked[:width])
    return [(labels, float(np.logaddexp(*ends))) for labels, ends in beams.items()]
