from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.core import dtypes
from anabranch.proto.graph_pb2 import DataType

BASES = dtypes.ALL
EVERY = tuple(d for base in BASES for d in (base, base.ref_dtype))
NUMPY_TYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "string": np.object_,
}
# TensorFlow's DataType enum, in order from DT_FLOAT = 1.
WIRE_ORDER = [
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "resource",
    "variant",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
]


def test_wire_numbers() -> None:
    for number, name in enumerate(WIRE_ORDER, start=1):
        dtype = getattr(dtypes, name)
        assert (dtype.as_datatype_enum, int(dtype), dtype.name) == (number, number, name)
        ref = getattr(dtypes, name + "_ref")
        assert (int(ref), ref.name, ref.base_dtype, dtype.base_dtype) == (number + 100, name + "_ref", dtype, dtype)
    assert len(BASES) == len(WIRE_ORDER)


@given(st.sampled_from(EVERY))
def test_every_name_of_a_type_leads_back_to_it(dtype: dtypes.DType) -> None:
    assert dtypes.as_dtype(dtype) is dtype
    assert dtypes.as_dtype(dtype.name) is dtype
    assert dtypes.as_dtype(int(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    assert getattr(dtypes, repr(dtype).removeprefix("tf.")) is dtype
    if dtype.is_numpy_compatible:
        assert dtypes.as_dtype(dtype.as_numpy_dtype) is dtype.base_dtype
        assert dtypes.as_dtype(np.dtype(dtype.as_numpy_dtype)) is dtype.base_dtype
        assert np.zeros(1, dtype.as_numpy_dtype).dtype.itemsize == dtype.size


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_types(name: str) -> None:
    dtype = getattr(dtypes, name)
    assert dtype.as_numpy_dtype is NUMPY_TYPES[name]
    assert dtype == NUMPY_TYPES[name]
    assert dtype == np.dtype(NUMPY_TYPES[name])
    assert dtype == name
    assert (dtype != name) is False


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("half", dtypes.float16),
        ("float", dtypes.float32),
        ("double", dtypes.float64),
        ("double_ref", dtypes.float64_ref),
        (float, dtypes.float32),
        (int, dtypes.int32),
        (bool, dtypes.bool),
        (str, dtypes.string),
        (bytes, dtypes.string),
        (object, dtypes.string),
        (np.str_, dtypes.string),
        (np.bytes_, dtypes.string),
        (np.dtype("S5"), dtypes.string),
        (np.dtype("U5"), dtypes.string),
        (np.dtype("O"), dtypes.string),
        (np.dtype(">f4"), dtypes.float32),
        (np.dtype(">i8"), dtypes.int64),
        (np.longlong, dtypes.int64),
        (np.intc, dtypes.int32),
        (np.int64(3), dtypes.int32),
    ],
)
def test_as_dtype(value: Any, expected: dtypes.DType) -> None:
    assert dtypes.as_dtype(value) is expected


@pytest.mark.parametrize(
    "value", [None, "f4", "foo", 0, 99, 1000, [], {}, np.floating, np.dtype("M8[s]"), complex, dict, np.array(1.0)]
)
def test_as_dtype_refuses(value: Any) -> None:
    with pytest.raises(TypeError, match="Cannot convert value"):
        dtypes.as_dtype(value)
    assert (dtypes.float32 == value) is False
    assert dtypes.float32 != value


def test_text() -> None:
    assert repr(dtypes.float32) == "tf.float32"
    assert str(dtypes.float32) == "<dtype: 'float32'>"
    assert str(dtypes.int64_ref) == "<dtype: 'int64_ref'>"


@given(st.sampled_from(EVERY), st.sampled_from(EVERY))
def test_compatibility_is_equality_or_base_with_its_ref(a: dtypes.DType, b: dtypes.DType) -> None:
    assert a.is_compatible_with(b) == (a is b or b is a.ref_dtype)
    assert a.is_compatible_with(b.name) == a.is_compatible_with(b)
    assert (a == b) == (a is b)


@pytest.mark.parametrize("dtype", EVERY, ids=lambda d: str(d.name))
def test_every_type_is_of_one_kind(dtype: dtypes.DType) -> None:
    kinds = [dtype.is_floating, dtype.is_integer, dtype.is_bool, dtype.is_complex, dtype.is_quantized]
    others = ("string", "resource", "variant")
    assert sum(kinds) == (0 if dtype.base_dtype.name in others else 1)
    assert dtype.is_unsigned == (dtype.is_integer and dtype.name.startswith("u"))
    assert dtype.is_numpy_compatible == (dtype.base_dtype.name not in ("resource", "variant"))


def test_real_dtype() -> None:
    assert dtypes.complex64.real_dtype is dtypes.float32
    assert dtypes.complex128_ref.real_dtype is dtypes.float64
    assert dtypes.int32_ref.real_dtype is dtypes.int32_ref
    assert dtypes.string.real_dtype is dtypes.string


def test_min_and_max() -> None:
    assert (dtypes.int8.min, dtypes.int8.max) == (-128, 127)
    assert (dtypes.uint64.min, dtypes.uint64.max) == (0, 2**64 - 1)
    assert dtypes.float32.max == np.finfo(np.float32).max
    assert isinstance(dtypes.float32.max, np.float32)
    assert isinstance(dtypes.bfloat16.min, ml_dtypes.bfloat16)
    assert dtypes.float16.min == -65504
    for dtype in (dtypes.string, dtypes.bool, dtypes.complex64, dtypes.qint8, dtypes.resource):
        with pytest.raises(TypeError, match="Cannot find maximum"):
            _ = dtype.max


def test_limits() -> None:
    assert dtypes.uint8.limits == (0, 255)
    assert dtypes.int16.limits == (0, 32767)
    assert dtypes.float32.limits == (0, 1)
    assert dtypes.bool.limits == (0, True)
    with pytest.raises(ValueError, match="limits"):
        _ = dtypes.string.limits


def test_groups() -> None:
    assert set(dtypes.REAL_NUMBERS) == {d for d in BASES if d.is_integer or d in dtypes.FLOATING}
    assert set(dtypes.NUMBERS) == set(dtypes.REAL_NUMBERS) | set(dtypes.COMPLEX) | set(dtypes.QUANTIZED)
    assert {d for d in BASES if d.is_quantized} == set(dtypes.QUANTIZED)
    assert set(dtypes.INTEGERS) == {d for d in BASES if d.is_integer}
    assert {d.base_dtype for d in dtypes.QUANTIZED_DTYPES} == set(dtypes.QUANTIZED)
    assert list(dtypes.INDEX) == [dtypes.int32, dtypes.int64]


def test_the_number_of_a_type_gives_it() -> None:
    assert dtypes.DType(1) is dtypes.float32
    assert dtypes.DType(101) is dtypes.float32_ref
    with pytest.raises(TypeError, match="77"):
        dtypes.DType(77)


def test_some_python_types_are_taken_for_a_type_but_equal_none() -> None:
    assert dtypes.as_dtype(int) is dtypes.int32
    assert all(dtypes.as_dtype(kind) != kind for kind in (int, str, bytes))
    assert all(dtypes.as_dtype(kind) == kind for kind in (float, bool, object, np.int64))


def test_types_of_later_graphs_have_names_and_limits() -> None:
    numbers = [n for n in DataType.values() if n]
    types = [dtypes.as_dtype(n) for n in numbers]
    assert [t.as_datatype_enum for t in types] == numbers
    assert len({t.name for t in types}) == len(types)
    int4 = dtypes.as_dtype("int4")
    assert (int(int4.min), int(int4.max), int4.is_integer, int4.is_unsigned) == (-8, 7, True, False)
    assert dtypes.as_dtype("float8_e4m3fnuz").max == 240.0
    assert int4 not in dtypes.ALL  # no operation computes with it
