"""Connectionist temporal classification with dense labels, and what prepares them."""

from __future__ import annotations

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.gathering import sequence_mask
from anabranch.frontend.control_flow.functional import map_fn
from anabranch.frontend.framework import convert_to_tensor_or_sparse_tensor, name_scope
from anabranch.frontend.nn.ctc import ctc_loss
from anabranch.graph.composite import SparseTensor, SparseTensorLike
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def ctc_loss_v2(
    labels: TensorLike | SparseTensorLike,
    logits: TensorLike,
    label_length: TensorLike | None,
    logit_length: TensorLike,
    logits_time_major: bool = True,
    unique: tuple[TensorLike, TensorLike] | None = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """-log of the probability of the labels, summed over all ways to stretch them over time.

    Args:
        labels: int32 [batch, longest], of which each row counts as far as `label_length` says; or a SparseTensor.
        logits: [time, batch, classes], or [batch, time, classes].
        label_length: int32 [batch]; not for a SparseTensor.
        logit_length: int32 [batch]: how many time steps count.
        logits_time_major: whether time is the first dimension of the logits.
        unique: what `ctc_unique_labels` gives. It is not needed here.
        blank_index: the class that is no label, from the end where it is negative. Default: 0 for dense labels; for
            a SparseTensor it must be given.

    Returns:
        [batch], of the logits' dtype.

    Raises:
        ValueError: there is no blank for a SparseTensor, or no length for dense labels; or the number of classes is
            not known.

    Source: A. Graves et al., "Connectionist temporal classification", ICML 2006.
    """
    with name_scope(name, "ctc_loss_dense", [logits]):
        given = convert_to_tensor_or_sparse_tensor(labels)
        if blank_index is None and isinstance(given, SparseTensor):
            raise ValueError("Argument `blank_index` must be provided when labels is a SparseTensor.")
        if label_length is None and not isinstance(given, SparseTensor):
            raise ValueError("dense labels need label_length: how many of each row count")
        sparse = (
            given if isinstance(given, SparseTensor) else _first_of_each_row(convert_to_tensor(given), label_length)
        )
        scores = convert_to_tensor(logits, name="logits")
        classes = scores.shape.with_rank(3).dims_tuple[-1]  # type: ignore[index]
        if classes is None:
            raise ValueError(f"the number of classes must be known when the graph is built, got logits {scores.shape}")
        blank = (blank_index or 0) + (classes if (blank_index or 0) < 0 else 0)
        if not 0 <= blank < classes:
            raise ValueError(f"blank_index = {blank_index} is none of the {classes} classes")
        return ctc_loss(
            SparseTensor(sparse.indices, _classes_without_gap(sparse.values, blank), sparse.dense_shape),
            _with_last_class(scores, blank, classes),
            logit_length,
            time_major=logits_time_major,
        )


def _first_of_each_row(labels: Tensor, lengths: TensorLike | None) -> SparseTensor:
    """The first so many elements of each row."""
    shape = raw.Shape(labels, out_type="int64")
    longest = raw.StridedSlice(shape, [1], [2], [1], shrink_axis_mask=1)
    where = raw.Where(sequence_mask(lengths, longest))
    return SparseTensor(where, raw.GatherNd(raw.Cast(labels, DstT="int32"), where), shape)


def _with_last_class(logits: Tensor, index: int, classes: int) -> Tensor:
    order = [c for c in range(classes) if c != index] + [index]
    moved: Tensor = logits if index == classes - 1 else raw.GatherV2(logits, np.array(order, np.int32), 2)
    return moved


def _classes_without_gap(values: TensorLike, blank: int) -> Tensor:
    """The numbers that labels have when the class `blank` has become the last one."""
    classes = raw.Cast(convert_to_tensor(values), DstT="int32")
    lowered: Tensor = raw.Sub(classes, raw.Cast(raw.Greater(classes, blank), DstT="int32"))
    return lowered


def collapse_repeated(labels: TensorLike, seq_length: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Labels that follow themselves, once.

    Args:
        labels: [batch, longest], of any dtype.
        seq_length: integers [batch]: how many of each row count.

    Returns:
        The labels that are left, [batch, the longest row of them], with zeros behind the shorter ones; and how many
        there are, [batch], of the dtype of `seq_length`.
    """
    with name_scope(name, "collapse_repeated_labels", [labels, seq_length]):
        given, lengths = convert_to_tensor(labels, name="labels"), convert_to_tensor(seq_length, name="seq_length")
        given.shape.assert_has_rank(2)
        shape = raw.Shape(given)
        batch, longest = (raw.StridedSlice(shape, [i], [i + 1], [1], shrink_axis_mask=1) for i in range(2))
        before = raw.StridedSlice(given, [0, 0], [0, -1], [1, 1], begin_mask=3, end_mask=1)
        after = raw.StridedSlice(given, [0, 1], [0, 0], [1, 1], begin_mask=1, end_mask=3)
        first = raw.Fill(raw.Pack([batch, raw.Minimum(longest, 1)]), True)
        differs = raw.ConcatV2([first, raw.NotEqual(after, before)], 1)
        kept = raw.LogicalAnd(differs, sequence_mask(lengths, longest))
        counts = raw.Sum(raw.Cast(kept, DstT="int32"), [1])
        width = raw.Max(raw.ConcatV2([counts, [0]], 0), [0])
        places = raw.Where(sequence_mask(counts, width))
        values = raw.GatherNd(given, raw.Where(kept))
        collapsed = raw.ScatterNd(places, values, raw.Cast(raw.Pack([batch, width]), DstT="int64"))
        return collapsed, raw.Cast(counts, DstT=lengths.dtype)


def ctc_unique_labels(labels: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The different labels of each row, for the argument `unique` of `ctc_loss_v2`.

    Args:
        labels: [batch, longest], integers, with zeros behind the shorter rows.

    Returns:
        The different labels in the order in which they come, int64 [batch, longest], with zeros behind them; and
        where each label stands among them, int32 [batch, longest].
    """
    with name_scope(name, "ctc_unique_labels", [labels]):
        given = raw.Cast(convert_to_tensor(labels, name="labels"), DstT="int64")
        given.shape.assert_has_rank(2)

        def different(row: Tensor) -> tuple[Tensor, Tensor]:
            unique = raw.Unique(row)
            missing = raw.Sub(raw.Size(unique.idx), raw.Size(unique.y))
            return raw.Pad(unique.y, raw.Reshape(raw.Pack([0, missing]), [1, 2])), unique.idx

        rows, places = map_fn(different, given, dtype=(np.int64, np.int32))
        return rows, places
