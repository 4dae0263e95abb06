"""What the differential fuzzer takes for equal, undefined or known: rules that hide too much hide defects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz.comparison import difference, is_something
from tests.fuzz.differences import Disagreement, known_differences
from tests.fuzz.differential import unexplained
from tests.fuzz.examination import Examination
from tests.fuzz.op_rows import rows_by_operation
from tests.fuzz.programs import Node
from tests.fuzz.undefined import repeated, undefined
from tests.fuzz.wire import encode_array

Array = np.ndarray[Any, Any]


def differs(operation: str, inputs: list[Array], got: Array, wanted: Array, output: int = 0, **attrs: Any) -> bool:
    return difference(got, wanted, ignored=undefined(operation, attrs, output, inputs, got)) is not None


def test_only_the_matrix_that_is_not_finite_is_left_out() -> None:
    matrices = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    right = np.zeros((2, 2, 3))
    for place, seen in (((0, 1, 2), True), ((1, 1, 2), False)):
        wrong = right.copy()
        wrong[place] = 5.0
        assert differs("MatrixSolve", [matrices, right], wrong, right) is seen


def test_only_the_pixel_that_is_not_finite_is_left_out() -> None:
    pixels = np.ones((1, 2, 3), np.float32)
    pixels[0, 1, 2] = np.inf
    for place, seen in (((0, 0, 0), True), ((0, 1, 0), False)):
        right = np.ones_like(pixels)
        wrong = right.copy()
        wrong[place] = 7.0
        assert differs("AdjustHue", [pixels, np.float32(0.5)], wrong, right) is seen
    assert not differs("AdjustHue", [np.ones_like(pixels), np.float32(np.nan)], wrong, right)


def test_nan_of_a_convolution_is_left_out_where_something_is_not_finite() -> None:
    right = np.zeros((1, 2, 2, 1), np.float32)
    for given, value, seen in ((np.inf, np.nan, False), (np.inf, 5.0, True), (1.0, np.nan, True)):
        wrong = right.copy()
        wrong[0, 0, 0, 0] = value
        image = np.full((1, 2, 2, 1), given, np.float32)
        assert differs("Conv2D", [image, np.ones((2, 2, 1, 1), np.float32)], wrong, right) is seen


def test_nan_of_a_convolution_is_left_out_on_either_side() -> None:
    ours, theirs = np.zeros((1, 2, 2, 1), np.float32), np.zeros((1, 2, 2, 1), np.float32)
    theirs[0, 0, 0, 0] = np.nan
    filter = np.ones((2, 2, 1, 1), np.float32)
    for value, left_out in ((np.inf, True), (1.0, False)):
        inputs = [np.full_like(ours, value), filter]
        assert undefined("Conv2D", {}, 0, inputs, ours, theirs).any() == left_out


def test_pivots_are_compared_where_both_measures_choose_one() -> None:
    """|3 + 3i| < |5|, but 3 + 3 > 5; in the second matrix the first pivot leaves a choice for the next."""
    clear = np.array([[5, 1, 0], [1, 4, 1], [0, 1, 3]], np.complex64)
    first = np.array([[5, 1, 0], [3 + 3j, 4, 1], [0, 1, 3]], np.complex64)
    second = np.array([[9, 0, 0], [0, 5, 1], [0, 3 + 3j, 3]], np.complex64)
    right = np.zeros((3, 3, 3), np.complex64)
    for i, seen in enumerate([True, False, False]):
        wrong = right.copy()
        wrong[i, 1, 1] = 1
        assert differs("Lu", [np.stack([clear, first, second])], wrong, right) is seen
        assert differs("Lu", [np.stack([clear, first, second])], wrong[:, 1], right[:, 1], output=1) is seen


def test_rows_without_nan_are_searched_alike() -> None:
    rows = np.array([[1, 2, 3], [1, np.nan, 3]], np.float32)
    right = np.array([[3], [3]], np.float32)
    assert differs("TopKV2", [rows, np.int32(1)], np.array([[2], [3]], np.float32), right)
    assert not differs("TopKV2", [rows, np.int32(1)], np.array([[3], [1]], np.float32), right)


def test_zeta_far_below_zero_is_compared_in_double_precision_only() -> None:
    for dtype, seen in (np.float32, False), (np.float64, True):
        places = [np.full(2, 3, dtype), np.array([1, -20.5], dtype)]
        assert differs("Zeta", places, np.ones(2, dtype), np.array([1, 2], dtype)) is seen
        assert differs("Zeta", places, np.ones(2, dtype), np.array([2, 1], dtype))


@pytest.mark.parametrize("target", ["uint8", "int8", "int16", "int32", "int64", "uint64"])
def test_whole_numbers_are_compared_where_they_can_hold_the_value(target: str) -> None:
    limits = np.iinfo(target)
    beyond = 2.0 ** round(np.log2(float(limits.max)))
    values = np.array([0.9, limits.min - 0.5 if limits.bits < 32 else 1.0, beyond, np.nan, -2.0 * beyond])
    right = np.zeros(5, target)
    for place, seen in enumerate([True, True, False, False, False]):
        wrong = right.copy()
        wrong[place] = 1
        assert differs("Cast", [values], wrong, right) is seen
    assert differs("Cast", [np.array([300])], np.array([1], np.uint8), np.array([44], np.uint8))


def test_reserved_outputs_count_where_something_is_trained() -> None:
    one, two = np.float32([1]), np.float32([2])
    for output, training, seen in ((3, True, True), (3, False, False), (1, False, True)):
        assert differs("FusedBatchNormV3", [one], one, two, output, is_training=training) is seen


def test_a_floor_hides_what_is_below_it_only() -> None:
    zero = np.zeros(2)
    assert difference(np.array([1e-17, 0.0]), zero, floor=1e-16) is None
    assert difference(np.array([1e-15, 0.0]) + 1e-9, zero, floor=1e-16) is not None


def test_a_message_of_several_lines_is_read_whole() -> None:
    message = (
        "OutOfRangeError: Graph execution error:\n\nNode 'n16' (type: 'Add', num of outputs: 1) does not have output 3"
    )
    found = Disagreement("refused there only", "n16", "FusedBatchNorm", "-", message, "program")
    assert any(row.covers(found) for row in known_differences())


@pytest.mark.parametrize(("flow", "known"), [("second", True), ("first", False)])
def test_only_the_second_control_flow_may_refuse_the_zeros_of_a_loop(flow: str, known: bool) -> None:
    message = f"LookupError: Gradient explicitly disabled. Reason: b'm'; {flow} control flow"
    found = Disagreement("refused there only", "n1", "GRADIENTS", "-", message, "program")
    assert any(row.covers(found) for row in known_differences()) is known


@pytest.mark.parametrize(("keys", "seen"), [([b"a", b"b"], False), ([b"a", b"b", b"a"], True), ([], False)])
def test_a_key_that_stands_twice_is_seen(keys: list[bytes], seen: bool) -> None:
    assert repeated(keys) is seen


def test_gradients_of_other_maxima_than_those_of_the_data_are_left_out() -> None:
    data, grad = np.arange(8, dtype=np.float32).reshape(1, 2, 4, 1), np.ones((1, 1, 2, 1), np.float32)
    right = np.zeros_like(data)
    for maxima, seen in (([5.0, 7.0], True), ([5.5, 7.5], False)):
        inputs = [data, np.float32(maxima).reshape(1, 1, 2, 1), grad]
        assert differs("MaxPoolGrad", inputs, right + 1, right) is seen


@pytest.mark.parametrize(("maxima", "x", "left_out"), [(9.0, "g", True), (8.0, "g", False), (9.0, "other", False)])
def test_gradients_through_other_maxima_are_left_out(maxima: float, x: str, left_out: bool) -> None:
    """Only those with respect to what the operation that was told them depends on."""
    arrays = {"data": np.arange(1, 9).reshape(1, 2, 4, 1), "told": np.full((1, 1, 1, 1), maxima), "g": np.ones(1)}
    fed = {name: encode_array(np.asarray(value, np.float32)) for name, value in {**arrays, "other": 1.0}.items()}
    names = dict(zip(("orig_input", "orig_output", "grad"), ("data:0", "told:0", "g:0"), strict=True))
    nodes: list[Node] = [{"id": name, "kind": "placeholder", "dtype": "float32", "shape": None} for name in fed]
    nodes.append({"id": "n1", "kind": "op", "op": "MaxPoolGradGrad", "inputs": names, "attrs": {}})
    nodes.append({"id": "n2", "kind": "gradients", "ys": ["n1:0"], "xs": [f"{x}:0"]})
    program = {"nodes": nodes, "feeds": [fed], "index": 0}
    assert Examination(program, None, None).allowed.open("n2:0", {}, 0, np.zeros(1)).all() == left_out  # type: ignore[arg-type]


def test_zeros_and_what_nan_makes_of_them_are_no_gradient() -> None:
    assert not is_something(np.array([0.0, np.nan]))
    assert is_something(np.array([0.0, 1e-30, np.nan]))
    assert is_something(np.array([np.inf]))


def test_labels_are_left_out_where_two_are_equally_likely() -> None:
    values = np.array([0, 1, 0])
    for logits, seen in (([1.0, 2.0, 2.0], True), ([2.0, 2.0, 1.0], False)):  # the last label is the blank
        inputs = [np.array([[logits]]), np.array([1], np.int32)]
        assert differs("CTCBeamSearchDecoder", inputs, values, 1 - values, output=2, top_paths=2) is seen
        probabilities = np.array([[-1.0, -1.0]])
        assert differs("CTCBeamSearchDecoder", inputs, probabilities, probabilities - 1, output=6, top_paths=2)


def test_no_random_program_averages_over_channels() -> None:
    attrs = [case.attrs for case in rows_by_operation()["AvgPool"]]
    assert all(a["ksize"][1 if a.get("data_format") == "NCHW" else 3] == 1 for a in attrs)


def test_gradients_for_labels_are_open_through_the_second_output_only() -> None:
    fed = {name: encode_array(np.ones((1, 2), np.float32)) for name in ("labels", "features")}
    nodes: list[Node] = [{"id": name, "kind": "placeholder", "dtype": "float32", "shape": None} for name in fed]
    inputs = {name: f"{name}:0" for name in fed}
    nodes.append({"id": "n1", "kind": "op", "op": "SoftmaxCrossEntropyWithLogits", "inputs": inputs, "attrs": {}})
    for name, ys in (("n2", "n1:0"), ("n3", "n1:1"), ("n4", "n2:0")):
        nodes.append({"id": name, "kind": "gradients", "ys": [ys], "xs": list(inputs.values())})
    examination = Examination({"nodes": nodes, "feeds": [fed], "index": 0}, None, None)  # type: ignore[arg-type]
    allowed = examination.allowed
    found = [bool(allowed.open(f"{n}:{i}", {}, 0, np.zeros(1)).all()) for n in ("n2", "n3", "n4") for i in (0, 1)]
    assert found == [False, False, True, False, True, False]


def test_only_nan_is_open_of_a_power_of_zero() -> None:
    answer = np.array([np.nan, 1.0])
    for base, wanted in ((0.0, [True, False]), (1.0, [False, False])):
        fed = {"b": encode_array(np.array([base, 2])), "e": encode_array(np.zeros(2))}
        nodes: list[Node] = [{"id": name, "kind": "placeholder", "dtype": "float64", "shape": None} for name in fed]
        nodes.append({"id": "n1", "kind": "op", "op": "Pow", "inputs": {"x": "b:0", "y": "e:0"}, "attrs": {}})
        nodes.append({"id": "n2", "kind": "gradients", "ys": ["n1:0"], "xs": ["b:0"]})
        examination = Examination({"nodes": nodes, "feeds": [fed], "index": 0}, None, None)  # type: ignore[arg-type]
        assert (examination.allowed.open("n2:0", {}, 0, answer) & np.ones(2, bool)).tolist() == wanted


def test_sums_of_nothing_and_far_sigmoids_are_left_out() -> None:
    none, rows = np.zeros(0, np.int32), np.int32([0])
    grad, one = np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)
    for indices, seen in ((none, False), (rows, True)):
        assert differs("SparseSegmentMeanGrad", [grad, indices, indices, np.int32(3)], 2 * one, one) is seen
    for y, seen in ((1e30, False), (1e3, True)):
        assert differs("SigmoidGrad", [y * one, one], 2 * one, one) is seen


def test_what_follows_from_a_known_shape_is_explained() -> None:
    nodes = [{"id": "x", "kind": "placeholder"}]
    nodes += [{"id": f"n{i}", "kind": "op", "inputs": {"x": x}} for i, x in ((1, "x:0"), (2, "n1:0"), (3, "x:0"))]  # type: ignore[dict-item]
    shape, follows, other = (Disagreement("static shape", f"n{i}", "Neg", "float32", "", "program") for i in (1, 2, 3))
    refused, value = (Disagreement(kind, "n2", "Neg", "-", "", "program") for kind in ("refused there only", "value"))
    found = [shape, follows, other, refused, value]
    assert unexplained({"nodes": nodes}, found, lambda d: d is shape) == [other, value]
    assert unexplained({"nodes": nodes}, found, lambda d: False) == found


def test_gradients_of_what_has_a_known_other_value_are_explained() -> None:
    nodes = [{"id": "x", "kind": "placeholder"}]
    nodes += [{"id": f"n{i}", "kind": "op", "inputs": {"x": "x:0"}} for i in (1, 2)]  # type: ignore[dict-item]
    nodes += [{"id": f"n{i}", "kind": "gradients", "ys": [y], "xs": ["x:0"]} for i, y in ((3, "n1:0"), (4, "n2:0"))]  # type: ignore[dict-item]
    value = Disagreement("value", "n1", "MatrixSquareRoot", "float32", "", "program")
    follows, other = (Disagreement("refused there only", n, "GRADIENTS", "-", "", "program") for n in ("n3", "n4"))
    found = [value, follows, other]
    assert unexplained({"nodes": nodes}, found, lambda d: d is value) == [other]
    assert unexplained({"nodes": nodes}, found, lambda d: False) == found
