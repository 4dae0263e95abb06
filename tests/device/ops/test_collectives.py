"""Collectives of the devices of a task, beside NumPy; TensorFlow 2.21 gave the same for the cases of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

MERGE: dict[str, Any] = {"Min": np.minimum, "Max": np.maximum, "Mul": np.multiply, "Add": np.add}


def session() -> tf.Session:
    return tf.Session(config=tf.ConfigProto(device_count={"CPU": 3}))


def on_each(make: Any) -> list[Any]:
    made = []
    for number in range(3):
        with tf.device(f"/cpu:{number}"):
            made.append(make(number))
    return made


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.float16])
@pytest.mark.parametrize("merge", sorted(MERGE))
@pytest.mark.parametrize("final", ["Id", "Div"])
def test_reductions(dtype: Any, merge: str, final: str) -> None:
    values = [np.array([[1, -2], [7, 5 * n - 4]], dtype) * dtype(n + 1) for n in range(3)]
    group = {"group_size": 3, "group_key": 1, "instance_key": 7, "merge_op": merge, "final_op": final}
    made = on_each(lambda n: tf.raw_ops.CollectiveReduce(input=values[n], subdiv_offsets=[0], **group))
    expected = MERGE[merge](MERGE[merge](values[0], values[1]), values[2])
    if final == "Div":
        expected = (expected / dtype(3)).astype(dtype) if np.dtype(dtype).kind == "f" else np.trunc(expected / 3)
    with session() as running:
        for _ in range(2):
            for found in running.run(made):
                assert found.dtype == dtype
                np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype is np.float16 else 1e-6)


def test_rows_are_gathered_in_the_order_of_devices() -> None:
    group = {"group_size": 3, "group_key": 1, "instance_key": 8, "shape": [6, 2]}
    rows = [np.arange(4.0).reshape(2, 2) + 10 * n for n in range(3)]
    made = on_each(lambda n: tf.raw_ops.CollectiveGather(input=rows[n], **group))
    assert made[0].shape.as_list() == [6, 2]
    with session() as running:
        for found in running.run(made):
            np.testing.assert_array_equal(found, np.concatenate(rows))


def broadcast(sender: int = 1, **changed: Any) -> list[Any]:
    group = {"group_size": 3, "group_key": 1, "instance_key": 9, "shape": [2], **changed}

    def member(number: int) -> Any:
        if number == sender:
            return tf.raw_ops.CollectiveBcastSend(input=[1.0, 2.0], **group)
        return tf.raw_ops.CollectiveBcastRecv(T=tf.float32, **group)

    return on_each(member)


def test_one_value_reaches_all_and_who_left_is_not_waited_for() -> None:
    made = broadcast()
    with session() as running:
        np.testing.assert_array_equal(running.run(made), [[1, 2]] * 3)
        with pytest.raises(tf.errors.DeadlineExceededError, match="the other 2 members of group 1, instance 9"):
            running.run(made[0], options=tf.RunOptions(timeout_in_ms=200))
        np.testing.assert_array_equal(running.run(made), [[1, 2]] * 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: broadcast(sender=5), "0 of 3 do"),
        (lambda: broadcast(shape=[3]), "a tensor of shape"),
        (
            lambda: on_each(
                lambda n: tf.raw_ops.CollectiveReduce(
                    input=np.ones(n + 1), group_size=3, group_key=2, instance_key=1, merge_op="Add", final_op="Id",
                    subdiv_offsets=[0],
                )
            ),
            "shapes",
        ),
        (
            lambda: on_each(
                lambda n: tf.raw_ops.CollectiveGather(
                    input=[1.0], group_size=3 + n // 2, group_key=2, instance_key=2, shape=[3]
                )
            ),
            "says that the group",
        ),
        (
            lambda: on_each(
                lambda n: tf.raw_ops.CollectiveGather(
                    input=[1.0], group_size=3, group_key=2, instance_key=3, shape=[4]
                )
            ),
            "the attribute `shape`",
        ),
    ],
)  # fmt: skip
def test_members_that_disagree(make: Any, message: str) -> None:
    made = make()
    with session() as running, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        running.run(made, options=tf.RunOptions(timeout_in_ms=10_000))
