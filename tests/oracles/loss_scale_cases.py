"""Training with loss scales, run by whichever `tf` is given: weight, global step, scale and count after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INF, NAN = float("inf"), float("nan")
#: name -> how the scale is made, and the inputs of the steps
CASES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "fixed": (lambda scales: scales.FixedLossScale(128), [1.0, 2.0, -0.5]),
    "a number": (lambda _: 16, [1.0, 2.0]),
    "grows": (lambda scales: scales.DynamicLossScale(4, 2, 3.0), [1.0] * 5),
    "shrinks": (lambda scales: scales.DynamicLossScale(8, 3), [1.0, 1.0, INF, 1.0, NAN, 1.0, 1.0, 1.0]),
    "not below one": (lambda scales: scales.DynamicLossScale(2.5, 10, 2.0), [INF, NAN, INF, 1.0]),
    "not beyond float32": (lambda scales: scales.DynamicLossScale(2.0**126, 1, 4.0), [1e-20, 1e-20, 1e-20]),
}


def run(tf: Any, scales: Any, name: str) -> dict[str, list[Any]]:
    """What a case gives.

    Args:
        scales: the module that has the loss scales and their optimizer.
    """
    make, inputs = CASES[name]
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        dense = tf.get_variable("dense", [2], initializer=tf.ones_initializer(), use_resource=True)
        rows = tf.get_variable("rows", [3, 2], initializer=tf.ones_initializer(), use_resource=True)
        loss = tf.reduce_sum(tf.square(dense) * x) + tf.reduce_sum(tf.gather(rows, [2, 0, 2]) * x)
        step = tf.train.get_or_create_global_step()
        opt = scales.MixedPrecisionLossScaleOptimizer(tf.train.MomentumOptimizer(0.125, 0.5), make(scales))
        train = opt.minimize(loss, global_step=step)
        read = [dense.read_value(), rows.read_value(), step.read_value()]
        kept = sorted(opt.variables(), key=lambda v: str(v.name))
        after = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for value in inputs:
                session.run(train, {x: value})
                after.append([v.tolist() for v in session.run([*read, *(v.read_value() for v in kept)])])
        return {"variables": [v.name for v in kept], "after": after}
