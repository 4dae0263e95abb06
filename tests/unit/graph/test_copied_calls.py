"""Calls of functions in GraphDefs, which become copies of what they call (`graph.copied_calls`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from anabranch import errors
from anabranch.graph import copied_calls
from anabranch.graph.graph import Graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.proto.graph_pb2 import DataType, FunctionDef, GraphDef, NodeDef
from anabranch.session import Session

FLOAT = DataType.DT_FLOAT


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


def node(name: str, op: str, *inputs: str, **types: int) -> NodeDef:
    """A node; `types` are its attributes that are dtypes."""
    made = NodeDef(name=name, op=op, input=inputs)
    for key, value in types.items():
        made.attr[key].type = value  # type: ignore[assignment]
    return made


def constant(name: str, value: float, *controls: str) -> NodeDef:
    made = node(name, "Const", *controls, dtype=FLOAT)
    made.attr["value"].tensor.dtype = FLOAT
    made.attr["value"].tensor.tensor_shape.SetInParent()
    made.attr["value"].tensor.float_val.append(value)
    return made


def call(name: str, function: str, *inputs: str, results: int = 1, op: str = "PartitionedCall") -> NodeDef:
    made = NodeDef(name=name, op=op, input=inputs)
    made.attr["f"].func.name = function
    made.attr["Tin"].list.type.extend([FLOAT] * sum(not text.startswith("^") for text in inputs))
    made.attr["Tout"].list.type.extend([FLOAT] * results)
    return made


def function(name: str, parameters: str, results: dict[str, str], *nodes: NodeDef, effects: str = "") -> FunctionDef:
    made = FunctionDef(node_def=nodes, ret=results, control_ret={each: each for each in effects.split()})
    made.signature.name = name
    made.signature.control_output.extend(effects.split())
    for parameter in parameters.split():
        made.signature.input_arg.add(name=parameter, type=FLOAT)
    for result in results:
        made.signature.output_arg.add(name=result, type=FLOAT)
    return made


def imported(*nodes: NodeDef, functions: list[FunctionDef]) -> Graph:
    message = GraphDef(node=nodes)
    message.library.function.extend(functions)
    with Graph().as_default() as graph:
        import_graph_def(message, name="")
    return graph


DOUBLE = function("double", "x", {"y": "twice:z:0"}, node("twice", "Add", "x", "x", T=FLOAT))


def test_a_call_becomes_its_function() -> None:
    graph = imported(constant("a", 3), call("c", "double", "a"), node("n", "Neg", "c", T=FLOAT), functions=[DOUBLE])
    assert [op.name for op in graph.get_operations()] == ["a", "c/twice", "c", "n"]
    with Session(graph=graph) as session:
        assert session.run(["c:0", "n:0"]) == [6, -6]


def test_calls_in_functions_by_type_and_by_attribute() -> None:
    both = function(
        "both",
        "x y",
        {"first": "inner:output:0", "second": "named:y:0", "third": "y"},
        call("inner", "double", "x"),
        # a node whose type is a function has that function's results by their names
        node("named", "double", "inner:output:0"),
    )
    graph = imported(
        constant("a", 3), constant("b", 5), call("c", "both", "a", "b", results=3), functions=[DOUBLE, both]
    )
    assert {"c/inner/twice", "c/inner", "c/named/twice", "c/named", "c"} < {op.name for op in graph.get_operations()}
    with Session(graph=graph) as session:
        assert session.run(["c:0", "c:1", "c:2"]) == [6, 12, 5]


def test_what_a_call_waits_for_and_who_waits_for_a_call() -> None:
    effect = function(
        "effect", "x", {"y": "x"}, constant("lone", 1), node("seen", "Neg", "lone:output:0", T=FLOAT), effects="seen"
    )
    graph = imported(
        constant("a", 3),
        constant("first", 0),
        call("c", "effect", "a", "^first", op="StatefulPartitionedCall"),
        constant("last", 1, "^c"),
        functions=[effect],
    )
    by_name = {op.name: op for op in graph.get_operations()}
    controls = {name: {before.name for before in op.control_inputs} for name, op in by_name.items()}
    # what begins the copy waits for what the call waits for; the call's end for that and for the effect
    assert controls["c/lone"] == {"first"}
    assert controls["c/seen"] == set()
    assert controls["c"] == {"first", "c/seen"}
    assert controls["last"] == {"c"}
    assert [t.name for t in by_name["c"].inputs] == ["a:0"]


def test_outputs_of_many_are_counted() -> None:
    split = node("parts", "Split", "axis:output:0", "x", T=FLOAT)
    split.attr["num_split"].i = 3
    axis = node("axis", "Const", dtype=DataType.DT_INT32)
    axis.attr["value"].tensor.dtype = DataType.DT_INT32
    axis.attr["value"].tensor.tensor_shape.SetInParent()
    axis.attr["value"].tensor.int_val.append(0)
    thirds = function("thirds", "x", {"y": "difference:z:0"}, axis, split)
    thirds.node_def.append(node("difference", "Sub", "parts:output:2", "parts:output:0", T=FLOAT))
    x = node("x", "Placeholder", dtype=FLOAT)
    with Session(graph=imported(x, call("c", "thirds", "x"), functions=[thirds])) as session:
        assert session.run("c:0", {"x:0": np.arange(6, dtype=np.float32)}).tolist() == [4, 4]


def test_functions_of_any_type_take_that_of_the_call() -> None:
    generic = function("generic", "x", {"y": "n:y:0"}, NodeDef(name="n", op="Neg", input=["x"]))
    generic.node_def[0].attr["T"].placeholder = "T"
    generic.signature.attr.add(name="T", type="type")
    generic.signature.input_arg[0].ClearField("type")
    generic.signature.input_arg[0].type_attr = "T"
    generic.signature.output_arg[0].ClearField("type")
    generic.signature.output_arg[0].type_attr = "T"
    named = node("c", "generic", "a", T=FLOAT)
    with Session(graph=imported(constant("a", 3), named, functions=[generic])) as session:
        assert session.run("c:0") == -3
    with pytest.raises(ValueError, match="attribute 'T' is 'T' of the call, which has none"):
        imported(constant("a", 3), call("c", "generic", "a"), functions=[generic])


def test_names_that_are_taken_and_devices_and_groups() -> None:
    grouped = function(
        "grouped", "x", {"y": "b:y:0"}, node("a", "Neg", "x", T=FLOAT), node("b", "Neg", "a:y:0", T=FLOAT)
    )
    grouped.node_def[1].attr["_class"].list.s.extend([b"loc:@a", b"loc:@elsewhere"])
    called = call("c", "grouped", "v")
    called.device = "/cpu:0"
    graph = imported(constant("v", 3), constant("c/a", 1), called, functions=[grouped])
    assert {"c/a", "c_1/a", "c_1/b", "c"} < {op.name for op in graph.get_operations()}
    copy = graph.get_operation_by_name("c_1/b")
    assert copy.attrs["_class"] == [b"loc:@c_1/a"]
    assert "cpu" in copy.device.lower()


def test_functions_that_only_calls_need_are_not_kept() -> None:
    other = function("other", "x", {"y": "x"})
    graph = imported(constant("a", 3), call("c", "double", "a"), functions=[DOUBLE, other])
    assert list(graph.functions) == ["other"]


@pytest.mark.parametrize(
    ("nodes", "functions", "kind", "message"),
    [
        ([call("c", "none", "a")], [], errors.InvalidArgumentError, "calls the function 'none', which the library"),
        (
            [call("c", "double")],
            [DOUBLE],
            errors.InvalidArgumentError,
            "gives 0 inputs to the function 'double'",
        ),
        ([call("c", "double", "a", "a")], [DOUBLE], errors.InvalidArgumentError, "gives 2 inputs .* takes 1"),
        (
            [call("c", "f", "a")],
            [function("f", "x", {"y": "i:output:0"}, call("i", "f", "x"))],
            errors.UnimplementedError,
            "function 'f' calls itself",
        ),
        (
            [call("c", "f", "a")],
            [
                function("f", "x", {"y": "i:output:0"}, call("i", "g", "x")),
                function("g", "x", {"y": "i:output:0"}, call("i", "f", "x")),
            ],
            errors.UnimplementedError,
            "function '[fg]' calls itself",
        ),
        (
            [call("c", "f", "a")],
            [function("f", "x", {"y": "n:wrong:0"}, node("n", "Neg", "x", T=FLOAT))],
            ValueError,
            "'n:wrong:0' does not exist: Neg has no such output",
        ),
        ([call("c", "f", "a")], [function("f", "x", {"y": "z:y:0"})], ValueError, "'z:y:0' is neither a parameter nor"),
    ],
)
def test_what_is_wrong_is_named(
    nodes: list[NodeDef], functions: list[FunctionDef], kind: type[Exception], message: str
) -> None:
    with Graph().as_default() as graph:
        described = GraphDef(node=[constant("a", 3), *nodes])
        described.library.function.extend(functions)
        with pytest.raises(kind, match=message):
            import_graph_def(described)
        assert not graph.get_operations()


def test_copies_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [function("f0", "x", {"y": "n:y:0"}, node("n", "Neg", "x", T=FLOAT))]
    for i in range(1, 64):
        twice = (call("one", f"f{i - 1}", "x"), call("two", f"f{i - 1}", "one:output:0"))
        levels.append(function(f"f{i}", "x", {"y": "two:output:0"}, *twice))
    with pytest.raises(errors.ResourceExhaustedError, match=r"make up \d{19,} nodes, and 2000000 is the limit"):
        imported(constant("a", 3), call("c", "f63", "a"), functions=levels)
    graph = imported(constant("a", 3), call("c", "f5", "a"), functions=levels[:6])
    count = len(graph.get_operations())
    monkeypatch.setattr(copied_calls, "MOST_NODES", count)
    assert len(imported(constant("a", 3), call("c", "f5", "a"), functions=levels[:6]).get_operations()) == count
    monkeypatch.setattr(copied_calls, "MOST_NODES", count - 1)
    with pytest.raises(errors.ResourceExhaustedError):
        imported(constant("a", 3), call("c", "f5", "a"), functions=levels[:6])


def test_functions_nested_deeply() -> None:
    levels = [DOUBLE]
    for i in range(2000):
        callee = levels[-1].signature.name
        levels.append(function(f"g{i}", "x", {"y": "i:output:0"}, call("i", callee, "x")))
    graph = imported(constant("a", 3), call("c", "g60", "a"), functions=levels[:62])
    with Session(graph=graph) as session:
        assert session.run("c:0") == 6
    # names grow with each level: the copies of two thousand would be two thousand names of six thousand characters
    calls = copied_calls.CopiedCalls({level.signature.name: level for level in levels[:400]})
    assert len(calls.in_function("g398")) == 400
