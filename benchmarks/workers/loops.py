"""Worker: loops that count, and the cost of an iteration.

``step of 10,000``: a step that is a loop which counts to 10,000 (compilers see that it only counts). ``step of 1``:
the same with one iteration: what everything around the loop costs. ``1,000 iterations``: the difference, a tenth of
it. ``arithmetic`` computes ``x = 0.999 x + 1`` in each iteration, ``list`` writes each number into a TensorArray.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import least_seconds

COUNT = 10_000
Step = Callable[[int], object]


def graph_steps(tf: Any) -> dict[str, Step]:
    limit = tf.placeholder(tf.int32, [])
    plain = tf.while_loop(lambda i: i < limit, lambda i: i + 1, [0])
    _, product = tf.while_loop(lambda i, _: i < limit, lambda i, x: (i + 1, x * 0.999 + 1.0), (0, tf.constant(1.0)))
    array = tf.TensorArray(tf.float32, COUNT, element_shape=[])
    _, array = tf.while_loop(
        lambda i, _: i < limit, lambda i, a: (i + 1, a.write(i, tf.cast(i, tf.float32))), (0, array)
    )
    listed = tf.reduce_sum(array.gather([0, 1]))
    session = tf.Session()
    return _by_name(*(session.make_callable(t, [limit]) for t in (plain, product, listed)))


def _by_name(plain: Any, product: Any, listed: Any) -> dict[str, Step]:
    return {
        "": lambda n: np.asarray(plain(np.int32(n))),
        ", arithmetic": lambda n: np.asarray(product(np.int32(n))),
        ", list": lambda n: np.asarray(listed(np.int32(n))),
    }


def jax_steps() -> dict[str, Step]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    @jax.jit
    def plain(limit: Any) -> Any:
        return lax.while_loop(lambda i: i < limit, lambda i: i + 1, jnp.int32(0))

    @jax.jit
    def listed(limit: Any) -> Any:
        def body(carry: Any) -> Any:
            i, rows = carry
            return i + 1, rows.at[i].set(i.astype(jnp.float32))

        rows = lax.while_loop(lambda c: c[0] < limit, body, (jnp.int32(0), jnp.zeros(COUNT)))[1]
        return rows[0] + rows[1]

    @jax.jit
    def product(limit: Any) -> Any:
        start = (jnp.int32(0), jnp.float32(1))
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] * 0.999 + 1.0), start)[1]

    return _by_name(plain, product, listed)


def steps_of(system: str) -> dict[str, Step]:
    if system == "anabranch":
        import anabranch as tf

        return graph_steps(tf)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        return graph_steps(tf)
    return jax_steps()


def measured(steps: dict[str, Step]) -> dict[str, float]:
    row = {}
    for label, step in steps.items():
        few, many = (least_seconds(functools.partial(step, n), 300 if n == 1 else 30) for n in (1, COUNT))
        row |= {
            f"step of 10,000{label}": many,
            f"step of 1{label}": few,
            f"1,000 iterations{label}": (many - few) * 1000 / COUNT,
        }
    return row


if __name__ == "__main__":
    print(json.dumps(measured(steps_of(sys.argv[1]))))
