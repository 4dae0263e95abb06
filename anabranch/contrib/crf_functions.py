"""`tf.contrib.crf`: conditional random fields over sequences of tags (Lafferty et al. 2001).

A sequence of tags scores the sum of its tags' own scores and of those of its transitions, and is as likely as the
exponential of that. Sequences are padded: what stands beyond their lengths does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def crf_sequence_score(
    inputs: TensorLike, tag_indices: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike
) -> tf.Tensor:
    """The scores of sequences of tags.

    Args:
        inputs: [batch, time, tags]: scores of the tags.
        tag_indices: int [batch, time]: the sequences.
        sequence_lengths: int [batch].
        transition_params: [tags, tags]: scores of going from the first to the second.

    Returns:
        [batch].
    """
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params
    )


def crf_multitag_sequence_score(
    inputs: TensorLike, tag_bitmap: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike
) -> tf.Tensor:
    """The logarithm of the sum of the exponential scores of all sequences that take an allowed tag at each time.

    Args:
        inputs: [batch, time, tags].
        tag_bitmap: bool [batch, time, tags]: the tags that are allowed.
        sequence_lengths: int [batch].
        transition_params: [tags, tags].

    Returns:
        [batch].
    """
    inputs = tf.convert_to_tensor(inputs)
    never = tf.fill(tf.shape(inputs), tf.cast(-np.inf, inputs.dtype))
    return crf_log_norm(tf.where(tag_bitmap, inputs, never), sequence_lengths, transition_params)


def crf_log_norm(inputs: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike) -> tf.Tensor:
    """The logarithm of the sum of the exponential scores of all sequences: 0 for one without elements.

    Args:
        inputs: [batch, time, tags].
        sequence_lengths: int [batch].
        transition_params: [tags, tags].

    Returns:
        [batch].
    """
    inputs = tf.convert_to_tensor(inputs)
    alphas = crf_forward(inputs[:, 1:], inputs[:, 0], transition_params, sequence_lengths)
    norm = tf.reduce_logsumexp(alphas, [1])
    return tf.where(tf.convert_to_tensor(sequence_lengths) > 0, norm, tf.zeros_like(norm))


def crf_log_likelihood(
    inputs: TensorLike,
    tag_indices: TensorLike,
    sequence_lengths: TensorLike,
    transition_params: TensorLike | None = None,
) -> tuple[Any, Any]:
    """The logarithms of how likely sequences of tags are.

    Args:
        inputs: [batch, time, tags].
        tag_indices: int [batch, time].
        sequence_lengths: int [batch].
        transition_params: [tags, tags]; None: a variable "transitions".

    Returns:
        ([batch], the scores of transitions).

    Raises:
        ValueError: there are none, and the number of tags is not known.
    """
    inputs = tf.convert_to_tensor(inputs)
    if transition_params is None:
        tags = inputs.shape.as_list()[2]
        transition_params = tf.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_unary_score(tag_indices: TensorLike, sequence_lengths: TensorLike, inputs: TensorLike) -> tf.Tensor:
    """The sums of the tags' own scores, [batch]; arguments as of `crf_sequence_score`."""
    inputs, tags = tf.convert_to_tensor(inputs), tf.convert_to_tensor(tag_indices)
    scores = tf.batch_gather(inputs, tags[..., tf.newaxis])[..., 0]
    mask = tf.sequence_mask(sequence_lengths, maxlen=tf.shape(tags)[1], dtype=inputs.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_binary_score(tag_indices: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike) -> tf.Tensor:
    """The sums of the transitions' scores, [batch]; arguments as of `crf_sequence_score`."""
    tags, params = tf.convert_to_tensor(tag_indices), tf.convert_to_tensor(transition_params)
    scores = tf.gather_nd(params, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
    lengths = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    mask = tf.sequence_mask(lengths, maxlen=tf.shape(tags)[1] - 1, dtype=params.dtype)
    return tf.reduce_sum(scores * mask, 1)


def crf_forward(
    inputs: TensorLike, state: TensorLike, transition_params: TensorLike, sequence_lengths: TensorLike
) -> tf.Tensor:
    """The logarithms of the sums of the exponential scores of all sequences that end with a tag.

    Args:
        inputs: [batch, time - 1, tags]: scores of the tags but the first of each sequence.
        state: [batch, tags]: scores of the first.
        transition_params: [tags, tags].
        sequence_lengths: int [batch], the first included.

    Returns:
        [batch, tags].
    """
    params = tf.expand_dims(tf.convert_to_tensor(transition_params), 0)

    def step(before: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        return scores + tf.reduce_logsumexp(tf.expand_dims(before, 2) + params, 1)

    alphas: tf.Tensor = _at_ends(step, inputs, state, sequence_lengths)
    return alphas


def _at_ends(
    step: Callable[[Any, Any], Any], inputs: TensorLike, state: TensorLike, sequence_lengths: TensorLike
) -> Any:
    """What a recurrence has come to at the end of each sequence."""
    inputs, state = tf.convert_to_tensor(inputs), tf.convert_to_tensor(state)
    later = tf.transpose(inputs, [1, 0, 2])
    numbers = tf.range(1, tf.shape(later)[0] + 1)
    lengths = tf.cast(sequence_lengths, tf.int32)

    def go_on(before: tf.Tensor, at: tuple[tf.Tensor, tf.Tensor]) -> Any:
        number, scores = at
        return tf.where(number < lengths, step(before, scores), before)

    last: tf.Tensor = tf.foldl(go_on, (numbers, later), state)
    return last


def viterbi_decode(score: TensorLike, transition_params: TensorLike) -> tuple[list[int], Any]:
    """The best sequence of tags, outside of a graph.

    Args:
        score: array [time, tags].
        transition_params: array [tags, tags].

    Returns:
        (the tags, their score).
    """
    score, params = np.asarray(score), np.asarray(transition_params)
    best, froms = score[0], []
    for scores in score[1:]:
        through = best[:, None] + params
        froms.append(through.argmax(0))
        best = scores + through.max(0)
    tags = [int(best.argmax())]
    for before in reversed(froms):
        tags.append(int(before[tags[-1]]))
    return tags[::-1], best.max()


def crf_decode(
    potentials: TensorLike, transition_params: TensorLike, sequence_length: TensorLike
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best sequences of tags.

    Args:
        potentials: [batch, time, tags].
        transition_params: [tags, tags].
        sequence_length: int [batch].

    Returns:
        (int32 [batch, time], 0 beyond the sequences; their scores [batch]).
    """
    scores = tf.convert_to_tensor(potentials)
    params = tf.expand_dims(tf.convert_to_tensor(transition_params), 0)
    lengths = tf.cast(sequence_length, tf.int32)
    times = tf.shape(scores)[1]
    later = tf.transpose(scores[:, 1:], [1, 0, 2])
    own = tf.broadcast_to(tf.range(tf.shape(scores)[2]), tf.shape(scores[:, 0]))

    def forward(before: tuple[tf.Tensor, tf.Tensor], at: tuple[tf.Tensor, tf.Tensor]) -> Any:
        """The best score that ends with each tag, and which tag comes before it."""
        best, _ = before
        number, here = at
        through = tf.expand_dims(best, 2) + params
        counts = number < lengths
        return (
            tf.where(counts, here + tf.reduce_max(through, 1), best),
            tf.where(counts, tf.argmax(through, 1, output_type=tf.int32), own),
        )

    bests, froms = tf.scan(forward, (tf.range(1, times), later), (scores[:, 0], own))
    best = tf.concat([scores[tf.newaxis, :, 0], bests], 0)[-1]
    end = tf.argmax(best, 1, output_type=tf.int32)

    def backward(tag: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
        return tf.batch_gather(before, tag[:, tf.newaxis])[:, 0]

    others = tf.scan(backward, froms, end, reverse=True)
    tags = tf.transpose(tf.concat([others, end[tf.newaxis]], 0))
    tags = tf.where(tf.sequence_mask(lengths, maxlen=times), tags, tf.zeros_like(tags))
    tags.set_shape(scores.shape[:2])
    return tags, tf.reduce_max(best, 1)
