"""Values in messages, beside what TensorFlow 2.21's `Assert` wrote of the same ones (recorded)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from anabranch.core.shown_values import ShownValue, escaped, summary, without_values

_FLOATS = [0.1, 1.5, -2.0, 1e10, 1e-10, 123456.789, np.nan, np.inf, -np.inf, -0.0, 16777216.0, 1 / 3]
_RECORDED = [
    (np.float32, _FLOATS, "[0.1 1.5 -2 1e+10 1e-10 123456.789 nan inf -inf -0 16777216 0.333333343]"),
    (
        np.float64,
        [0.1, 1 / 3, 1e22, 1e-5, 123456789.123456789, np.nan, -np.inf],
        "[0.1 0.33333333333333331 1e+22 1e-05 123456789.12345679 nan -inf]",
    ),
    (np.float16, [0.1, 1 / 3, 65504.0, np.nan, 1e-7], "[0.0999755859 0.333251953 65504 nan 1.1920929e-07]"),
    (ml_dtypes.bfloat16, [0.1, 1 / 3, 3e38, np.nan], "[0.100097656 0.333984375 3.00405527e+38 nan]"),
    (np.int32, [0, 1, -5, 2**31 - 1], "[0 1 -5 2147483647]"),
    (np.int64, [2**62, -1], "[4611686018427387904 -1]"),
    (np.uint8, [0, 255], "[0 255]"),
    (np.bool_, [True, False, True], "[1 0 1]"),
    (np.object_, [b"a", b"d e", "é".encode()], "[a d e é]"),
]


@pytest.mark.parametrize(("dtype", "values", "recorded"), _RECORDED)
def test_elements_are_written_as_tensorflow_does(dtype: type, values: list[object], recorded: str) -> None:
    array = np.array(values, dtype)
    assert summary(array, -1) == summary(array, 100) == recorded
    assert f"{ShownValue(array):*}" == recorded
    assert f"{ShownValue(array):+}" == recorded[:-1] + "...]"
    first = recorded[1:].split(" ")[0].rstrip("]")
    assert summary(array, 1) == f"[{first}...]"
    assert f"{ShownValue(array[0])}" == first


def test_a_message_shows_few_elements_unless_it_asks_for_all() -> None:
    array = np.arange(12).reshape(3, 4)
    assert f"{ShownValue(array)}" == "[0 1 2 3 4 5 6 7...]"
    assert f"{ShownValue(array):*}" == "[0 1 2 3 4 5 6 7 8 9 10 11]"
    assert summary(array, 0) == "[...]"
    assert summary(np.zeros([0, 2]), 3) == "[]"


def test_braces_of_a_text_are_no_places_for_values() -> None:
    assert (escaped("{0} {}") + "{0}").format(ShownValue(1)) == "{0} {}1"
    with pytest.raises(ValueError, match="not as"):
        f"{ShownValue(1):x}"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("it must be positive, got: {0}", "it must be positive, got"),
        ("lengths {0:*}, {1}", "lengths"),
        ("index {0} of {{0}} is not below 8, the size", "index _ of {0} is not below 8, the size"),
        ("index {0} is not below {1}", "index _ is not below"),
        ("nothing is shown", "nothing is shown"),
        ("{0}", ""),
    ],
)
def test_a_message_without_its_values_still_says_what_is_wrong(message: str, told: str) -> None:
    assert without_values(message).format() == told
