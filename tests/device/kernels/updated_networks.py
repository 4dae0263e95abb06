"""Networks whose variables calls of a library update, and how: for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as tf

#: layers: small and odd ones, and one whose weights several threads share
LAYERS = [(7, 5), (5, 400), (400, 300), (300, 17), (17, 3)]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "descent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
}


def network(decay: float = 0.0, dtype: Any = np.float32) -> tuple[Any, Any, list[Any]]:
    """What is fed, a loss, and the variables."""
    rng = np.random.default_rng(0)
    x = tf.placeholder(dtype, (4, 7))
    h, variables = x, []
    for shape in LAYERS:
        values = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[1:]).astype(dtype)
        w, b = (tf.Variable(value, use_resource=True) for value in values)
        h = tf.tanh(tf.nn.bias_add(tf.matmul(h, w), b))
        variables += [w, b]
    loss = tf.reduce_sum(h * h)
    return x, loss + decay * tf.add_n([tf.nn.l2_loss(v) for v in variables]) if decay else loss, variables


class Steady:
    """Variables of which every step takes the same: what one has lost says how many steps there were.

    Attributes:
        fed: what a step needs.
        step: takes `RATE` from all elements of all variables, exactly.
        variables: of these shapes and types.
    """

    RATE = 0.5

    def __init__(self, optimizer: Any, shapes: Any = None, dtypes: Any = (np.float32,), check: bool = False) -> None:
        scale = tf.placeholder(np.float32, [])
        self.fed: dict[Any, Any] = {scale: 0.5}
        self.variables: list[Any] = []
        losses = []
        shapes = [shape for layer in LAYERS for shape in (layer, layer[1:])] if shapes is None else shapes
        for number, shape in enumerate(shapes):
            dtype = dtypes[number % len(dtypes)]
            name = f"steady{number}"
            v = tf.get_variable(name, shape, dtype, initializer=tf.zeros_initializer(), use_resource=True)
            self.variables.append(v)
            fed, rows = tf.cast(scale, dtype), tf.ones([2, shape[0] if shape else 1], dtype)
            # gradients are products, or sums, of what is fed
            if len(shape) > 1:
                given = tf.matmul(fed * rows, v)
            else:
                given = fed * (tf.nn.bias_add(rows, v) if shape else rows * v)
            losses.append(tf.cast(tf.reduce_sum(given), np.float32))
        loss = tf.add_n(losses)
        if check:
            self.row = tf.placeholder_with_default(0, [])
            loss *= tf.gather(tf.constant([1.0]), self.row)
        self.step = optimizer(self.RATE).minimize(loss)

    def steps(self, values: Any) -> int:
        """How many steps these values of the variables are of, which have to be of one moment."""
        (taken,) = {float(number) for value in values for number in np.unique(np.asarray(value, np.float64))}
        steps = -taken / self.RATE
        assert steps == int(steps)
        return int(steps)
