"""What an examination takes for known or explained, without either side: a stand-in says what is refused."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from tests.fuzz.comparison import ROUNDING, TOLERANCE, rounded
from tests.fuzz.differences import Disagreement, known_differences
from tests.fuzz.examination import Examination
from tests.fuzz.given_values import precisions
from tests.fuzz.outcomes import Graph, Outcome, refused_type
from tests.fuzz.programs import Node
from tests.fuzz.sides import Side
from tests.fuzz.undefined import two_zeros
from tests.fuzz.unneeded import needing, refused_within
from tests.fuzz.wire import encode_array


class RefusingSide:
    """Refuses to run some tensors, and gives 1.0 for the others."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.runs: list[tuple[list[str], set[str]]] = []

    def ask(self, what: str, **given: Any) -> dict[str, Any]:
        if what == "open":
            return {"session": 0}
        self.runs.append((given["fetches"], set(given["feeds"])))
        bad = self.refused & set(given["fetches"])
        if bad:
            return {"error": ["InvalidArgumentError", "no"], "node": min(bad).rpartition(":")[0]}
        return {"values": [encode_array(np.float32(1)) for _ in given["fetches"]]}


def operation(name: str, op: str, **inputs: str) -> Node:
    return {"id": name, "kind": "op", "op": op, "inputs": inputs, "attrs": {}}


X: Node = {"id": "x", "kind": "placeholder", "dtype": "float32", "shape": []}
GRADIENTS: Node = {"id": "n3", "kind": "gradients", "ys": ["n2:0"], "xs": ["x:0"]}


def examination(*nodes: Node, second_flow: bool = True) -> Examination:
    feeds = [{"x": encode_array(np.float32(2))}] * 2
    program = {"nodes": [X, *nodes], "feeds": feeds, "index": 0, "control_flow_v2": second_flow}
    side = cast("Side", RefusingSide())
    return Examination(program, side, side)


def graph(found: Examination, side: RefusingSide, *names: str) -> Graph:
    return Graph(cast("Side", side), 0, "init", {f"{n}:0": f"{n}:0" for n in ("x", *names)}, genuine=True)


UNEQUAL = "ValueError: Dimensions must be equal, but are 5 and 6 for 'n_grad/add_1}} = AddV2[T=DT_DOUBLE]"
NO_FACTOR = "InvalidArgumentError: Cholesky decomposition was not successful. The input might not be valid."


@pytest.mark.parametrize(
    ("kind", "operation", "message", "known"),
    [
        ("no gradient", "GRADIENTS", "n3:0: None there, not zero, with respect to COND", 1),
        ("no gradient", "GRADIENTS", "n3:0: None here, not zero, with respect to COND", 0),
        ("value", "GRADIENTS", "n3:0 in step 0: 1, expected 2; order 2, with respect to COND", 1),
        ("value", "GRADIENTS", "n3:0 in step 0: 1, expected 2; order 1, with respect to COND", 0),
        ("no gradient", "GRADIENTS", "n3:0: None there, not zero; order 1, second, used as PadV2.constant_values", 1),
        ("no gradient", "GRADIENTS", "n3:0: None there, not zero; order 1, second, used as PadV2.input", 0),
        ("no gradient", "GRADIENTS", "n3:0: None there, not zero; order 1, through FusedBatchNormGradV3 in a loop", 1),
        ("no gradient", "GRADIENTS", "n3:0: None here, not zero; order 1, through FusedBatchNormGradV3 in a loop", 0),
        ("value", "LRN", "n1:0 in step 0: at [0] np.float32(0.6), expected np.float32(nan)", 1),
        ("value", "LRN", "n1:0 in step 0: at [0] np.float32(nan), expected np.float32(0.6)", 0),
        ("no gradient", "GRADIENTS", "n3:0: None here, not zero; order 2, first, with respect to RGBToHSV", 1),
        ("no gradient", "GRADIENTS", "n3:0: None here, not zero; order 1, first, with respect to RGBToHSV", 0),
        ("refused there only", "Einsum", "InvalidArgumentError: Expecting 1 or 2 input subscripts in equation", 1),
        ("refused there only", "Einsum", "InvalidArgumentError: Expected dimension 3 at axis 1", 0),
        ("value", "StringUpper", r"n1:0 in step 0: at [0] b'A\x00b', expected b'A'", 1),
        ("value", "StringUpper", "n1:0 in step 0: at [0] b'Ab', expected b'AB'", 0),
        ("refused there only", "Reverse", "InvalidArgumentError: Invalid input first dimension. Found 0.", 1),
        ("refused there only", "ReverseV2", "InvalidArgumentError: Invalid input first dimension. Found 0.", 0),
        ("refused here only", "Cholesky", f"{NO_FACTOR}\n at a.py; there it has no factor", 1),
        ("refused there only", "GRADIENTS", f"{UNEQUAL}(n_grad/mul_5, n_grad/Real)", 1),
        ("refused there only", "GRADIENTS", f"{UNEQUAL}(n_grad/mul_5, n_grad/Imag)", 0),
        ("refused here only", "Cholesky", NO_FACTOR, 0),
        ("refused here only", "CholeskyGrad", f"{NO_FACTOR}; there it has no factor", 0),
        ("refused there only", "GatherNd", "Requested more than 0 entries, but params is empty.  Params shape: [0]", 1),
        ("refused there only", "GatherNd", "indices[0] = [3] does not index into param shape [2]", 0),
        ("refused there only", "TensorScatterAdd", "Indices and updates specified for empty output shape", 1),
        ("refused there only", "TensorScatterAdd", "indices[0] = [3] does not index into shape [2]", 0),
        ("refused there only", "ScatterNd", "Shape must be rank 0 for 'n1' with input shapes: [2], [2,1], [].", 0),
        ("died", "AvgPoolGrad", "tensorflow died (status -11); it printed: ", 1),
        ("died", "AvgPoolGrad", "anabranch died (status -11); it printed: ", 0),
        ("refused here only", "ParseExample", "could not parse a: Error parsing message with type 'E'", 1),
        ("refused here only", "ParseExample", "Key: n. Number of values 2 is not 1", 0),
    ],
)  # fmt: skip
def test_rows_cover_what_they_name_only(kind: str, operation: str, message: str, known: int) -> None:
    found = Disagreement(kind, "n1", operation, "-", message, "program")
    assert any(row.covers(found) for row in known_differences()) is bool(known)


def test_an_operation_in_a_body_is_named_by_the_refusal() -> None:
    message = "ValueError: Shapes must be equal rank for '{{node n6/n9}} = MatrixSetDiagV3[T=DT_FLOAT](a, b)'"
    assert refused_type(message) == "MatrixSetDiagV3"
    assert refused_type("InvalidArgumentError: AvgPoolGrad cannot take these inputs: n1:0 (4,)") == "AvgPoolGrad"
    assert refused_type("InvalidArgumentError: no\n\t [[{{node n6/TensorListStack}}]]") is None
    found = examination({"id": "n6", "kind": "cond", "predicate": "x:0"})
    found._disagree("refused there only", "n6", message, "program")
    found._disagree("refused there only", "n6", "no", "program")
    assert [d.operation for d in found.result.disagreements] == ["MatrixSetDiagV3", "COND"]


def test_a_node_counts_as_refused_there_only_if_it_is_not_refused_here_when_fetched() -> None:
    """Here the node computed from it may have failed first."""
    found = examination(operation("n1", "Neg", x="x:0"), operation("n2", "Neg", x="n1:0"))
    there = graph(found, RefusingSide("n1:0"), "n1", "n2")
    outcomes = Outcome([], {"n2": "InvalidArgumentError: no"}), Outcome([], {"n1": "InvalidArgumentError: no"})
    for refused, disagreements in (("n1:0", 0), ("n2:0", 1)):
        found.result.disagreements.clear()
        ours = graph(found, RefusingSide(refused), "n1", "n2")
        found._compare_refusals({}, {}, *outcomes, "program", ours, there)
        assert len(found.result.disagreements) == disagreements


@pytest.mark.parametrize(("dies_without", "deadly"), [(False, "n1"), (True, "n2")])
def test_what_writes_beyond_its_memory_is_at_fault_wherever_the_process_dies(
    monkeypatch: pytest.MonkeyPatch, dies_without: bool, deadly: str
) -> None:
    found = examination(operation("n1", "AvgPoolGrad", grad="x:0"), operation("n2", "Neg", x="x:0"))
    monkeypatch.setattr(found, "_dies", lambda nodes: len(nodes) == 3 or (dies_without and nodes[-1]["id"] == "n2"))
    assert found._deadly_node() == deadly


@pytest.mark.parametrize(("second_flow", "said"), [(False, ", through FusedBatchNormGradV3 in a loop"), (True, "")])
def test_a_missing_gradient_names_what_tensorflow_takes_from_a_tape(second_flow: bool, said: str) -> None:
    loop = {
        "id": "n2",
        "kind": "map",
        "elements": "x:0",
        "dtype": "float32",
        "body": {
            "parameters": ["n4"],
            "nodes": [operation("n5", "FusedBatchNormGradV3", x="n4:0")],
            "outputs": ["n5:0"],
        },
    }
    assert examination(loop, GRADIENTS, second_flow=second_flow)._of("n3:0") == said


def test_a_missing_gradient_names_the_use_of_what_it_is_for() -> None:
    pad = operation("n2", "PadV2", input="n1:0", paddings="p:0", constant_values="x:0")
    assert examination(pad, GRADIENTS)._of("n3:0") == ", used as PadV2.constant_values"
    beside = operation("n4", "Neg", x="x:0")
    assert examination(pad, beside, GRADIENTS)._of("n3:0") == ", used as PadV2.constant_values"
    both = operation("n2", "PadV2", input="x:0", paddings="p:0", constant_values="x:0")
    assert examination(both, GRADIENTS)._of("n3:0") == ""


def test_a_decomposition_refused_here_is_known_where_tensorflow_finds_no_factor() -> None:
    found = examination(operation("n1", "Cholesky", input="x:0"), operation("n2", "Neg", x="x:0"))
    ours, there = graph(found, RefusingSide("n1:0"), "n1", "n2"), graph(found, RefusingSide(), "n1", "n2")
    for factor, lacking in ((np.eye(2), False), (np.full((2, 2), np.nan), True), (0j * np.eye(2), True)):
        there.side.ask = lambda what, value=factor, **given: (  # type: ignore[method-assign, misc]
            {"session": 0} if what == "open" else {"values": [encode_array(value)]}
        )  # fmt: skip
        assert bool(found._without_factor(ours, there, "n1")) is lacking
    assert found._without_factor(ours, there, "n2") == ""


def test_gradients_are_left_to_the_node_that_is_refused_when_it_runs() -> None:
    found = examination(operation("n1", "Neg", x="x:0"), operation("n2", "Neg", x="n1:0"), GRADIENTS)
    for refused, left in (("n1:0", {"n3"}), ("other:0", set())):
        side = RefusingSide(refused)
        assert found._gradients_of_refused(graph(found, side, "n1", "n2"), {"n2", "n3"}) == left


def test_a_node_counts_as_refused_there_only_if_it_is_refused_alone() -> None:
    found = examination(operation("n1", "Neg", x="x:0"), operation("n2", "Neg", x="x:0"))
    refusals = {"n1": "no", "n2": "no"}
    alone, beside = RefusingSide("n1:0"), RefusingSide()
    assert found._refuses_alone(graph(found, alone, "n1", "n2"), "n1", refusals)
    assert not found._refuses_alone(graph(found, beside, "n1", "n2"), "n1", refusals)
    assert found._refused_when_fetched(graph(found, alone, "n1", "n2"), "n1")
    assert not found._refused_when_fetched(graph(found, beside, "n1", "n2"), "n1")


def test_what_two_nodes_are_refused_for_is_said_of_each() -> None:
    """An error that names no node of the program is not the message of the node that is found instead."""
    found = examination(operation("n1", "Neg", x="x:0"))
    side = RefusingSide("n1:0")
    side.ask = lambda what, **given: (  # type: ignore[method-assign]
        {"session": 0} if what == "open" else
        {"error": ["E", "of another" if len(given["fetches"]) > 1 else "its own"], "node": None}
    )  # fmt: skip
    outcome = found._steps(graph(found, side, "n1"), ["n1:0", "x:0"])
    assert outcome.refusals.get("n1", "").startswith("E: its own")


def test_small_numbers_are_compared_where_rounding_is_smaller() -> None:
    found = examination(operation("n1", "Erfinv", x="x:0"), operation("n2", "Neg", x="x:0"), GRADIENTS)
    large = [np.full(2, 2.0**24, np.float32)]
    assert found.allowed.least("n1:0", large, "float32") == 2.0**-24
    assert found.allowed.least("n2:0", large, "float32") == 0
    logarithm = examination(operation("n1", "MatrixLogarithm", input="x:0"))
    assert logarithm.allowed.least("n1:0", large, "complex64") == 8 * 2.0**-24
    assert found.allowed.least("n3:0", large, "float32") == 8 * 2**0.5
    second = examination(operation("n2", "Neg", x="x:0"), GRADIENTS, {**GRADIENTS, "id": "n4", "ys": ["n3:0"]})
    assert second.allowed.least("n4:0", large, "float32") == 32 * 2**0.5
    assert found.allowed.tolerance("n3:0", [np.float32([1])], "float32", {"n2": "float16"}) == 1e-2
    assert found.allowed.tolerance("n2:0", [np.float16([1])], "float32", {}) is None
    assert found.allowed.tolerance("n3:0", [np.float16([1])], "float32", {}) == 1e-2


def test_control_flow_is_as_rounded_as_what_is_of_single_precision_there() -> None:
    inner = operation("n2", "CTCLoss", inputs="x:0")
    branch = {"parameters": [], "nodes": [inner], "outputs": ["n2:0"]}
    conditional = {"id": "n1", "kind": "cond", "predicate": "x:0", "then": branch, "else": branch}
    of_it = {**GRADIENTS, "id": "n3", "ys": ["n1:0"]}
    found = examination(conditional, of_it, operation("n4", "CTCLoss", inputs="x:0")).allowed
    wanted = TOLERANCE["float32"], TOLERANCE["float32"], None, None
    asked = ("n1", "float64"), ("n3", "float64"), ("n4", "float64"), ("n1", "int32")
    assert tuple(found.tolerance(f"{name}:0", [np.ones(1)], dtype, {}) for name, dtype in asked) == wanted


def test_a_node_is_asked_again_with_our_values_for_what_changes_the_state() -> None:
    """In the steps before, what is given includes the node itself: a variable may have been changed by it."""
    nodes: list[Node] = [
        {"id": "v", "kind": "variable", "value": encode_array(np.float32(1)), "resource": True},
        operation("n1", "Tanh", x="v:0"),
        operation("n2", "Exp", x="v:0"),
        operation("n4", "Neg", x="x:0"),
        {"id": "u", "kind": "update", "variable": "v", "method": "assign", "inputs": ["n1:0"], "control": ["v"]},
    ]
    found, side = examination(*nodes), RefusingSide()
    there = graph(found, side, "v", "n1", "n2", "n4", "u")
    values = {f"{name}:0": np.float32(1) for name in ("n1", "n2", "n4", "u", "v")}
    found.given.answers(there, Outcome([values, values]), "n2:0", 1)
    assert side.runs[1] == (["n2:0"], {"x:0", "v:0"})
    side.runs.clear()
    found.given.answers(there, Outcome([values, values]), "u:0", 1)
    assert side.runs[1] == (["u:0"], {"x:0", "n1:0"})
    assert side.runs[2] == (["u:0", "u:0"], {"x:0", "n1:0"})


def test_a_change_that_is_refused_is_not_asked_for_again() -> None:
    nodes: list[Node] = [
        {"id": "v", "kind": "variable", "value": encode_array(np.float32(1)), "resource": True},
        {"id": "u", "kind": "update", "variable": "v", "method": "assign", "inputs": ["x:0"], "control": ["v"]},
        {"id": "w", "kind": "update", "variable": "v", "method": "assign", "inputs": ["x:0"], "control": ["u"]},
    ]
    found, side = examination(*nodes), RefusingSide("u:0")
    there = graph(found, side, "v", "u", "w")
    values = {f"{name}:0": np.float32(1) for name in ("v", "w")}
    assert not isinstance(found.given.answers(there, Outcome([values, values]), "w:0", 1), str)


def test_a_gradient_of_what_is_refused_is_compared_by_that() -> None:
    found = examination(operation("n1", "Neg", x="x:0"), operation("n2", "Neg", x="n1:0"), GRADIENTS)
    for refused_here, disagreements in (("other:0", ["n1"]), ("n1:0", [])):
        found.result.disagreements.clear()
        ours, there = (graph(found, RefusingSide(*r), "n1", "n2", "n3") for r in ((refused_here,), ("n1:0", "n3:0")))
        outcomes = Outcome([], {}), Outcome([], {"n3": "InvalidArgumentError: no"})
        found._compare_refusals({}, {}, *outcomes, "program", ours, there)
        assert [d.node for d in found.result.disagreements] == disagreements
    found._compare_refusals({}, {}, *outcomes, "program", ours, graph(found, RefusingSide("n3:0"), "n1", "n2", "n3"))
    assert [d.node for d in found.result.disagreements] == ["n3"]


def test_what_no_output_of_a_branch_needs_is_asked_for() -> None:
    """The outputs wait for it then, through every block around it."""
    inner: Node = {**operation("n5", "Neg", x="x:0")}
    loop: Node = {
        "id": "n4",
        "kind": "fold",
        "elements": "x:0",
        "start": "x:0",
        "body": {"parameters": ["n6", "n7"], "nodes": [inner], "outputs": ["n6:0"]},
    }
    node: Node = {
        "id": "n3",
        "kind": "cond",
        "predicate": "x:0",
        "then": {"parameters": [], "nodes": [], "outputs": ["x:0"]},
        "else": {"parameters": [], "nodes": [loop], "outputs": ["x:0"]},
    }
    assert refused_within(node, "InvalidArgumentError: no\n\t [[{{node n3/n4/while/n5}}]]") == "n5"
    assert refused_within(node, "InvalidArgumentError: no\n\t [[{{node n3/Switch}}]]") is None
    (changed,) = needing({"nodes": [node]}, "n3", "n5")["nodes"]
    assert changed["then"] == node["then"]
    (within_loop, waiting) = changed["else"]["nodes"]
    assert waiting["control"] == ["n4"]
    assert changed["else"]["outputs"] == [f"{waiting['id']}:0"]
    assert within_loop["body"]["nodes"][1]["control"] == ["n5"]


def test_numbers_near_0_are_compared_to_the_rounding_of_1_where_tensorflow_adds_1_to_them() -> None:
    branch = {"parameters": [], "nodes": [operation("n5", "Selu", features="x:0")], "outputs": ["n5:0"]}
    found = examination({"id": "n1", "kind": "cond", "predicate": "x:0", "then": branch, "else": branch})
    assert found.allowed.least("n1:0", [], "float32") == 8 * 2.0**-24
    assert found.allowed.least("n1:0", [], "int32") == 0


def test_what_was_cast_is_as_precise_as_what_it_was_cast_from() -> None:
    """A float64 made of a float32 is given as one of two numbers that differ as float32 do."""
    narrow: Node = {"id": "f", "kind": "placeholder", "dtype": "float32", "shape": []}
    wide: Node = {"id": "d", "kind": "placeholder", "dtype": "float64", "shape": []}
    nodes = [narrow, wide, operation("c", "Cast", x="f:0"), operation("s", "AddV2", x="c:0", y="d:0")]
    feeds = [{"f": encode_array(np.float32(2)), "d": encode_array(np.float64(2))}]
    values = {"c:0": np.asarray(2.0), "s:0": np.asarray(4.0)}
    assert precisions({"nodes": nodes, "feeds": feeds}, values, 0) == {"c": "float32", "s": "float32"}


def test_rounding_of_what_was_cast_is_that_of_the_lower_precision() -> None:
    given, random = np.full(100, 3.0), np.random.default_rng(1)
    assert 1e-8 < np.abs(rounded(given, random, ROUNDING["float32"]) / given - 1).min() < 1e-6
    assert np.abs(rounded(given, random) / given - 1).max() < 1e-15


def test_zeros_of_both_signs_are_noticed_in_half_precision_alone() -> None:
    both = np.array([0.0, 1.0, -0.0])
    assert two_zeros("UniqueV2", [both.astype(np.float16)])
    assert not two_zeros("UniqueV2", [both.astype(np.float32)])
    assert not two_zeros("Where", [both.astype(np.float16)])
    assert not two_zeros("Unique", [both[:2].astype(np.float16)])
    assert not two_zeros("Unique", [both[1:].astype(np.float16)])


def test_a_message_may_name_a_node_within_a_loop() -> None:
    body = {"parameters": [], "nodes": [operation("n5", "DepthwiseConv2dNative", input="x:0")], "outputs": ["n5:0"]}
    found = examination({"id": "n1", "kind": "while", "limit": "x:0", "start": [], "body": body})
    for message in ("not for this layout {{node n5}}", "not for this layout [[{{node n1/body/n5}}]]"):
        found._disagree("refused there only", "n1", message, "program")
    assert {each.operation for each in found.result.disagreements} == {"DepthwiseConv2dNative"}
    found._disagree("refused there only", "n1", "not so {{node n9}}", "program")
    assert found.result.disagreements[-1].operation == "WHILE"
