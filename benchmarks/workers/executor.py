"""Worker: the executor by itself, a counting loop through it, and elsewhere; seconds per node or iteration."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from timing import seconds_per_call

NODES = 20_000
ITERATIONS = 2_000


def null_nodes() -> dict[str, float]:
    """Nodes that do nothing: one after the other, all at once, and at random; and a loop of primitives."""
    import random

    from anabranch.runtime.executor import Executor
    from anabranch.runtime.executor_graph import ExecutorGraph, FrameSpec, Kind, Known, NodeSpec

    def run(graph: ExecutorGraph) -> Callable[[], object]:
        def step() -> None:
            executor = Executor(graph)
            ready = executor.start()
            while ready:
                instance = ready.pop()
                if instance[0].payload is not None:
                    instance[0].payload(instance[1].values)
                ready += executor.finished(instance)
                if executor.paused:
                    ready += executor.resume()
            assert executor.done

        return step

    rng = random.Random(0)
    chain = ExecutorGraph([NodeSpec("n", inputs=[(i - 1, 0)] if i else []) for i in range(NODES)])
    wide = ExecutorGraph([NodeSpec("n") for _ in range(NODES)])
    sources = [[rng.randrange(max(0, i - 50), i) for _ in range(3 if i else 0)] for i in range(NODES)]
    tangled = ExecutorGraph([NodeSpec("n", inputs=[(source, 0) for source in inputs]) for inputs in sources])
    specs = [
        NodeSpec("enter", Kind.ENTER, 0, [Known(0)], child=1),
        NodeSpec("merge", Kind.MERGE, 1, [(0, 0), (6, 0)]),
        NodeSpec("less", Kind.WORK, 1, [(1, 0)]),
        NodeSpec("cond", Kind.PASS, 1, [(2, 0)]),
        NodeSpec("switch", Kind.SWITCH, 1, [(1, 0), (3, 0)]),
        NodeSpec("add", Kind.WORK, 1, [(4, 1)]),
        NodeSpec("next", Kind.NEXT_ITERATION, 1, [(5, 0)]),
        NodeSpec("exit", Kind.EXIT, 1, [(4, 0)]),
    ]
    loop = ExecutorGraph(specs, [(7, 0)], [FrameSpec(""), FrameSpec("loop", 0)])
    counted, truth, taken, more = (loop.slot(o) for o in ((1, 0), (2, 0), (4, 1), (5, 0)))

    def less(values: list[Any]) -> None:
        values[truth] = values[counted] < ITERATIONS

    def add(values: list[Any]) -> None:
        values[more] = values[taken] + 1

    loop.nodes[2].payload, loop.nodes[5].payload = less, add
    graphs = {"null node in a chain": chain, "null node of many at once": wide, "null node with three inputs": tangled}
    row = {name: seconds_per_call(run(graph), 1, warm_up=2) / NODES for name, graph in graphs.items()}
    row["iteration, primitives and Python integers"] = seconds_per_call(run(loop), 3, warm_up=2) / ITERATIONS
    return row


def lowered_loop() -> dict[str, float]:
    """Counting by `while_loop`, lowered; compiled; and with a user function in the body."""
    import anabranch as tf
    from anabranch.pipeline import lowering_everything

    n = tf.placeholder(tf.int32, [])
    counted = tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])

    def add(i: Any) -> Any:
        more = tf.py_func(lambda v: v + 1, [i], tf.int32)
        more.set_shape([])
        return more

    called = tf.while_loop(lambda i: i < n, add, [0])
    row = {}
    with lowering_everything(), tf.Session() as session:
        row["iteration, counting"] = (
            seconds_per_call(lambda: session.run(counted, {n: ITERATIONS}), 2, warm_up=2) / ITERATIONS
        )
    with tf.Session() as session:
        row["iteration, calling a Python function"] = (
            seconds_per_call(lambda: session.run(called, {n: ITERATIONS}), 2, warm_up=2) / ITERATIONS
        )
        row["iteration, counting, compiled whole"] = (
            seconds_per_call(lambda: session.run(counted, {n: ITERATIONS}), 2, warm_up=2) / ITERATIONS
        )
    return row


def tensorflow_loop() -> dict[str, float]:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.disable_control_flow_v2()
    n = tf.placeholder(tf.int32, [])
    counted = tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])

    def add(i: Any) -> Any:
        more = tf.py_func(lambda v: v + 1, [i], tf.int32)
        more.set_shape([])
        return more

    called = tf.while_loop(lambda i: i < n, add, [0])
    session = tf.Session()
    return {
        "iteration, counting": seconds_per_call(lambda: session.run(counted, {n: ITERATIONS}), 2, warm_up=2)
        / ITERATIONS,
        "iteration, calling a Python function": (
            seconds_per_call(lambda: session.run(called, {n: ITERATIONS}), 2, warm_up=2) / ITERATIONS
        ),
    }


def python_loop() -> dict[str, float]:
    """What Python takes for the same: integers, NumPy scalars, and a dictionary of closures called in turn."""
    import numpy as np

    def counting(start: Any, one: Any, limit: Any) -> Callable[[], object]:
        def loop() -> object:
            i = start
            while i < limit:
                i = i + one
            return i

        return loop

    numbers = counting(np.int32(0), np.int32(1), np.int32(ITERATIONS))
    arrays = counting(np.zeros((), np.int32), np.ones((), np.int32), np.full((), ITERATIONS, np.int32))
    return {
        "iteration, Python integers": seconds_per_call(counting(0, 1, ITERATIONS), 3) / ITERATIONS,
        "iteration, counting": seconds_per_call(numbers, 3) / ITERATIONS,
        "iteration, NumPy arrays": seconds_per_call(arrays, 3) / ITERATIONS,
    }


if __name__ == "__main__":
    system = sys.argv[1]
    if system == "anabranch":
        print(json.dumps({**null_nodes(), **lowered_loop()}))
    else:
        print(json.dumps(tensorflow_loop() if system == "tensorflow" else python_loop()))
