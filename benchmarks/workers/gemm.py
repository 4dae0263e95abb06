"""Worker: a product of two square matrices that stays where it was computed: 2 x size**3 operations.

In graphs the factors are variables, and the product is assigned to a third.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import seconds_per_call

SIZES = (1024, 2048, 4096)
DTYPES = ("float32", "bfloat16")
Run = Callable[[], object]


def factors(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    first, second = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    return first, second


def graph_product(tf: Any, size: int, dtype: str) -> Run:
    with tf.Graph().as_default():
        kind = getattr(tf, dtype)
        held = [tf.Variable(tf.cast(tf.constant(f), kind), use_resource=True) for f in factors(size)]
        product = tf.Variable(tf.zeros([size, size], kind), use_resource=True)
        compute = product.assign(tf.matmul(*held)).op
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        return lambda: session.run(compute)


def jax_product(size: int, dtype: str) -> Run:
    import jax

    held = [jax.device_put(f).astype(dtype) for f in factors(size)]
    product = jax.jit(lambda a, b: a @ b)
    return lambda: product(*held).block_until_ready()


def torch_product(size: int, dtype: str) -> Run:
    import torch

    held = [torch.from_numpy(f).to(getattr(torch, dtype)) for f in factors(size)]
    result = torch.empty_like(held[0])
    return lambda: torch.matmul(*held, out=result)


def product_of(system: str, size: int, dtype: str) -> Run:
    if system == "jax":
        return jax_product(size, dtype)
    if system == "torch":
        return torch_product(size, dtype)
    if system == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    return graph_product(tf, size, dtype)


def main(system: str) -> None:
    row = {}
    for dtype in DTYPES:
        for size in SIZES:
            taken = seconds_per_call(product_of(system, size, dtype), max(1, 2**32 // size**3), warm_up=4)
            row[f"{size} x {size}, {dtype}"] = taken
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1])
