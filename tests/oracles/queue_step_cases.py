"""Queues, barriers, stages, stacks and accumulators, for `make_step_fixture.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.step_cases import Drained, WithResources, in_order


def queue_with_reference(tf: Any) -> list[Any]:
    return _queue_with_reference(tf, tf.raw_ops)


def queue_with_resource(tf: Any) -> list[Any]:
    return _queue_with_reference(tf, WithResources(tf))


def _queue_with_reference(tf: Any, R: Any) -> list[Any]:
    types = [tf.int32, tf.float32, tf.string]
    q = R.FIFOQueue(component_types=types, shapes=[[], [2], []], capacity=10)
    state = [R.QueueSize(handle=q), R.QueueIsClosed(handle=q)]
    rows = np.array([[2, np.nan], [np.inf, 4], [5, 6]], np.float32)
    one = R.QueueEnqueue(handle=q, components=[1, np.float32([0.5, -1]), "a"])
    return [
        state,
        one,
        R.QueueEnqueueMany(handle=q, components=[[2, 3, 4], rows, ["b", "", "d"]]),
        R.QueueEnqueueMany(handle=q, components=[np.int32([]), np.zeros((0, 2), np.float32), np.array([], object)]),
        state,
        R.QueueDequeue(handle=q, component_types=types),
        R.QueueDequeueMany(handle=q, n=2, component_types=types),
        R.QueueDequeueMany(handle=q, n=0, component_types=types),
        R.QueueClose(handle=q),
        R.QueueDequeueMany(handle=q, n=2, component_types=types),
        state,
        R.QueueDequeueUpTo(handle=q, n=5, component_types=types),
        R.QueueDequeueUpTo(handle=q, n=5, component_types=types),
        R.QueueDequeue(handle=q, component_types=types),
        one,
        R.QueueClose(handle=q),
    ]


def queue_by_resource(tf: Any) -> list[Any]:
    R, types = tf.raw_ops, [tf.int64]
    q = R.FIFOQueueV2(component_types=types, shapes=[[]], capacity=5)
    return [
        R.QueueEnqueueManyV2(handle=q, components=[np.arange(4)]),
        R.QueueSize(handle=R.FakeQueue(resource=q)),
        R.QueueDequeueUpToV2(handle=q, n=3, component_types=types),
        R.QueueCloseV2(handle=q),
        R.QueueDequeueUpToV2(handle=q, n=3, component_types=types),
        R.QueueDequeueUpToV2(handle=q, n=3, component_types=types),
    ]


def shuffled_queue(tf: Any) -> list[Any]:
    R, types = tf.raw_ops, [tf.int64]
    q = R.RandomShuffleQueueV2(component_types=types, shapes=[[]], capacity=20, min_after_dequeue=3, seed=1, seed2=2)
    some = R.QueueDequeueManyV2(handle=q, n=6, component_types=types)[0]
    all_of_them = tf.Variable(np.zeros(0, np.int64), validate_shape=False, use_resource=True, shape=[None])
    grown = all_of_them.assign(tf.concat([all_of_them, some], 0))
    rest = R.QueueDequeueUpToV2(handle=q, n=10, component_types=types)[0]
    return [
        all_of_them.initializer,
        R.QueueEnqueueManyV2(handle=q, components=[np.arange(10)]),
        tf.group(grown),
        R.QueueSizeV2(handle=q),
        R.QueueCloseV2(handle=q),
        tf.sort(tf.concat([all_of_them, rest], 0)),
        R.QueueDequeueUpToV2(handle=q, n=10, component_types=types),
    ]


def barrier(tf: Any) -> list[Any]:
    R = tf.raw_ops
    b = R.Barrier(component_types=[tf.float32, tf.int64], shapes=[[], [2]], capacity=-1)
    state = [R.BarrierReadySize(handle=b), R.BarrierIncompleteSize(handle=b)]
    take = {"component_types": [tf.float32, tf.int64]}
    first = R.BarrierInsertMany(handle=b, keys=["a", "b", "c"], values=np.float32([1, np.nan, 3]), component_index=0)
    second = R.BarrierInsertMany(handle=b, keys=["c", "a"], values=np.int64([[1, 2], [3, 4]]), component_index=1)
    last = R.BarrierInsertMany(handle=b, keys=["d"], values=np.float32([4]), component_index=0)
    late = R.BarrierInsertMany(handle=b, keys=["b"], values=np.int64([[5, 6]]), component_index=1)
    return [
        state,
        first,
        state,
        second,
        state,
        R.BarrierTakeMany(handle=b, num_elements=1, **take),
        state,
        R.BarrierInsertMany(handle=b, keys=["b"], values=np.float32([9]), component_index=0),
        last,
        state,
        R.BarrierClose(handle=b),
        R.BarrierInsertMany(handle=b, keys=["new"], values=np.float32([9]), component_index=0),
        late,
        state,
        R.BarrierTakeMany(handle=b, num_elements=9, allow_small_batch=True, wait_for_incomplete=False, **take),
        R.BarrierClose(handle=b, cancel_pending_enqueues=True),
        state,
        R.BarrierTakeMany(handle=b, num_elements=3, **take),
    ]


def stage(tf: Any) -> list[Any]:
    R = tf.raw_ops
    shared = {"dtypes": [tf.float32, tf.string], "shared_name": "stage", "capacity": 4}
    put = [
        R.Stage(values=[np.float32([i, np.inf]), np.array(text)], shared_name="stage", capacity=4)
        for i, text in enumerate(["a", ""])
    ]
    size = R.StageSize(**shared)
    return [
        size,
        *put,
        size,
        R.StagePeek(index=1, **shared),
        R.Unstage(**shared),
        size,
        R.StageClear(**shared),
        size,
    ]


def stages_by_key(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for kind in ("Map", "OrderedMap"):
        shared = {"dtypes": [tf.float32, tf.int32], "shared_name": kind}
        sizes = [getattr(R, f"{kind}{which}")(**shared) for which in ("Size", "IncompleteSize")]

        def put(key: int, indices: list[int], values: list[Any], kind: str = kind, shared: Any = shared) -> Any:
            return getattr(R, f"{kind}Stage")(key=np.int64(key), indices=indices, values=values, **shared)

        ask = {"indices": [0, 1], **shared}
        steps += [
            sizes,
            put(7, [0, 1], [np.float32([1, 2]), np.int32(3)]),
            put(5, [1], [np.int32(4)]),
            sizes,
            put(5, [0], [np.float32(np.nan)]),
            sizes,
            getattr(R, f"{kind}Peek")(key=np.int64(7), **ask),
            getattr(R, f"{kind}Unstage")(key=np.int64(7), **ask),
            put(2, [0, 1], [np.float32([[0.5]]), np.int32(9)]),
            sizes,
            *([getattr(R, f"{kind}UnstageNoKey")(**ask)] if kind == "OrderedMap" else []),
            getattr(R, f"{kind}Unstage")(key=np.int64(5), **ask),
            sizes,
            *([] if kind == "OrderedMap" else [getattr(R, f"{kind}UnstageNoKey")(**ask)]),
            put(3, [0, 1], [np.float32(1), np.int32(1)]),
            getattr(R, f"{kind}Clear")(**shared),
            sizes,
        ]
    return steps


def stacks(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for dtype, values in (
        (tf.float32, [np.float32([1, np.nan]), np.float32(2), np.zeros((0, 3), np.float32)]),
        (tf.string, [np.array(["a", ""]), np.array("b")]),
        (tf.bool, [np.array(True)]),
    ):
        s = R.Stack(elem_type=dtype, stack_name="s")
        push = [lambda s=s, v=v: R.StackPush(handle=s, elem=tf.constant(v)) for v in values]
        pop = [lambda s=s, d=dtype: R.StackPop(handle=s, elem_type=d)] * len(values)
        steps.append(in_order(tf, [*push, *pop, lambda s=s: R.StackClose(handle=s)]))
        v2 = R.StackV2(max_size=2, elem_type=dtype, stack_name="v2")
        push = [lambda s=v2, v=v: R.StackPushV2(handle=s, elem=tf.constant(v)) for v in values]
        pop = [lambda s=v2, d=dtype: R.StackPopV2(handle=s, elem_type=d)] * len(values)
        steps.append(in_order(tf, [*push, *pop, lambda s=v2: R.StackCloseV2(handle=s)]))
    empty = R.Stack(elem_type=tf.float32)
    return [*steps, R.StackPop(handle=empty, elem_type=tf.float32)]


def accumulator_by_resource(tf: Any) -> list[Any]:
    return _accumulated(tf, "Resource")


def accumulator_by_reference(tf: Any) -> list[Any]:
    return _accumulated(tf, "")


def _accumulated(tf: Any, prefix: str) -> list[Any]:
    steps: list[Any] = []

    def made(name: str, **arguments: Any) -> Any:
        return getattr(tf.raw_ops, f"{prefix}{name}")(**arguments)

    for dtype, reduction in ((tf.float32, "MEAN"), (tf.float64, "SUM")):
        a = made("ConditionalAccumulator", dtype=dtype, shape=[2], reduction_type=reduction)

        def give(step: int, values: Any, a: Any = a, dtype: Any = dtype) -> Any:
            gradient = tf.constant(np.array(values), dtype)
            return made("AccumulatorApplyGradient", handle=a, local_step=np.int64(step), gradient=gradient)

        count = made("AccumulatorNumAccumulated", handle=a)
        steps += [
            count,
            give(0, [1, 2]),
            give(0, [4, 8]),
            count,
            made("AccumulatorTakeGradient", handle=a, num_required=2, dtype=dtype),
            give(0, [5, 5]),  # from an older step: dropped
            count,
            made("AccumulatorSetGlobalStep", handle=a, new_global_step=np.int64(3)),
            give(2, [5, 5]),
            give(3, [7, 9]),
            count,
            made("AccumulatorTakeGradient", handle=a, num_required=1, dtype=dtype),
            give(9, [1, 2, 3]),
        ]
    return steps


def reading_records_of_a_queue(tf: Any) -> list[Any]:
    """`Drained` on a queue that is closed."""
    R = tf.raw_ops
    q = R.FIFOQueueV2(component_types=[tf.float64], shapes=[[]], capacity=5)
    return [
        R.QueueEnqueueManyV2(handle=q, components=[[0.5, -np.inf, np.nan]]),
        R.QueueCloseV2(handle=q),
        Drained(R.QueueDequeueV2(handle=q, component_types=[tf.float64])),
    ]


def queues_that_pad_or_sort(tf: Any) -> list[Any]:
    return _queues_that_pad_or_sort(tf, tf.raw_ops)


def resources_that_pad_or_sort(tf: Any) -> list[Any]:
    return _queues_that_pad_or_sort(tf, WithResources(tf))


def _queues_that_pad_or_sort(tf: Any, R: Any) -> list[Any]:
    padding = R.PaddingFIFOQueue(component_types=[tf.float32, tf.string], shapes=[[None, 2], []], capacity=9)
    types = {"component_types": [tf.float32, tf.string]}
    sorting = R.PriorityQueue(component_types=[tf.string], shapes=[[]], capacity=9)
    pairs = {"component_types": [tf.int64, tf.string]}
    return [
        R.QueueEnqueue(handle=padding, components=[np.float32([[1, np.nan]]), "a"]),
        R.QueueEnqueue(handle=padding, components=[np.zeros((0, 2), np.float32), ""]),
        R.QueueEnqueue(handle=padding, components=[np.float32([[1, 2], [3, np.inf]]), "c"]),
        R.QueueDequeueMany(handle=padding, n=2, **types),
        R.QueueDequeue(handle=padding, **types),
        [R.QueueIsClosed(handle=padding), R.QueueSize(handle=padding)],
        R.QueueEnqueueMany(handle=sorting, components=[np.int64([5, -1, 5, 2]), ["e", "b", "f", ""]]),
        R.QueueDequeue(handle=sorting, **pairs),
        R.QueueDequeueMany(handle=sorting, n=2, **pairs),
        R.QueueClose(handle=sorting),
        [R.QueueIsClosed(handle=sorting), R.QueueSize(handle=sorting)],
    ]
