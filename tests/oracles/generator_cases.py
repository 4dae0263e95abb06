"""Uses of random generators whose state is a variable, for `make_operation_fixture.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

STATES = ([1, 2, 3], [-1, -1, 987654321987], [2**62, 5, -17, 99, 98])


def drawn(tf: Any, state: list[int], draw: Callable[[Any], Any], name: str) -> list[Any]:
    """What an operation draws from a state, twice in a row, and the state before, between and behind."""
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[len(state)], shared_name=name)
    zeros = tf.raw_ops.AssignVariableOp(resource=handle, value=np.zeros(len(state), np.int64))
    with tf.control_dependencies([zeros]):  # by addition: TensorFlow's binomial numbers change the constant otherwise
        last = tf.raw_ops.AssignAddVariableOp(resource=handle, value=np.array(state, np.int64))
    fetched = []
    for _ in range(2):
        with tf.control_dependencies([last]):
            result = draw(handle)
        if isinstance(result, tf.Tensor):
            fetched.append(result)
            result = result.op
        with tf.control_dependencies([result]):
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
        fetched.append(read)
        last = read.op
    return fetched


def of_each_state(tf: Any, name: str, draws: list[Callable[[Any], Any]]) -> list[Any]:
    return [
        value
        for i, state in enumerate(STATES)
        for j, draw in enumerate(draws)
        for value in drawn(tf, state, draw, f"{name}_{i}_{j}")
    ]


def _of_floats(operation: str) -> Callable[[Any], Any]:
    def case(tf: Any) -> Any:
        def draw(dtype: Any, shape: list[int]) -> Callable[[Any], Any]:
            sizes = np.array(shape, np.int32)
            return lambda handle: getattr(tf.raw_ops, operation)(
                resource=handle, algorithm=np.int64(1), shape=sizes, dtype=dtype
            )

        dtypes = (tf.float16, tf.float32, tf.float64)
        return of_each_state(tf, operation, [draw(d, s) for d in dtypes for s in ([], [7], [0, 3], [5, 9])])

    return case


drawn_uniform = _of_floats("StatefulUniform")
drawn_normal = _of_floats("StatefulStandardNormalV2")
drawn_truncated = _of_floats("StatefulTruncatedNormal")


def drawn_whole_numbers(tf: Any) -> Any:
    def draw(dtype: Any) -> Callable[[Any], Any]:
        return lambda handle: tf.raw_ops.StatefulUniformFullInt(
            resource=handle, algorithm=np.int64(1), shape=np.array([3, 3], np.int64), dtype=dtype
        )

    return of_each_state(tf, "whole", [draw(d) for d in (tf.int32, tf.int64, tf.uint32, tf.uint64)])


def drawn_within_bounds(tf: Any) -> Any:
    def draw(low: Any, high: Any) -> Callable[[Any], Any]:
        return lambda handle: tf.raw_ops.StatefulUniformInt(
            resource=handle, algorithm=np.int64(1), shape=np.array([11], np.int32), minval=low, maxval=high
        )

    bounds = [(np.int32(-7), np.int32(5)), (np.int32(-(2**31)), np.int32(2**31 - 1)), (np.int64(0), np.int64(1))]
    bounds.append((np.int64(-(2**63)), np.int64(2**63 - 1)))
    return of_each_state(tf, "bounded", [draw(*pair) for pair in bounds])


def skipped_numbers(tf: Any) -> Any:
    def skip(delta: int) -> Callable[[Any], Any]:
        return lambda handle: tf.raw_ops.RngSkip(resource=handle, algorithm=np.int64(1), delta=np.int64(delta))

    return of_each_state(tf, "skipped", [skip(delta) for delta in (0, 1, 2**40)])


def drawn_binomial(tf: Any) -> Any:
    def draw(shape: list[int], counts: Any, probs: Any) -> Callable[[Any], Any]:
        return lambda handle: tf.raw_ops.StatefulRandomBinomial(
            resource=handle,
            algorithm=np.int64(1),
            shape=np.array(shape, np.int32),
            counts=np.array(counts, np.float64),
            probs=np.array(probs, np.float64),
            dtype=tf.float64,
        )

    cases = [(20.0, 0.3), (1000.0, 0.3), (1000.0, 0.9), (50.0, 0.95), (0.0, 0.5), (7.0, 0.0), (7.0, 1.0)]
    # without the states: TensorFlow's kernel changes them where they were read
    return of_each_state(tf, "binomial", [draw([40], *case) for case in cases])[::4]


CASES = {
    case: globals()[case]
    for case in (
        "drawn_uniform",
        "drawn_normal",
        "drawn_truncated",
        "drawn_whole_numbers",
        "drawn_within_bounds",
        "skipped_numbers",
        "drawn_binomial",
    )
}
