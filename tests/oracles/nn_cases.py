"""Uses of operations of neural networks, for `make_kernel_fixtures.py` and for the tests beside what it records.

Each case is a function of the module (`anabranch`, or genuine TensorFlow's `compat.v1`) and of a generator of random
inputs that returns what to fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Inputs = np.random.RandomState
Case = Callable[[Any, Inputs], Any]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def numbers(r: Inputs, *shape: int, dtype: Any = np.float32) -> Any:
    return r.randn(*shape).astype(dtype)


# ---------------------------------------------------------------------- recurrent cells
BATCH, WIDTH, SIZE, STEPS = 3, 4, 5, 6


def of_an_lstm(r: Inputs, dtype: Any = np.float32) -> dict[str, Any]:
    """The state and the weights."""
    given = {"cs_prev": numbers(r, BATCH, SIZE, dtype=dtype), "h_prev": numbers(r, BATCH, SIZE, dtype=dtype)}
    given |= {"w": numbers(r, WIDTH + SIZE, 4 * SIZE, dtype=dtype), "b": numbers(r, 4 * SIZE, dtype=dtype)}
    return given | {name: numbers(r, SIZE, dtype=dtype) for name in ("wci", "wcf", "wco")}


@case
def steps_of_an_lstm(tf: Any, r: Inputs) -> Any:
    fetched = []
    for peephole in (False, True):
        for clip in (0.7, -1.0):
            given = of_an_lstm(r) | {"x": numbers(r, BATCH, WIDTH), "use_peephole": peephole}
            gates = tf.raw_ops.LSTMBlockCell(forget_bias=0.5, cell_clip=clip, **given)
            grads = {"cs_grad": numbers(r, BATCH, SIZE), "h_grad": numbers(r, BATCH, SIZE)}
            named = dict(zip(("i", "cs", "f", "o", "ci", "co"), gates[:6], strict=True))
            fetched += [*gates, *tf.raw_ops.LSTMBlockCellGrad(**given, **named, **grads)]
    return fetched


@case
def steps_of_a_gru(tf: Any, r: Inputs) -> Any:
    given = {
        "x": numbers(r, BATCH, WIDTH),
        "h_prev": numbers(r, BATCH, SIZE),
        "w_ru": numbers(r, WIDTH + SIZE, 2 * SIZE),
        "w_c": numbers(r, WIDTH + SIZE, SIZE),
        "b_ru": numbers(r, 2 * SIZE),
        "b_c": numbers(r, SIZE),
    }
    found = tf.raw_ops.GRUBlockCell(**given)
    named = dict(zip(("r", "u", "c"), found[:3], strict=True))
    return [*found, *tf.raw_ops.GRUBlockCellGrad(**given, **named, d_h=numbers(r, BATCH, SIZE))]


@case
def sequences_of_an_lstm(tf: Any, r: Inputs) -> Any:
    fetched = []
    for version in ("", "V2"):
        for peephole in (False, True):
            for length, clip in ((STEPS, 0.8), (4, 0.0), (0, 3.0)):
                x = numbers(r, STEPS, BATCH, WIDTH)
                given = of_an_lstm(r) | {"seq_len_max": np.int64(length), "x": x, "use_peephole": peephole}
                block = getattr(tf.raw_ops, f"BlockLSTM{version}")
                gates = block(cell_clip=clip, **({} if version else {"forget_bias": 0.3}), **given)
                grads = {name: numbers(r, STEPS, BATCH, SIZE) for name in ("cs_grad", "h_grad")}
                named = dict(zip(("i", "cs", "f", "o", "ci", "co", "h"), gates, strict=True))
                # what follows the last step is whatever was in memory
                found = getattr(tf.raw_ops, f"BlockLSTMGrad{version}")(**given, **named, **grads)
                fetched += [*(value[:length] for value in gates), found[0][:length], *found[1:]]
    return fetched


@case
def gradients_through_a_sequence(tf: Any, r: Inputs) -> Any:
    given = {name: tf.constant(value) for name, value in of_an_lstm(r).items()}
    given["x"] = tf.constant(numbers(r, STEPS, BATCH, WIDTH))
    gates = tf.raw_ops.BlockLSTM(seq_len_max=np.int64(STEPS), use_peephole=True, cell_clip=0.0, **given)
    weights = tf.constant(numbers(r, STEPS, BATCH, SIZE))
    return tf.gradients(tf.reduce_sum(gates[6] * weights), list(given.values()))


@case
def sequences_in_half_precision(tf: Any, r: Inputs) -> Any:
    given = of_an_lstm(r, np.float16) | {"x": numbers(r, 2, BATCH, WIDTH, dtype=np.float16)}
    return list(tf.raw_ops.BlockLSTM(seq_len_max=np.int64(2), **given))


# ---------------------------------------------------------------------- pooling by fractions
def pooled_by_fractions(tf: Any, r: Inputs, name: str) -> Any:
    """The gradients, whose regions are given; which regions are drawn is not TensorFlow's."""
    fetched = []
    rows, columns = np.array([0, 2, 3, 5, 7], np.int64), np.array([0, 1, 3, 5], np.int64)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        for overlapping in (False, True):
            # few different numbers, so that some regions have their largest twice
            x, grad = r.randint(-3, 4, (2, 7, 5, 3)).astype(dtype), (r.randn(2, 4, 3, 3) * 9).astype(dtype)
            given = {"row_pooling_sequence": rows, "col_pooling_sequence": columns, "overlapping": overlapping}
            if name == "Max":
                given |= {"orig_input": x, "orig_output": grad}
            else:
                given["orig_input_tensor_shape"] = np.array(x.shape, np.int64)
            fetched.append(getattr(tf.raw_ops, f"Fractional{name}PoolGrad")(out_backprop=grad, **given))
    return fetched


@case
def gradients_of_largest_numbers(tf: Any, r: Inputs) -> Any:
    return pooled_by_fractions(tf, r, "Max")


@case
def gradients_of_means(tf: Any, r: Inputs) -> Any:
    return pooled_by_fractions(tf, r, "Avg")


# ---------------------------------------------------------------------- convolutions
@case
def padded_convolutions(tf: Any, r: Inputs) -> Any:
    fetched = []
    pads = np.array([[0, 0], [2, 1], [0, 3], [0, 0]], np.int32)
    for dtype in (np.float32, np.float64):
        for mode in ("REFLECT", "SYMMETRIC"):
            for stride, padding in ((1, "SAME"), (2, "VALID")):
                # one image: of several, TensorFlow convolves rows of the first with those of the next
                given = {"input": numbers(r, 1, 5, 6, 3, dtype=dtype), "filter": numbers(r, 3, 2, 3, 4, dtype=dtype)}
                given |= {"paddings": pads, "mode": mode, "strides": [1, stride, stride, 1], "padding": padding}
                fetched.append(tf.raw_ops.FusedPadConv2D(**given))
                for corners in (False, True):
                    given |= {"size": np.array([7, 4], np.int32), "resize_align_corners": corners}
                    fetched.append(tf.raw_ops.FusedResizeAndPadConv2D(**given))
    return fetched


# ---------------------------------------------------------------------- layouts
@case
def layouts(tf: Any, r: Inputs) -> Any:
    fetched = []
    for dtype in (np.int32, np.int64):
        for source, target in (("NHWC", "NCHW"), ("NCHW", "NHWC"), ("HWNC", "NHWC"), ("NDHWC", "NCDHW")):
            count, formats = len(source), {"src_format": source, "dst_format": target}
            axes = tf.constant(np.arange(-count, count).astype(dtype).reshape(2, count))
            fetched.append(tf.raw_ops.DataFormatDimMap(x=axes, **formats))
            for shape in ((count,), (count, 2), (count - 2,), (count - 2, 2)):
                x = tf.constant(r.randint(0, 99, shape).astype(dtype))
                fetched.append(tf.raw_ops.DataFormatVecPermute(x=x, **formats))
    return fetched
