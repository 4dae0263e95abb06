"""`tf.contrib.seq2seq`: following the beams of a search back from their ends."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def gather_tree(
    step_ids: TensorLike,
    parent_ids: TensorLike,
    max_sequence_lengths: TensorLike,
    end_token: TensorLike,
    name: str | None = None,
) -> tf.Tensor:
    """The whole sequences of a beam search, from what each step chose and from which beam it went on.

    Args:
        step_ids: int32 [time, batch, beams]: what was chosen.
        parent_ids: int32 [time, batch, beams]: the beam of the step before that was gone on from.
        max_sequence_lengths: int [batch]: how many steps count.
        end_token: int scalar: stands after the end of a sequence.

    Returns:
        int32 [time, batch, beams].

    Raises:
        InvalidArgumentError: when run: a parent is no beam.
    """
    with tf.name_scope(name, "gather_tree", [step_ids, parent_ids]):
        ids, parents = tf.convert_to_tensor(step_ids), tf.convert_to_tensor(parent_ids)
        end = tf.cast(tf.convert_to_tensor(end_token), ids.dtype)
        shape = tf.shape(ids)
        times, beams = shape[0], shape[2]
        lengths = tf.minimum(tf.cast(max_sequence_lengths, tf.int32), times)[:, tf.newaxis]
        own = tf.broadcast_to(tf.range(beams), shape[1:])
        chosen = tf.TensorArray(ids.dtype, times, element_shape=ids.shape[1:])

        def back(time: tf.Tensor, followed: tf.Tensor, chosen: tf.TensorArray) -> Any:
            """One step towards the beginning: `followed` are the beams that the ends come from."""
            counts = tf.broadcast_to(time < lengths, shape[1:])
            here = tf.where(counts, _of_beams(ids[time], followed), tf.fill(shape[1:], end))
            before = tf.where(counts, _of_beams(parents[time], followed), followed)
            before.set_shape(followed.shape)
            return time - 1, before, chosen.write(time, here)

        followed = tf.identity(own)
        followed.set_shape(ids.shape[1:])
        _, _, chosen = tf.while_loop(lambda time, *_: time >= 0, back, (times - 1, followed, chosen))
        sequences = chosen.stack()
        ended = tf.cumsum(tf.cast(tf.equal(sequences, end), tf.int32), axis=0, exclusive=True) > 0
        sequences = tf.where(ended, tf.fill(shape, end), sequences)
        sequences.set_shape(ids.shape)
        return sequences


def _of_beams(values: TensorLike, beams: TensorLike) -> Any:
    """[batch, beams, ...] taken at `beams`, which are numbers of beams [batch, beams]."""
    return tf.batch_gather(values, beams)


def gather_tree_from_array(t: TensorLike, parent_ids: TensorLike, sequence_length: TensorLike) -> tf.Tensor:
    """What was kept of each step of a beam search, in the order of the whole sequences.

    Args:
        t: [time, batch, beams, ...], or [time, batch * beams, ...].
        parent_ids: int32 [time, batch, beams].
        sequence_length: int [batch, beams]; steps beyond stay as they are.

    Returns:
        The same shape and dtype as `t`.
    """
    with tf.name_scope(None, "gather_tree_from_array", [t, parent_ids, sequence_length]):
        t, parents = tf.convert_to_tensor(t), tf.convert_to_tensor(parent_ids)
        shape = tf.shape(parents)
        times, batch, beams = shape[0], shape[1], shape[2]
        own = tf.broadcast_to(tf.range(beams), shape)
        lengths = tf.reduce_max(tf.cast(sequence_length, tf.int32), axis=1)
        # no beam has the number of the end
        ordered = gather_tree(own, parents, lengths, beams + 1)
        inside = tf.transpose(tf.sequence_mask(sequence_length, maxlen=times), [2, 0, 1])
        ordered = tf.where(inside, ordered, own)
        rows = tf.broadcast_to(tf.range(times)[:, tf.newaxis, tf.newaxis], shape)
        examples = tf.broadcast_to(tf.range(batch)[tf.newaxis, :, tf.newaxis], shape)
        with_beams = tf.reshape(t, tf.concat([shape, [-1]], 0))
        gathered = tf.gather_nd(with_beams, tf.stack([rows, examples, ordered], -1))
        like_t = tf.reshape(gathered, tf.shape(t))
        like_t.set_shape(t.shape)
        return like_t
