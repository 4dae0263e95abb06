"""Uses of public functions, for `make_public_function_fixture.py` and for the tests beside what it records.

Each case is a function of the module (`anabranch`, or genuine TensorFlow's `compat.v1`) that returns what to fetch. Its
name is the name of its entry in the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def numbers(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


# ---------------------------------------------------------------------- quantisation
RANGES = ((-1.0, 2.0), (0.3, 4.0), (-3.0, -0.4), (0.0, 0.7), (-0.01, 6.0))


@case
def fake_quantised_within_arguments(tf: Any) -> Any:
    x = tf.constant(numbers(1, 40, scale=3.0))
    fetched = []
    for least, most in RANGES:
        for bits, narrow in ((8, False), (4, True), (2, False), (16, True)):
            y = tf.quantization.fake_quant_with_min_max_args(x, least, most, bits, narrow)
            fetched += [y, tf.gradients(y, x, tf.constant(numbers(2, 40)))[0]]
    return fetched


@case
def fake_quantised_within_variables(tf: Any) -> Any:
    x = tf.constant(numbers(3, 6, 7, scale=3.0))
    fetched = []
    for least, most in (*RANGES, (0.0, 0.0)):
        bounds = [tf.constant(least, tf.float32), tf.constant(most, tf.float32)]
        for bits, narrow in ((8, False), (3, True)):
            y = tf.fake_quant_with_min_max_vars(x, *bounds, num_bits=bits, narrow_range=narrow)
            fetched += [y, *tf.gradients(y, [x, *bounds], tf.constant(numbers(4, 6, 7)))]
    return fetched


@case
def fake_quantised_within_channels(tf: Any) -> Any:
    least, most = tf.constant([-1.0, 0.3, -3.0, 0.0]), tf.constant([2.0, 4.0, -0.4, 0.0])
    fetched = []
    for shape in ((4,), (5, 4), (2, 3, 2, 4)):
        x = tf.constant(numbers(5, *shape, scale=3.0))
        y = tf.quantization.fake_quant_with_min_max_vars_per_channel(x, least, most)
        fetched += [y, *tf.gradients(y, [x, least, most], tf.constant(numbers(6, *shape)))]
    return fetched


@case
def quantised_and_back(tf: Any) -> Any:
    x = tf.constant(numbers(7, 30, scale=2.0))
    fetched = []
    for signed in (True, False):
        for given in (True, False):
            for mode in ("HALF_TO_EVEN", "HALF_UP"):
                for narrow in (True, False):
                    y = tf.quantization.quantize_and_dequantize(
                        x, -1.0, 2.5, signed, 5, given, mode, None, narrow_range=narrow
                    )
                    fetched += [y, tf.gradients(y, x)[0]]
    return fetched


@case
def quantised_and_back_with_bits_of_a_tensor(tf: Any) -> Any:
    x = tf.constant(numbers(8, 30, scale=2.0).astype(np.float64))
    least, most = tf.constant(-1.0, tf.float64), tf.constant(2.5, tf.float64)
    y = tf.raw_ops.QuantizeAndDequantizeV3(input=x, input_min=least, input_max=most, num_bits=6)
    return [y, tf.gradients(y, x)[0]]


@case
def quantised_numbers(tf: Any) -> Any:
    x = tf.constant(numbers(9, 25, scale=2.0))
    fetched: list[Any] = []
    for dtype in (tf.quint8, tf.qint8, tf.qint16, tf.quint16):
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            if mode == "MIN_FIRST" and dtype not in (tf.quint8, tf.qint8):
                continue
            for least, most in ((-1.0, 2.0), (0.5, 3.0), (-2.5, -1.0), (0.0, 0.0)):
                output, low, high = tf.quantization.quantize(x, least, most, dtype, mode)
                fetched += [output, low, high, tf.quantization.dequantize(output, low, high, mode)]
    return fetched
