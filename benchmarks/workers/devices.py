"""Worker: what two devices of one process cost and bring.

* a hop: a scalar goes back and forth between the devices, with one operation on each;
* the Send and the Recv alone, from a step's trace, for a scalar and for 64 MB;
* two independent loops, each on a device of its own, beside both on one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from timing import seconds_per_call

LARGE = 64 << 20
HOPS = 10
ITERATIONS = 20_000


def session(tf: Any) -> Any:
    return tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}))


def chain(tf: Any, size: int, hops: int) -> tuple[Any, Any]:
    """A variable, and its content after so many hops, of which one number is left over."""
    with tf.device("/cpu:0"):
        variable = tf.get_variable("v", [size], initializer=tf.zeros_initializer(), use_resource=True)
        x = variable.read_value()
    for hop in range(hops):
        with tf.device(f"/cpu:{(hop + 1) % 2}"):
            # it passes its input on, and is not removed as an identity would be
            x = tf.raw_ops.PreventGradient(input=x)
    with tf.device("/cpu:0"):
        return variable, tf.reshape(x, [-1])[0]


def chain_seconds(tf: Any, size: int, hops: int, calls: int) -> float:
    with tf.Graph().as_default(), session(tf) as opened:
        variable, last = chain(tf, size, hops)
        opened.run(variable.initializer)
        return seconds_per_call(opened.make_callable(last), calls)


def hop_seconds(tf: Any, size: int, hops: int, calls: int) -> float:
    return (chain_seconds(tf, size, hops, calls) - chain_seconds(tf, size, 0, calls)) / hops


def traced_seconds(tf: Any, size: int) -> float:
    """The least time of a Send and its Recv in some traced steps."""
    with tf.Graph().as_default(), session(tf) as opened:
        variable, last = chain(tf, size, 2)
        opened.run(variable.initializer)
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        times = []
        for _ in range(20):
            metadata = tf.RunMetadata()
            opened.run(last, options=options, run_metadata=metadata)
            spent = {"_Send": 0, "_Recv": 0}
            for stats in metadata.step_stats.dev_stats:
                for node in stats.node_stats:
                    kind = node.timeline_label.split(" = ")[1].split("(")[0]
                    if kind in spent:
                        spent[kind] += node.all_end_rel_nanos
            times.append(sum(spent.values()) / 2 / 1e9)
        return min(times)


def loop_seconds(tf: Any, devices: tuple[str, str]) -> float:
    """Two recurrences of small products, each of which keeps one core busy."""
    with tf.Graph().as_default(), session(tf) as opened:
        results = []
        for number, device in enumerate(devices):
            with tf.device(device):
                start = tf.placeholder_with_default(np.full((1, 64), 0.1 + number, np.float32), [1, 64])
                weights = tf.placeholder_with_default(np.eye(64, dtype=np.float32) * 0.99, [64, 64])
                state = tf.while_loop(
                    lambda i, h: i < ITERATIONS,
                    lambda i, h, w=weights: (i + 1, tf.tanh(tf.matmul(h, w))),
                    (tf.constant(0), start),
                )[1]
                results.append(tf.reduce_sum(state))
        return min(seconds_per_call(opened.make_callable(results), 1, warm_up=2) for _ in range(3))


def per_unit(figure: float) -> float:
    """A figure that is not a time, so that the table's scale (µs) shows it as it is."""
    return figure / 1e6


def main(tf: Any, name: str) -> dict[str, float]:
    times = {"a hop of a scalar": hop_seconds(tf, 1, HOPS, 300)}
    if name == "anabranch":
        times["Send and Recv of a scalar"] = traced_seconds(tf, 1)
        times["Send and Recv of 64 MB"] = large = traced_seconds(tf, LARGE // 4)
        times["its rate (GB/s)"] = per_unit(LARGE / 1e9 / large)
    times["two loops on one device"] = one = loop_seconds(tf, ("/cpu:0", "/cpu:0"))
    times["two loops on two devices"] = two = loop_seconds(tf, ("/cpu:0", "/cpu:1"))
    times["two devices, times as fast"] = per_unit(one / two)
    return times


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf, sys.argv[1])))
