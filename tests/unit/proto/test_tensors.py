"""TensorProtos and shapes: read as TensorFlow reads them, written as TensorFlow writes them, damaged ones refused."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from anabranch.core import dtypes
from anabranch.core.dtypes import as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.proto.graph_pb2 import TensorProto, TensorShapeProto
from anabranch.proto.tensors import attribute_tensor, make_ndarray, make_tensor_proto, shape_from_proto, shape_to_proto
from tests.each_case import each_case

CASES = json.loads((Path(__file__).parents[2] / "fixtures" / "tensorflow" / "tensors.json").read_text())
NUMPY_DTYPES = [d for d in dtypes.ALL if d.is_numpy_compatible and not d.is_quantized and d is not dtypes.string]


def proto_of(case: dict[str, Any]) -> TensorProto:
    return TensorProto.FromString(base64.b64decode(case["proto"]))


def damaged(dtype: Any = dtypes.float32, shape: Any = (2,), **fields: Any) -> TensorProto:
    return TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=shape_to_proto(shape), **fields)


@each_case("case", CASES["read"], lambda case: f"{case['dtype']}-{case['encoding']}")
def test_reads_what_tensorflow_reads(case: dict[str, Any]) -> None:
    array = make_ndarray(proto_of(case))
    dtype = as_dtype(case["dtype"])
    assert list(array.shape) == case["shape"]
    assert array.dtype == np.dtype(dtype.as_numpy_dtype)
    assert array.flags.writeable
    if dtype is dtypes.string:
        assert array.ravel().tolist() == [base64.b64decode(item) for item in case["strings"]]
    else:
        assert array.tobytes() == base64.b64decode(case["data"])


@each_case("case", CASES["read"], lambda case: f"{case['dtype']}-{case['encoding']}")
def test_what_was_read_is_written_and_read_again(case: dict[str, Any]) -> None:
    array = make_ndarray(proto_of(case))
    again = make_ndarray(make_tensor_proto(array, dtype=case["dtype"]))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tolist() == array.tolist() or (array.dtype.hasobject is False and again.tobytes() == array.tobytes())


def test_every_dtype_and_encoding_is_among_the_cases() -> None:
    encodings = {"list", "splat", "continued", "absent", "scalar", "empty", "content"}
    for dtype in dtypes.ALL:
        if dtype.is_numpy_compatible:
            assert {case["encoding"] for case in CASES["read"] if case["dtype"] == dtype.name} == encodings


@each_case("case", CASES["made"], lambda case: f"{case['values']}-{case['dtype']}-{case['shape']}")
def test_writes_what_tensorflow_writes(case: dict[str, Any]) -> None:
    proto = make_tensor_proto(case["values"], dtype=case["dtype"], shape=case["shape"])
    assert proto == proto_of(case)
    assert proto.SerializeToString(deterministic=True) == base64.b64decode(case["proto"])


@given(data=st.data())
def test_round_trip_of_arrays(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(NUMPY_DTYPES))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    size = math.prod(shape) * dtype.size
    raw = data.draw(st.binary(min_size=size, max_size=size))
    if dtype.is_bool:
        raw = bytes(byte & 1 for byte in raw)
    array = np.frombuffer(raw, dtype.as_numpy_dtype).reshape(shape)
    back = make_ndarray(TensorProto.FromString(make_tensor_proto(array).SerializeToString()))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    # Lists pass through Python floats, which do not keep a signalling NaN apart from a quiet one.
    np.testing.assert_array_equal(back.astype(np.complex128), array.astype(np.complex128))


def test_arrays_of_other_layouts_are_written_in_row_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert make_tensor_proto(array.T).tensor_content == array.T.copy().tobytes()
    assert make_tensor_proto(array.astype(">f4")).tensor_content == array.tobytes()
    assert make_ndarray(make_tensor_proto(array.astype(np.complex64).T)).tolist() == array.T.tolist()


def test_one_value_is_continued_and_broadcast_on_demand() -> None:
    assert make_ndarray(make_tensor_proto(7, shape=[2, 2])).tolist() == [[7, 7], [7, 7]]
    assert make_ndarray(make_tensor_proto([1, 2], shape=[4])).tolist() == [1, 2, 2, 2]
    assert make_ndarray(make_tensor_proto([1, 2], shape=[2, 2], allow_broadcast=True)).tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("value", [True, 3, -0.0, math.nan, 1 + 2j, np.float16(2)])
def test_a_large_array_of_one_value_is_one_element_of_an_attribute(value: Any) -> None:
    array = np.full((64, 32), value)
    proto = attribute_tensor(array)
    assert proto.ByteSize() < 100
    assert make_ndarray(proto).tobytes() == array.tobytes()
    array[40, 7] = 0 if value else 1  # one that is not like the others
    assert make_ndarray(attribute_tensor(array)).tobytes() == array.tobytes()
    small = array[:2, :2]
    assert attribute_tensor(small) == make_tensor_proto(small)


def test_a_tensor_proto_stays_itself() -> None:
    proto = make_tensor_proto([1, 2])
    assert make_tensor_proto(proto) is proto


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="Expected Tensor's shape"):
        make_tensor_proto([1, 2], shape=[2, 1], verify_shape=True)
    with pytest.raises(ValueError, match="Too many elements"):
        make_tensor_proto([1, 2, 3], shape=[2])
    with pytest.raises(ValueError, match="None values not supported"):
        make_tensor_proto(None)
    with pytest.raises(ValueError, match="not both allowed"):
        make_tensor_proto(1, shape=[1], verify_shape=True, allow_broadcast=True)
    with pytest.raises(TypeError, match="Expected int32"):
        make_tensor_proto(1.5, dtype=dtypes.int32)
    with pytest.raises(ValueError, match="must be known"):
        make_tensor_proto(1, shape=[-1])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (damaged(tensor_content=b"\0" * 7), "takes 8 bytes, but its tensor_content has 7"),
        (damaged(shape=[2, 2], tensor_content=b"\0" * 8), "takes 16 bytes"),
        (damaged(shape=[0], tensor_content=b"\0"), "takes 0 bytes"),
        (damaged(float_val=[1, 2, 3]), "lists 3"),
        (damaged(shape=[1 << 20, 1 << 20], float_val=[1]), "more than the limit"),
        (damaged(shape=[1 << 40, 1 << 40]), "more than the limit"),
        (damaged(dtypes.string, [1 << 40], string_val=[b"x"]), "more than the limit"),
        (damaged(dtypes.string, [1 << 40], tensor_content=b"x"), "cannot hold"),
        (damaged(dtypes.string, [2], tensor_content=b"\x01\x05a"), "take 8 bytes"),
        (damaged(dtypes.string, [2], tensor_content=b"\x80\x80"), "does not end"),
        (damaged(dtypes.string, [1], tensor_content=b"\x80\x80\x80\x80\x80\x00"), "does not end"),
        (damaged(dtypes.complex64, [1], scomplex_val=[1]), "must hold pairs"),
        (damaged(shape=None, float_val=[1]), "must be known"),
        (damaged(shape=[None], float_val=[1]), "must be known"),
    ],
)
def test_damaged_messages_are_refused(proto: TensorProto, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_ndarray(proto)


@pytest.mark.parametrize("dtype", [dtypes.resource, dtypes.variant])
def test_handles_have_no_arrays(dtype: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported tensor type"):
        make_ndarray(TensorProto(dtype=dtype.as_datatype_enum))


def test_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError):
        make_ndarray(TensorProto())


@pytest.mark.parametrize("dims", [None, [], [2, 3], [None, 0], [None, None]])
def test_shapes_go_both_ways(dims: Any) -> None:
    assert shape_from_proto(shape_to_proto(dims)).dims_tuple == TensorShape(dims).dims_tuple


def test_impossible_shapes_are_refused() -> None:
    dim = TensorShapeProto.Dim
    with pytest.raises(ValueError, match=r"-1 \(unknown\) or more"):
        shape_from_proto(TensorShapeProto(dim=[dim(size=-2)]))
    with pytest.raises(ValueError, match="255 dimensions"):
        shape_from_proto(TensorShapeProto(dim=[dim(size=1)] * 255))
    with pytest.raises(ValueError, match="unknown rank"):
        shape_from_proto(TensorShapeProto(unknown_rank=True, dim=[dim(size=1)]))
