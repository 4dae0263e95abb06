"""Connectionist temporal classification: sequences of labels without alignment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.framework import convert_to_tensor_or_sparse_tensor
from anabranch.graph.composite import SparseTensor, SparseTensorLike
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def ctc_loss(
    labels: SparseTensorLike,
    inputs: TensorLike | None = None,
    sequence_length: TensorLike | None = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: TensorLike | None = None,
) -> Tensor:
    """-log of the probability of the labels, summed over all ways to stretch them over time.

    Args:
        labels: a SparseTensor of int32, [batch, labels], in order, with one label or more in each row; the last class
            is the blank and is no label, but rows may end with it, or with larger numbers: these do not count.
        inputs: logits, [time, batch, classes] (or [batch, time, classes], see `time_major`); `logits`: another name.
        sequence_length: [batch], int32: how many time steps count.
        preprocess_collapse_repeated: repeated labels count once.
        ctc_merge_repeated: repeated classes of a path stand for one label.
        ignore_longer_outputs_than_inputs: sequences with more labels than steps have loss 0; otherwise they are errors.
            All labels of a row count here, blanks and repeated ones as well.

    Returns:
        [batch], of the logits' dtype.

    Raises:
        TypeError: the labels are not a SparseTensor.
        InvalidArgumentError: in a step: a row has no labels, or one after a blank, or too many; they are out of order.
    """
    sparse = convert_to_tensor_or_sparse_tensor(labels)
    if not isinstance(sparse, SparseTensor):
        raise TypeError("Expected labels (first argument) to be a SparseTensor")
    result: Tensor = raw.CTCLoss(
        _time_major(one_of("logits", logits, "inputs", inputs), time_major),
        sparse.indices,
        sparse.values,
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
    ).loss
    return result


class LossAndGradient(NamedTuple):
    """What `ctc_loss_with_first_blank` gives."""

    loss: Tensor
    gradient: Tensor


def ctc_loss_with_first_blank(
    inputs: TensorLike,
    labels_indices: TensorLike,
    labels_values: TensorLike,
    sequence_length: TensorLike,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    name: str | None = None,
) -> LossAndGradient:
    """`ctc_loss` of labels given in parts, where the first class is the blank, and its gradient.

    Args:
        inputs: logits, float32, [time, batch, classes].
        labels_indices: int64, [labels, 2]: the sequence and the position in it of each label.
        labels_values: int32, [labels]: not 0, which is the blank.
        sequence_length, preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs: as of
            `ctc_loss`.
        name: of the operation.

    Returns:
        A tuple `(loss, gradient)`: float32, [batch], and of the shape of `inputs`.
    """
    outputs = raw.CTCLossV2(
        inputs,
        labels_indices,
        labels_values,
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
        name=name,
    )
    return LossAndGradient(*outputs)


def _time_major(inputs: TensorLike, time_major: bool) -> Tensor:
    logits = convert_to_tensor(inputs, name="logits")
    result: Tensor = logits if time_major else raw.Transpose(logits, np.array([1, 0, 2], np.int32))
    return result


def ctc_greedy_decoder(
    inputs: TensorLike, sequence_length: TensorLike, merge_repeated: bool = True
) -> tuple[list[SparseTensor], Tensor]:
    """The labels of the path that takes the best class at every step.

    Args:
        inputs: logits, [time, batch, classes].
        sequence_length: [batch], int32.

    Returns:
        A list with one SparseTensor of int64, [batch, labels]; and the negative sum of the best logits, [batch, 1].
    """
    outputs = raw.CTCGreedyDecoder(inputs, sequence_length, merge_repeated=merge_repeated)
    return [SparseTensor(*outputs[:3])], outputs[3]


def ctc_beam_search_decoder(
    inputs: TensorLike,
    sequence_length: TensorLike,
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
) -> tuple[list[SparseTensor], Tensor]:
    """The most probable label sequences, found by a beam search.

    Args:
        inputs: logits, [time, batch, classes].
        top_paths: how many to return, at most `beam_width`.
        merge_repeated: repeated labels of the results are merged (also where a blank stood between them).

    Returns:
        A list of `top_paths` SparseTensors of int64, [batch, labels]; and their log probabilities, [batch, top_paths].
    """
    outputs = raw.CTCBeamSearchDecoder(
        inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=merge_repeated
    )
    return [SparseTensor(*parts) for parts in zip(*outputs[:3], strict=True)], outputs[3]


def ctc_beam_search_decoder_v2(
    inputs: TensorLike, sequence_length: TensorLike, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[SparseTensor], Tensor]:
    """`ctc_beam_search_decoder` without merging."""
    return ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, merge_repeated=False)
