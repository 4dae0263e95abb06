"""Operation types that keep something from step to step, beside what TensorFlow recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.device.frontend.test_recorded_functions import same
from tests.oracles.step_cases import cases, results

CASES = cases()
FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "steps.json.gz"
RECORDED: dict[str, dict[str, Any]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))["cases"]


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_steps_give_what_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default():
        steps = list(results(tf, CASES[name]))
    expected = RECORDED[name]["steps"]
    assert len(steps) == len(expected)
    for number, (found, recorded) in enumerate(zip(steps, expected, strict=True)):
        assert len(found) == len(recorded), f"step {number} of {name}: {found}"
        for index, (value, entry) in enumerate(zip(found, recorded, strict=True)):
            what = f"value {index} of step {number} of {name}"
            if isinstance(value, str) or isinstance(entry, str):
                assert value == entry, what
            else:
                same(np.asarray(value), entry, what)


def test_a_list_grows_where_it_is_written_beyond_its_end() -> None:
    """On the host and compiled, with known indices and fed ones; the gradient is that of the rows that it had."""
    R = tf.raw_ops
    x, y = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[5.0, 6.0], [7.0, 8.0]])
    fed = tf.placeholder(tf.int32, [None])
    start = R.TensorListFromTensor(tensor=x, element_shape=[2])
    for indices in (tf.constant([3, 0]), fed, fed + 0):
        longer = R.TensorListScatterIntoExistingList(input_handle=start, tensor=y, indices=indices)
        rows = R.TensorListStack(input_handle=longer, element_shape=[2], element_dtype=tf.float32)
        slopes = tf.gradients(rows * [[1.0], [2.0], [3.0], [4.0]], [x, y])
        with tf.Session() as session:
            values, of_x, of_y = session.run([rows, *slopes], {fed: [3, 0]})
        assert values.tolist() == [[7.0, 8.0], [3.0, 4.0], [0.0, 0.0], [5.0, 6.0]]
        assert of_x.tolist() == [[0.0, 0.0], [2.0, 2.0]]
        assert of_y.tolist() == [[4.0, 4.0], [1.0, 1.0]]
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="index"):
        session.run(rows, {fed: [-1, 0]})


def test_an_array_of_fixed_size_does_not_grow() -> None:
    array = tf.TensorArray(tf.float32, 2, element_shape=[])
    fed = tf.placeholder(tf.int32, [None])
    stacked = [array.scatter(indices, [5.0, 6.0]).stack() for indices in ([3, 0], fed, fed + 0)]
    with tf.Session() as session:
        for each in stacked:
            with pytest.raises(tf.errors.InvalidArgumentError, match="Tried to write to index"):
                session.run(each, {fed: [3, 0]})
        assert session.run(stacked[1], {fed: [1, 0]}).tolist() == [6.0, 5.0]
