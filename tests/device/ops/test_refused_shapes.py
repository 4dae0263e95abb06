"""Shapes are refused if TensorFlow refuses them, and when: each operation's first row, one input's shape changed.

`tests/oracles/make_refused_shapes_fixture.py` records what TensorFlow says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.testing.op_cases import OpCase
from anabranch.xla import executable
from tests.each_case import each_case
from tests.fuzz.differences import Disagreement, known_differences
from tests.fuzz.op_rows import rows_by_operation
from tests.fuzz.perturbed_shapes import BUILT, NEVER, REFUSED, RUN, Inputs, perturbed_inputs

RECORDED: dict[str, dict[str, str]] = json.loads(REFUSED.read_text())
KNOWN = known_differences()
#: the mechanism is the same for all of them
HIDDEN = sorted(RECORDED)[::12]


def _calls(name: str, *verdicts: str) -> Iterator[tuple[str, OpCase, Inputs]]:
    """The calls of the operation that TensorFlow refuses at these times, with their labels."""
    case = rows_by_operation()[name][0]
    for label, inputs in perturbed_inputs(case):
        if RECORDED[name].get(label) in verdicts:
            yield label, case, inputs


def _build(case: OpCase, inputs: Inputs) -> None:
    """Adds the operation, on placeholders of known shape."""

    def tensor(array: Any) -> Any:
        return raw.Placeholder(dtype=array.dtype if array.dtype.kind != "O" else "string", shape=array.shape)

    with Graph().as_default():
        arguments = [[tensor(v) for v in a] if isinstance(a, list) else tensor(a) for a in inputs]
        getattr(raw, case.op)(*arguments, **case.attrs)


def _call(case: OpCase, inputs: Inputs, known: bool) -> None:
    """Adds the operation, on constants or on placeholders of unknown shape, and runs it."""
    feeds: dict[Any, Any] = {}

    def tensor(array: Any) -> Any:
        if known:
            return constant_of(array, "value")
        placeholder = raw.Placeholder(dtype=array.dtype if array.dtype.kind != "O" else "string", shape=None)
        feeds[placeholder] = array
        return placeholder

    with Graph().as_default() as graph, Session() as session:
        arguments = [[tensor(v) for v in a] if isinstance(a, list) else tensor(a) for a in inputs]
        getattr(raw, case.op)(*arguments, **case.attrs)
        operation = next(o for o in reversed(graph.get_operations()) if o.type == case.op)
        session.run(operation.outputs, feeds)


def _call_in_map(case: OpCase, inputs: Inputs) -> None:
    """Runs the operation in a function of a dataset, on tensors of unknown shape."""

    def function(_: Any) -> Any:
        def tensor(array: Any) -> Any:
            return raw.PlaceholderWithDefault(constant_of(array, "value"), shape=None)

        arguments = [[tensor(v) for v in a] if isinstance(a, list) else tensor(a) for a in inputs]
        getattr(raw, case.op)(*arguments, **case.attrs)
        operation = next(o for o in reversed(tf.get_default_graph().get_operations()) if o.type == case.op)
        with tf.control_dependencies([operation]):
            return tf.constant(0)

    with Graph().as_default(), Session() as session:
        session.run(tf.data.Dataset.range(1).map(function).make_one_shot_iterator().get_next())


def _taken(name: str, call: Callable[[OpCase, Inputs], None]) -> list[str]:
    """The calls that should be refused and are not."""
    taken = []
    for label, case, inputs in _calls(name, BUILT, RUN):
        try:
            call(case, inputs)
        except (ValueError, errors.InvalidArgumentError):
            continue
        taken.append(label)
    return taken


def _is_known(name: str, error: Exception) -> bool:
    """Whether docs/differences.md says that this is refused here only."""
    found = Disagreement("refused here only", "n", name, "-", f"{type(error).__name__}: {error}", "program")
    return any(row.covers(found) for row in KNOWN)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_known_shapes_are_refused(name: str) -> None:
    assert not _taken(name, partial(_call, known=True))


@each_case("name", sorted(name for name, calls in RECORDED.items() if BUILT in calls.values()))
def test_what_is_refused_when_it_is_built_is_not_built(name: str) -> None:
    for label, case, inputs in _calls(name, BUILT):
        try:
            _build(case, inputs)
        except (ValueError, errors.InvalidArgumentError):
            continue
        pytest.fail(f"{label} is built")


@pytest.mark.parametrize("name", HIDDEN)
def test_shapes_met_at_run_time_are_refused(name: str) -> None:
    assert not _taken(name, partial(_call, known=False))


@each_case("name", sorted(name for name, calls in RECORDED.items() if RUN in calls.values()))
def test_what_is_refused_when_it_runs_can_be_built(name: str) -> None:
    for _, case, inputs in _calls(name, RUN):
        _build(case, inputs)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_is_not_refused_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in HIDDEN:
        # by the kernels that refuse; that XLA takes what they give does not depend on the operation
        monkeypatch.setattr(executable, "EAGER_VARIANTS", 0)
    refused = []
    for label, case, inputs in _calls(name, NEVER):
        try:
            _call(case, inputs, known=False)
        except (ValueError, errors.OpError) as error:
            if not _is_known(name, error):
                refused.append(f"{label}: {error}")
    assert not refused


def _zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


#: calls that TensorFlow builds and does not run
WAITING: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("TanhGrad", [_zeros(2, 3), _zeros(4)], {}),
    ("CropAndResizeGradBoxes", [_zeros(2, 2, 2, 1), _zeros(1, 4, 4, 1), _zeros(3, 4), _zeros(2, dtype=np.int32)], {}),
    (
        "MaxPoolGradWithArgmax",
        [_zeros(1, 4, 4, 1), _zeros(1, 2, 2, 1), _zeros(1, 3, 3, 1, dtype=np.int64)],
        {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
    ),
]


@pytest.mark.parametrize(("name", "arrays", "attrs"), WAITING, ids=[name for name, *_ in WAITING])
@pytest.mark.parametrize("constant", [False, True])
def test_a_graph_is_read_and_its_other_nodes_run(name: str, arrays: Any, attrs: Any, constant: bool) -> None:
    with Graph().as_default() as graph:
        made = [
            constant_of(a, f"x{i}") if constant else raw.Placeholder(dtype=a.dtype, shape=a.shape, name=f"x{i}")
            for i, a in enumerate(arrays)
        ]
        getattr(raw, name)(*made, **attrs, name="bad")
        raw.Neg(made[0], name="good")
    names = [f"x{i}:0" for i in range(len(arrays))]
    with Graph().as_default(), Session() as session:
        tensors = import_graph_def(graph.as_graph_def(), return_elements=["good:0", "bad:0", *names], name="")
        good, bad, *inputs = tensors
        feeds = {} if constant else dict(zip(inputs, arrays, strict=True))
        np.testing.assert_array_equal(session.run(good, feeds), -arrays[0])
        with pytest.raises(errors.InvalidArgumentError):
            session.run(bad, feeds)


@pytest.mark.parametrize("name", HIDDEN)
def test_shapes_met_in_functions_of_datasets_are_refused(name: str) -> None:
    assert not _taken(name, _call_in_map)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("UniqueV2", ([1.0, 2.0], [1]), r"not in \[-1, 1\)"),
        ("UniqueV2", (1.0, [0]), r"not in \[0, 0\)"),
        ("UniqueWithCountsV2", ([1.0, 2.0], [-2]), r"not in \[-1, 1\)"),
        ("UniqueWithCountsV2", ([[1.0, 2.0]], np.zeros(0, np.int64)), "must be rank 1"),
    ],
)
def test_a_known_axis_is_refused_when_the_graph_is_built(name: str, inputs: Any, message: str) -> None:
    """As the body of a loop or a branch is, though it may never run."""
    with pytest.raises(ValueError, match=message):
        getattr(raw, name)(*inputs)


def test_known_sizes_are_refused_when_the_graph_is_built() -> None:
    filter, grad = raw.Placeholder("float32", [3, 2, 4, 3]), raw.Placeholder("float32", [3, 2, 4, 3])
    with pytest.raises(ValueError, match="must be equal"):
        raw.Conv2DBackpropInput([2, 4, 5, 4], filter, grad, [1, 1, 1, 1], "VALID")


@pytest.mark.parametrize(("batch_dims", "gradient_says"), [(2**40, "cannot take the shape"), (-(2**40), "batch_dims")])
def test_gradients_are_built_where_dimensions_are_too_many_for_a_tensor(batch_dims: int, gradient_says: str) -> None:
    with Graph().as_default(), Session() as session:
        params, indices = raw.Placeholder("float32", None), raw.Placeholder("int32", None)
        gathered = raw.GatherV2(params, indices, raw.Placeholder("int32", []), batch_dims=batch_dims)
        (gradient,) = tf.gradients(gathered, [params])
        feeds = {params: np.ones((2, 3), np.float32), indices: [0], "Placeholder_2:0": 1}
        # the gradient alone does not gather; it takes the shape of what would have been
        for fetched, said in ((gathered, "batch_dims"), (gradient, gradient_says)):
            with pytest.raises(errors.InvalidArgumentError, match=said):
                session.run(fetched, feeds)


@pytest.mark.parametrize("names", [b"", [[b""]]])
def test_names_of_another_rank_are_refused_when_the_graph_is_built(names: Any) -> None:
    missing: dict[str, Any] = {"feature_list_dense_missing_assumed_empty": []}
    kinds = ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
    keys: dict[str, Any] = {f"{kind}_keys": [] for kind in kinds}
    with pytest.raises(ValueError, match="must be rank 1"):
        raw.ParseSequenceExample([b""], names, [], **missing, **keys)
