"""`tf.raw_ops`: functions of keywords, and a stub that tells of them what the registry knows."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re

import pytest

import anabranch as tf
from anabranch.core.registry import all_op_defs
from anabranch.frontend import raw_functions, raw_ops
from anabranch.graph.building import OpFunction
from anabranch.graph.call_types import call_names
from anabranch.graph.older_types import older_names
from anabranch.tools import raw_ops_stub

OPERATIONS = raw_functions.public_operations()


def test_the_stub_is_what_the_registry_gives() -> None:
    assert raw_ops_stub.STUB.read_text("utf-8") == raw_ops_stub.stub(), "write it anew: make stubs"


def test_every_operation_of_tensorflows_is_listed() -> None:
    names = [*(name for name in all_op_defs() if not name.startswith("_")), *older_names(), *call_names()]
    assert dir(tf.raw_ops) == sorted(names)
    assert len(names) > 700
    functions = [s.name for s in ast.parse(raw_ops_stub.stub()).body if isinstance(s, ast.FunctionDef)]
    assert functions == sorted(names)


def untold(op: OpFunction) -> list[str]:
    """What signature and help of an operation's function do not tell, each with the operation's name."""
    function = getattr(tf.raw_ops, op.name)
    parameters = inspect.signature(function).parameters
    told = pydoc.plain(pydoc.render_doc(function))
    problems = [
        *(f"{p.name} is {p.kind.description}" for p in parameters.values() if p.kind != inspect.Parameter.KEYWORD_ONLY),
        *(f"the help has no line for {name}" for name in parameters if f"\n        {name}: " not in told),
        *(f"the help has no line for {arg.name}" for arg in op.outputs if f"\n        {arg.name}: " not in told),
    ]
    if len(parameters) != len(op.parameters()) + 1:
        problems.append(f"it takes {len(parameters)} arguments, not {len(op.parameters()) + 1}")
    # from Python 3.13 on long signatures have a line for each argument
    if not re.search(rf"\b{op.name}\(\s*\*,\s*{next(iter(parameters))}\b", told):
        problems.append("the help does not show how it is called")
    if getattr(tf.raw_ops, op.name) is not function:
        problems.append("it is another function each time")
    return [f"{op.name}: {problem}" for problem in problems]


def test_signature_and_help_tell_of_each_argument() -> None:
    problems = [problem for op in OPERATIONS for problem in untold(op)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("name", "arguments", "inputs"),
    [
        *[(name, ["input", "axis"], [[1.0], [0]]) for name in ("Max", "Mean", "Min", "Prod", "Sum", "EuclideanNorm")],
        *[(name, ["input", "axis"], [[True], [0]]) for name in ("All", "Any")],
        ("ExpandDims", ["input", "axis"], [1.0, 0]),
        ("Select", ["condition", "x", "y"], [True, 1.0, 2.0]),
        ("Where", ["condition"], [[True]]),
    ],
)
def test_arguments_have_tensorflows_names(name: str, arguments: list[str], inputs: list[object]) -> None:
    with tf.Graph().as_default():
        result = getattr(tf.raw_ops, name)(**dict(zip(arguments, inputs, strict=True)))
        assert result.op.type == name
        assert [t.op.type for t in result.op.inputs] == ["Const"] * len(inputs)


def test_an_attribute_has_tensorflows_name() -> None:
    with tf.Graph().as_default():
        assert tf.raw_ops.Squeeze(input=[[1.0]], axis=[0]).shape == [1]
        assert [t.shape.as_list() for t in tf.raw_ops.Split(axis=0, value=[1.0, 2.0], num_split=2)] == [[1], [1]]
        assert len(tf.raw_ops.SplitV(value=[1.0, 2.0], size_splits=[1, 1], axis=0, num_split=2)) == 2


def test_the_module_holds_no_name_of_its_own() -> None:
    """Operation types are called `Any` and `Iterator`, as what modules import is."""
    assert {name for name in vars(raw_ops) if not name.startswith("_")} <= {*dir(raw_ops), "annotations"}
    assert [op.name for op in OPERATIONS if getattr(raw_ops, op.name).__name__ != op.name] == []


def test_results_have_the_form_that_the_stub_tells_of() -> None:
    with tf.Graph().as_default():
        top = tf.raw_ops.TopKV2(input=[1.0, 2.0], k=1)
        assert (top.values.dtype, top.indices.dtype) == (tf.float32, tf.int32)
        assert isinstance(tf.raw_ops.Unpack(value=[1.0, 2.0], num=2), list)
        assert isinstance(tf.raw_ops.NoOp(name="nothing"), tf.Operation)
        assert tf.raw_ops.Add(x=1, y=2, name="sum").op.name == "sum"


def test_wrong_calls_are_told_what_the_arguments_are() -> None:
    with pytest.raises(TypeError, match=r"MatMul only takes keyword args \(possible keys: \['a', 'b', 'transpose_a'"):
        tf.raw_ops.MatMul([[1.0]], [[1.0]])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="MatMul.. has no argument 'c'; it has"):
        tf.raw_ops.MatMul(a=[[1.0]], b=[[1.0]], c=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs the input 'b'"):
        tf.raw_ops.MatMul(a=[[1.0]])  # type: ignore[call-arg]
    for name in ("MatMull", "_Recv", "__path__"):
        with pytest.raises(AttributeError, match=name):
            getattr(tf.raw_ops, name)
