"""Worker: products of matrices and pooling, each alone (s of processor time).

The "system" is the name of a kernel of anabranch (``own`` is XLA's; ``onednn`` needs the extra `native`), or ``torch``
(channels last); the second argument is the dtype, float32 or bfloat16. A figure is the least of the runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: rows, inner, columns; whether the first factor, and the second, are transposed
PRODUCTS = (
    (2048, 2048, 2048, False, False),
    (1024, 1024, 1024, False, True),
    (32, 9216, 4096, False, False),
    (9216, 32, 4096, True, False),
    (64, 1024, 2048, False, False),
)
#: batch, rows, inner, columns
BATCHES = ((64, 128, 64, 128),)
#: shape of the data, window, stride, padding
POOLING = (
    ((32, 55, 55, 64), 3, 2, "VALID"),
    ((16, 28, 28, 192), 3, 1, "SAME"),
    ((8, 112, 112, 64), 3, 2, "SAME"),
    ((8, 224, 224, 64), 2, 2, "VALID"),
)
RUNS = 7
Run = Callable[[], object]


def values(shape: Any) -> np.ndarray:
    """Numbers in float32."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def named(what: str, shape: Any, size: int, stride: int) -> str:
    return f"{what}, {'x'.join(map(str, shape))}, window {size}, stride {stride}"


# ---------------------------------------------------------------------- anabranch
def compiled(name: str, dtype: str) -> Iterator[tuple[str, Run]]:
    """What has a kernel of that name, each compiled alone."""
    import jax

    import anabranch as tf
    from anabranch.xla.jax_settings import in_wide_types
    from benchmarks.workers.kernels import case_of, program_of

    with tf.Graph().as_default():
        for what, op in operations(tf, dtype):
            case = case_of(op)
            program = program_of(op, case, name)
            if program is not None:
                given = [one for one in case.inputs if one.value is None]
                arrays = [jax.device_put(values(one.shape).astype(one.dtype)) for one in given]
                function = in_wide_types(lambda p=program, a=arrays: jax.jit(p).lower(*a).compile())
                yield what, lambda function=function, arrays=arrays: jax.block_until_ready(function(*arrays))


def operations(tf: Any, dtype: str) -> Iterator[tuple[str, Any]]:
    def placeholder(*shape: int) -> Any:
        return tf.placeholder(dtype, shape)

    for m, k, n, ta, tb in PRODUCTS:
        one, other = placeholder(*((k, m) if ta else (m, k))), placeholder(*((n, k) if tb else (k, n)))
        yield f"product {m}, {k}, {n}{', turned' if ta or tb else ''}", tf.matmul(one, other, ta, tb).op
    for b, m, k, n in BATCHES:
        yield f"{b} products {m}, {k}, {n}", tf.matmul(placeholder(b, m, k), placeholder(b, k, n)).op
    for shape, size, stride, padding in POOLING:
        x = placeholder(*shape)
        window = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        y = tf.raw_ops.MaxPool(input=x, **window)
        grad = placeholder(*y.shape.as_list())
        maximum = tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=grad, **window)
        yield named("gradient of maxima", shape, size, stride), maximum.op
        yield named("averages", shape, size, stride), tf.raw_ops.AvgPool(value=x, **window).op
        average = tf.raw_ops.AvgPoolGrad(orig_input_shape=list(shape), grad=grad, **window)
        yield named("gradient of averages", shape, size, stride), average.op


# ---------------------------------------------------------------------- PyTorch
def torch(dtype: str) -> Iterator[tuple[str, Run]]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def tensor(*shape: int) -> Any:
        return torch.from_numpy(values(shape)).to(getattr(torch, dtype))

    for m, k, n, ta, tb in PRODUCTS:
        one = tensor(k, m).T if ta else tensor(m, k)
        other = tensor(n, k).T if tb else tensor(k, n)
        yield f"product {m}, {k}, {n}{', turned' if ta or tb else ''}", lambda a=one, b=other: a @ b
    for b, m, k, n in BATCHES:
        one, other = tensor(b, m, k), tensor(b, k, n)
        yield f"{b} products {m}, {k}, {n}", lambda a=one, b=other: a @ b
    for shape, size, stride, padding in POOLING:
        if padding == "SAME" and stride > 1:
            continue  # which pads one side only, and PyTorch both
        pad = size // 2 if padding == "SAME" else 0
        x = tensor(*shape).permute(0, 3, 1, 2).requires_grad_()
        maxima = functional.max_pool2d(x, size, stride, pad)
        averages = functional.avg_pool2d(x, size, stride, pad, count_include_pad=False)
        grad = torch.ones_like(maxima)

        def gradient(of: Any, x: Any = x, grad: Any = grad) -> Run:
            return lambda: torch.autograd.grad(of, x, grad, retain_graph=True)

        def average(x: Any = x, window: Any = (size, stride, pad)) -> object:
            with torch.no_grad():
                return functional.avg_pool2d(x, *window, count_include_pad=False)

        yield named("gradient of maxima", shape, size, stride), gradient(maxima)
        yield named("averages", shape, size, stride), average
        yield named("gradient of averages", shape, size, stride), gradient(averages)


def least(run: Run) -> float:
    """The least processor time of a run (s)."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def main(system: str, dtype: str) -> None:
    runs = torch(dtype) if system == "torch" else compiled(system, dtype)
    print(json.dumps({what: least(run) for what, run in runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
