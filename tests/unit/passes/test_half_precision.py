"""Which operations are converted to half precision, and where casts stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.registry import all_op_defs
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.ops.half_precision import TYPES_BY_CATEGORY
from anabranch.passes.fold import fold
from anabranch.passes.half_precision import convert_to_half
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify


def placeholder(name: str, dtype: str = "float32") -> Any:
    return raw.Placeholder(dtype=dtype, shape=(4, 4), name=name)


def converted(fetches: list[Any], feeds: list[Any]) -> tuple[StepGraph, dict[str, str]]:
    """The step in bfloat16, and the dtype of each of its operations on floats."""
    step, choices = convert_to_half(fold(prune(fetches, [], feeds)), dtypes.bfloat16)
    verify(step, "half")
    return step, {choice.name: choice.dtype.name for choice in choices}


def casts(step: StepGraph) -> list[str]:
    return [op.name for op in step.operations if op.type == "Cast"]


def test_the_lists_name_types_that_exist_once_and_compute_in_t() -> None:
    listed = [name for names in TYPES_BY_CATEGORY.values() for name in names]
    assert len(set(listed)) == len(listed)
    registered = all_op_defs()
    assert set(listed) <= set(registered)
    assert all("T" in registered[name].attrs for name in listed)


def test_a_product_takes_casts_and_its_fetch_is_float32() -> None:
    x, y = placeholder("x"), placeholder("y")
    step, kinds = converted([raw.MatMul(x, y, name="product")], [x, y])
    assert kinds == {"product": "bfloat16"}
    assert casts(step) == ["product/as_bfloat16", "product/as_bfloat16_1", "product/as_float32"]
    assert step.fetches[0].dtype is dtypes.float32


def test_a_tensor_is_cast_once() -> None:
    x = placeholder("x")
    product = raw.MatMul(x, x)
    step, _ = converted([raw.MatMul(product, x)], [x])
    assert len(casts(step)) == 2


def test_what_stands_it_is_converted_between_products_only() -> None:
    x = placeholder("x")
    before = raw.Tanh(x, name="before")
    between = raw.Tanh(raw.MatMul(before, before), name="between")
    behind = raw.Tanh(raw.MatMul(between, between), name="behind")
    _, kinds = converted([behind], [x])
    assert (kinds["before"], kinds["between"], kinds["behind"]) == ("float32", "bfloat16", "float32")


def test_what_moves_values_is_converted_beside_products() -> None:
    x = placeholder("x")
    product = raw.MatMul(raw.Relu(x, name="before"), x)
    _, kinds = converted([raw.Reshape(product, [16], name="behind"), raw.Relu(raw.Exp(x), name="apart")], [x])
    assert (kinds["before"], kinds["behind"], kinds["apart"]) == ("bfloat16", "bfloat16", "float32")


def test_what_works_on_an_exponential_stays() -> None:
    x = placeholder("x")
    ratio = raw.Mul(raw.Exp(raw.MatMul(x, x)), 2.0, name="ratio")
    _, kinds = converted([raw.MatMul(ratio, x)], [x])
    assert kinds["Exp"] == kinds["ratio"] == "float32"
    assert kinds["MatMul"] == kinds["MatMul_1"] == "bfloat16"


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64", "int32"])
def test_other_dtypes_are_untouched(dtype: str) -> None:
    x = placeholder("x", dtype)
    before = prune([raw.MatMul(x, x)], [], [x])
    step, choices = convert_to_half(before, dtypes.bfloat16)
    assert step is before
    assert choices == []


def test_a_step_without_floats_is_untouched() -> None:
    before = prune([raw.Placeholder(dtype="int32", name="i")], [], [])
    assert convert_to_half(before, dtypes.float16)[0] is before


def test_an_empty_step_is_untouched() -> None:
    x = placeholder("x")
    before = prune([x], [], [x])
    assert convert_to_half(before, dtypes.float16)[0] is before


def test_constants_are_converted_while_planning() -> None:
    x = placeholder("x")
    weights = convert_to_tensor(np.full((4, 4), 1 + 2**-12, np.float32))
    step, _ = converted([raw.MatMul(x, weights)], [x])
    (product,) = [op for op in step.operations if op.type == "MatMul"]
    assert product.inputs[1].known.dtype == dtypes.bfloat16.as_numpy_dtype
    assert (product.inputs[1].known == 1).all()


def test_a_fed_product_is_not_converted_where_it_is_taken() -> None:
    x = placeholder("x")
    product = raw.MatMul(x, x, name="product")
    step, _ = converted([raw.MatMul(product, product, name="last")], [product])
    assert casts(step) == ["last/as_bfloat16", "last/as_float32"]


def test_moments_of_a_batch_normalization_stay_float32() -> None:
    x = raw.Placeholder(dtype="float32", shape=(2, 4, 4, 3), name="x")
    image = raw.Conv2D(x, np.ones((1, 1, 3, 3), np.float32), strides=[1, 1, 1, 1], padding="SAME")
    ones, none = np.ones(3, np.float32), np.zeros(0, np.float32)
    normal = raw.FusedBatchNormV3(image, ones, ones, none, none)
    last = raw.Conv2D(normal.y, np.ones((1, 1, 3, 3), np.float32), strides=[1, 1, 1, 1], padding="SAME")
    step, _ = converted([last, normal.batch_mean], [x])
    (node,) = [op for op in step.operations if op.type == "FusedBatchNormV3"]
    assert [t.dtype.name for t in node.inputs] == ["bfloat16", *["float32"] * 4]
    assert [t.dtype.name for t in node.outputs[:3]] == ["bfloat16", "float32", "float32"]


def test_control_edges_and_the_graph_that_was_given_stay() -> None:
    x = placeholder("x")
    with get_default_graph().control_dependencies([raw.NoOp(name="before")]):
        product = raw.MatMul(x, x, name="product")
    with get_default_graph().control_dependencies([product.op]):
        last = raw.Neg(x, name="last")
    before = prune([last], [], [x])
    kinds = [(op.name, [t.dtype.name for t in op.outputs]) for op in before.operations]
    step, _ = convert_to_half(before, dtypes.bfloat16)
    verify(step, "half")
    nodes = {op.name: op for op in step.operations}
    assert nodes["product"].control_inputs == (nodes["before"],)
    assert nodes["last"].control_inputs == (nodes["product"],)
    assert [(op.name, [t.dtype.name for t in op.outputs]) for op in before.operations] == kinds


# ---------------------------------------------------------------------- gradients that are tied together
def test_gradients_of_one_operation_are_converted_one_by_one() -> None:
    """One goes to another product, in half precision; the other is fetched, and was float32 all along."""
    x = placeholder("x")
    product = raw.MatMul(x, x)
    to_data, to_vector = raw.IdentityN([raw.Tanh(product), raw.Exp(x)], name="tie")
    step, kinds = converted([raw.MatMul(to_data, x), to_vector], [x])
    assert kinds["tie/output_0"] == "bfloat16"
    assert kinds["tie/output_1"] == "float32"
    assert kinds["Tanh"] == "bfloat16"
    assert not any(op.type == "IdentityN" for op in step.operations)


def test_a_tie_that_something_waits_for_stays() -> None:
    x = placeholder("x")
    product = raw.MatMul(x, x)
    tie = raw.IdentityN([product, raw.Exp(x)], name="tie")
    with get_default_graph().control_dependencies([tie[0].op]):
        later = raw.Tanh(x, name="later")
    step, _ = converted([raw.MatMul(tie[0], x), later], [x])
    assert [op.name for op in step.operations if op.type == "IdentityN"] == ["tie"]
