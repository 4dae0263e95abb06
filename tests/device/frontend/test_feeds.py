"""Values that are fed: cast or refused as genuine TensorFlow does (`tests/oracles/record_feeds.py`)."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.feeds import feed_array
from tests.feed_values import DTYPES, EXPRESSIONS, made, told

THEIRS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[2] / "fixtures" / "feeds.json").read_text())
INTEGERS = tuple(name for name in DTYPES if "int" in name)
REALS = ("float16", "float32", "float64", *INTEGERS)
COMPLEX = (
    "np.complex64(1)",
    "np.complex128(1)",
    "np.array([0, 1, 100], 'complex64')",
    "np.array([0, 1, 100], 'complex128')",
)
#: Refused here, where TensorFlow with a recent NumPy is lenient: what TensorFlow 1.15 refused too (casts of floats that
#: no integer holds, whose result depends on the processor, and of complex numbers of Python), what would lose imaginary
#: parts, and None.
REFUSED = {
    **dict.fromkeys(("float('nan')", "float('inf')", "1e300", "[float('nan')]", "[1e300]"), INTEGERS),
    **dict.fromkeys(("1j", "1+0j", "[1j]"), REALS),
    **dict.fromkeys(COMPLEX, ("bfloat16", "bool", *REALS)),
    "None": ("float16", "float32", "float64", "bool", "complex64", "complex128"),
}


@pytest.fixture(scope="module")
def placeholders() -> dict[str, Any]:
    with tf.Graph().as_default():
        return {name: tf.placeholder(getattr(tf, name)) for name in DTYPES}


def fed(placeholder: Any, expression: str) -> list[Any] | None:
    try:
        return told(feed_array(placeholder, made(expression)))
    except (TypeError, ValueError) as error:
        return None if placeholder.name in str(error) and "test_feeds.py" in str(error) else [f"untold: {error}"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_feeds_are_cast_as_tensorflow_does(expression: str, placeholders: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # NumPy's, of its matrices
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of values that get too large for float16
        ours = {dtype: fed(placeholders[dtype], expression) for dtype in DTYPES}
    theirs = dict(THEIRS[expression])
    for dtype in REFUSED.get(expression, ()):
        assert theirs[dtype] is not None, "no longer a difference"
        theirs[dtype] = None
    assert ours == theirs


def test_a_float_for_an_integer_reaches_the_step_truncated() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int32, [None])
        assert session.run(x + 1, {x: [2.9, -2.9, True]}).tolist() == [3, -1, 2]
        assert session.run(x + 1, {x: np.array([2.9, -2.9])}).tolist() == [3, -1]
        with pytest.raises(ValueError, match="Cannot feed nan for Tensor 'Placeholder:0' of dtype int32"):
            session.run(x + 1, {x: float("nan")})


class _OfAnotherLibrary:
    """What has nothing but DLPack."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.values.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def test_tensors_of_other_libraries_are_fed_and_given_without_a_copy() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2, 3])
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert np.shares_memory(feed_array(x, _OfAnotherLibrary(values)), values)
        result = session.run(x + 1.0, {x: _OfAnotherLibrary(values)})
        np.testing.assert_array_equal(result, values + 1.0)
        taken = np.from_dlpack(result)
        assert np.shares_memory(taken, result)
        assert taken.flags.writeable
        # of another dtype it is cast, as arrays are; of another shape it is refused
        np.testing.assert_array_equal(session.run(x, {x: _OfAnotherLibrary(values.astype(np.int16))}), values)
        with pytest.raises(ValueError, match=r"Cannot feed value of shape \(3, 2\)"):
            session.run(x, {x: _OfAnotherLibrary(np.ones([3, 2], np.float32))})


def test_a_sparse_placeholder_of_known_shape_is_fed_indices_and_values() -> None:
    sparse = tf.sparse_placeholder(tf.float32, [2, 3])
    dense = tf.sparse_tensor_to_dense(sparse)
    with tf.Session() as session:
        fed = {sparse: (np.array([[0, 1], [1, 2]]), np.array([5.0, 6.0], np.float32))}
        assert session.run(dense, fed).tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 6.0]]
