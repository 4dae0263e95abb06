"""Worker: convolutions of known networks, forward, to the input and to the filter, on the clock.

The "system" is the name of a kernel of anabranch (``own`` is XLA's; ``onednn`` needs the extra `native`),
``tensorflow``, or ``torch`` (channels last); the second argument is the dtype, float32 or bfloat16. Figures are FLOP/s,
the most and the median of the runs; rows are written as batch, size, channels → depth, filter, stride.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: shape of the data, shape of the filter, stride, padding
CONVOLUTIONS = (
    ((32, 227, 227, 3), (11, 11, 3, 64), 4, "VALID"),
    ((32, 27, 27, 64), (5, 5, 64, 192), 1, "SAME"),
    ((8, 224, 224, 3), (3, 3, 3, 64), 1, "SAME"),
    ((8, 56, 56, 256), (3, 3, 256, 256), 1, "SAME"),
    ((8, 56, 56, 64), (1, 1, 64, 256), 1, "SAME"),
    ((32, 13, 13, 192), (3, 3, 192, 384), 1, "SAME"),
)
DIRECTIONS = ("forward", "to the input", "to the filter")
RUNS = 7
Run = Callable[[], object]


def flop(shape: Any, filter_shape: Any, stride: int, padding: str) -> float:
    """Multiplications and additions of one convolution."""
    lost = filter_shape[0] - 1 if padding == "VALID" else 0
    outputs = -(-(shape[1] - lost) // stride)
    return 2.0 * shape[0] * outputs**2 * int(np.prod(filter_shape))


def values(*shapes: Any) -> list[np.ndarray]:
    """Numbers in float32."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


# ---------------------------------------------------------------------- anabranch
def compiled(name: str, dtype: str, shape: Any, filter_shape: Any, stride: int, padding: str) -> Iterator[Run | None]:
    """The kernels of that name, each compiled alone; None where there is none."""
    import jax

    import anabranch as tf
    from anabranch.xla.jax_settings import in_wide_types
    from benchmarks.workers.kernels import case_of, operations, program_of

    with tf.Graph().as_default():
        for _, op in operations(shape, filter_shape, stride, padding, dtype):
            case = case_of(op)
            program = program_of(op, case, name)
            if program is None:
                yield None
                continue
            given = [one for one in case.inputs if one.value is None]
            floats = zip(values(*(one.shape for one in given)), given, strict=True)
            arrays = [jax.device_put(value.astype(one.dtype)) for value, one in floats]
            function = in_wide_types(lambda p=program, a=arrays: jax.jit(p).lower(*a).compile())
            yield lambda function=function, arrays=arrays: jax.block_until_ready(function(*arrays))


# ---------------------------------------------------------------------- the peers
def tensorflow(dtype: str, shape: Any, filter_shape: Any, stride: int, padding: str) -> Iterator[Run]:
    import tensorflow as tf

    raw = tf.raw_ops
    x, w = (tf.cast(value, dtype) for value in values(shape, filter_shape))
    attrs = {"strides": [1, stride, stride, 1], "padding": padding}
    y = raw.Conv2D(input=x, filter=w, **attrs)
    yield lambda: raw.Conv2D(input=x, filter=w, **attrs).numpy()
    yield lambda: raw.Conv2DBackpropInput(input_sizes=shape, filter=w, out_backprop=y, **attrs).numpy()
    yield lambda: raw.Conv2DBackpropFilter(input=x, filter_sizes=filter_shape, out_backprop=y, **attrs).numpy()


def torch(dtype: str, shape: Any, filter_shape: Any, stride: int, padding: str) -> Iterator[Run]:
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    x, w = (torch.from_numpy(value).to(getattr(torch, dtype)) for value in values(shape, filter_shape))
    x = x.permute(0, 3, 1, 2)  # channels last in memory
    w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    pad = 0 if padding == "VALID" else filter_shape[0] // 2
    y = torch.nn.functional.conv2d(x, w, None, stride, pad)

    def gradient(*asked: bool) -> Run:
        window = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *window, [*asked, False])

    yield lambda: torch.nn.functional.conv2d(x, w, None, stride, pad)
    yield gradient(True, False)
    yield gradient(False, True)


SYSTEMS = {"tensorflow": tensorflow, "torch": torch}


def measured(run: Run) -> tuple[float, float]:
    """The least and the median time of a run (s)."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken), statistics.median(taken)


def main(system: str, dtype: str = "float32") -> None:
    row: dict[str, float] = {}
    for shape, filter_shape, stride, padding in CONVOLUTIONS:
        size, window = ("x".join(map(str, dims)) for dims in (shape[1:3], filter_shape[:2]))
        what = f"{shape[0]}, {size}, {shape[3]} → {filter_shape[3]}, {window}, {stride}"
        make = SYSTEMS.get(system)
        given = (shape, filter_shape, stride, padding)
        runs = make(dtype, *given) if make else compiled(system, dtype, *given)
        work = flop(*given)
        for direction, run in zip(DIRECTIONS, runs, strict=True):
            if run is None:
                continue
            least, median = measured(run)
            row[f"{what}, {direction}: most"] = work / least
            row[f"{what}, {direction}: median"] = work / median
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
