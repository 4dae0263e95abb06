"""`rnn` of TensorFlow's private Keras backend, which recurrent layers of `tf.keras` are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import keras_rnn


def _sums(inputs: Any, states: Any) -> tuple[Any, list[Any]]:
    (total,) = states
    return total + inputs, [total + inputs]


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_masked_steps_keep_states_and_give_what_came_before_or_zeros(
    unroll: bool, time_major: bool, zeros: bool
) -> None:
    x = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], np.float32)[..., None]
    mask = np.array([[True, False, True], [False, True, False]])
    given, flags = (np.swapaxes(one, 0, 1) if time_major else one for one in (x, mask))
    last, outputs, states = keras_rnn.rnn(
        _sums,
        tf.constant(given),
        [tf.zeros([2, 1])],
        mask=tf.constant(flags),
        unroll=unroll,
        time_major=time_major,
        zero_output_for_mask=zeros,
    )
    with tf.Session() as session:
        final, sequence, (state,) = session.run([last, outputs, states])
    kept = [[1, 0, 5], [0, 16, 0]] if zeros else [[1, 1, 5], [0, 16, 16]]
    np.testing.assert_array_equal(np.swapaxes(sequence, 0, 1)[..., 0] if time_major else sequence[..., 0], kept)
    np.testing.assert_array_equal(final[:, 0], [5, 0] if zeros else [5, 16])
    np.testing.assert_array_equal(state[:, 0], [5, 16])
    assert outputs.shape.as_list()[0 if time_major else 1] == 3


@pytest.mark.parametrize("unroll", [False, True])
def test_inputs_states_and_outputs_are_structures_of_any_rank(unroll: bool) -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    matrices = np.ones([2, 3, 2, 2], np.float32)

    def step(inputs: Any, states: Any) -> tuple[Any, Any]:
        vector, matrix = inputs["v"], inputs["m"]
        first, (second,) = states
        first, second = first + vector, second + matrix
        return (first, [second * 2.0]), [first, (second,)]

    states = [tf.zeros([2, 2]), (tf.zeros([2, 2, 2]),)]
    given = {"v": tf.constant(vectors), "m": tf.constant(matrices)}
    last, outputs, new = keras_rnn.rnn(step, given, states, unroll=unroll, go_backwards=True)
    with tf.Session() as session:
        (vector, (matrix,)), (sequence, _), (first, (second,)) = session.run([last, outputs, new])
    np.testing.assert_array_equal(vector, vectors.sum(1))
    np.testing.assert_array_equal(sequence[:, 0], vectors[:, 2])
    np.testing.assert_array_equal(matrix, np.full([2, 2, 2], 6.0))
    np.testing.assert_array_equal(first, vector)
    np.testing.assert_array_equal(second, np.full([2, 2, 2], 3.0))
