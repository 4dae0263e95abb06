"""The op table: one row per use of an operation, checked against an independent NumPy oracle.

`run_rows` builds rows twice - with everything known of the inputs' shapes, and with nothing - and runs them.
`check_row` compares static dtypes and shapes, what the session computed, and what the portable kernel computes on plain
NumPy arrays. `check_beside_constants` does so with constants for all inputs but the first. What is run together is
compiled together: a program for each row would take twice as long. `op_case_gradients` checks gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import as_dtype
from anabranch.core.kernel_context import KernelContext
from anabranch.core.op_def import ArgDef, OpDef
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, TensorValue, to_array
from anabranch.graph.building import OpFunction
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.graph.kernel_binding import BoundKernel, flatten_outputs
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.lists.values import TensorList
from anabranch.session import Session

Array = np.ndarray[Any, Any]
Feeds = dict[Tensor, Array]
Forward = Callable[[Feeds], list[Array]]

_TOLERANCE = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}
_DOUBLE = {
    dtypes.float32: dtypes.float64,
    dtypes.float16: dtypes.float64,
    dtypes.bfloat16: dtypes.float64,
    dtypes.complex64: dtypes.complex128,
}


@dataclass(frozen=True, eq=False)
class OpCase:
    """One row of the op table.

    Attributes:
        op: the operation type.
        inputs: one value per input argument, a list for a variadic one: arrays, or Python values, which take the
            argument's dtype where the signature fixes one (else float32, int32, ...). A list of tensors (variant) is
            given, and expected, as the array of its elements.
        attrs: attributes by name.
        oracle: a function of the inputs (not of the attributes) that gives the outputs: one array, or a sequence of
            them, flat. Half-precision inputs reach it as float32.
        expected: the outputs, in place of an oracle.
        verify: for results that have no single right value (random numbers, a basis): called with the list of
            outputs, raises AssertionError.
        tolerance: relative and absolute; default by the output's dtype.
        gradient: whether to check the gradient; default: the operation has one, and an input is floating or complex.
        order: 2 also checks the gradient of the gradient.
        differentiate: flat indices of the inputs whose gradient is checked; default: all floating and complex ones
            that are not `static`.
        static_shape: whether known input shapes must give exact output shapes; default: the kernel is compiled.
        error: the exception that building or running the operation must raise.
        constants: names of inputs, besides the `static` ones, that are constants where all is known.
        project: maps the random direction of an input onto directions that keep the input valid (symmetric, ...).
        element_shape: of a list of tensors in the outputs, where nothing was written into it.
        label: tells rows of one operation apart.
    """

    op: str
    inputs: tuple[Any, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    oracle: Callable[..., Any] | None = None
    expected: Any = None
    verify: Callable[[list[Array]], None] | None = None
    tolerance: float | None = None
    gradient: bool | None = None
    order: int = 1
    differentiate: Sequence[int] | None = None
    static_shape: bool | None = None
    error: type[BaseException] | None = None
    constants: Sequence[str] = ()
    project: Callable[[Array], Array] | None = None
    element_shape: Any = -1
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op}[{self.label}]" if self.label else self.op


def op_function(name: str) -> OpFunction:
    """The operation type of that name; raises LookupError when no family has it."""
    op_def = find_op_def(name)
    if not isinstance(op_def, OpFunction):
        raise LookupError(f"no family of anabranch.ops defines {name!r}")
    return op_def


@dataclass
class RowRun:
    """What a row gives, built with nothing known of the inputs' shapes, and with everything.

    Attributes:
        known_outputs: None where what is known cannot change the program, which was then run once only.
    """

    unknown: BuiltRow
    unknown_outputs: list[Array]
    known: BuiltRow
    known_outputs: list[Array] | None


def run_rows(cases: Sequence[OpCase], quickly: bool = False) -> list[RowRun]:
    """Builds rows that give no error, those of one kind in one graph, and runs each graph in one step.

    Args:
        quickly: whether to run once only those for which what is known of the inputs' shapes cannot change the program.
    """
    unknown, known = _built_together(cases, known=False), _built_together(cases, known=True)
    again = [row for row in known if not quickly or row.feeds.keys() != set(row.inputs)]
    known_outputs = dict(zip(map(id, again), run_together(again), strict=True))
    return [
        RowRun(before, outputs, row, known_outputs.get(id(row)))
        for before, outputs, row in zip(unknown, run_together(unknown), known, strict=True)
    ]


def check_row(case: OpCase, run: RowRun) -> None:
    """Checks what a row gave, and what its portable kernel gives.

    Raises:
        AssertionError: one of its promises does not hold; it says which.
    """
    op = op_function(case.op)
    inputs = input_arrays(op, case.inputs)
    case = _answered(case, inputs)
    outputs = run.unknown_outputs
    _check_static(case, run.unknown, outputs, known=False)
    _compare(case, outputs, "the session")
    if run.known_outputs is not None:
        outputs = run.known_outputs
        _compare(case, outputs, "the session")
    _check_static(case, run.known, outputs, known=True)
    if has_portable_kernel(op):
        _compare(case, run_portable(run.known.operation, inputs), "the portable kernel")


def check_error(case: OpCase) -> None:
    """Checks that a row raises its error, whatever is known of its inputs; raises AssertionError if it does not."""
    for is_known in (True, False):
        _check_error(case, is_known)


def beside_constants(case: OpCase) -> OpCase:
    """The row with constants for all inputs but the first."""
    return replace(case, constants=[arg.name for arg in op_function(case.op).inputs[1:]])


def run_beside_constants(cases: Sequence[OpCase]) -> list[list[Array]]:
    """The values of rows for which `can_stand_beside_constants`, all inputs but the first being constants."""
    return run_together(_built_together([beside_constants(case) for case in cases], known=True))


def check_beside_constants(case: OpCase, outputs: list[Array]) -> None:
    """Checks what `run_beside_constants` gave for a row; raises AssertionError if it is not what the row gives."""
    inputs = input_arrays(op_function(case.op), case.inputs)
    _compare(_answered(case, inputs), outputs, "the session, all inputs but the first being constants,")


def can_stand_beside_constants(case: OpCase) -> bool:
    """Whether the kernel would then meet other NumPy arrays beside traced ones than in `check_case`."""
    op = op_function(case.op)
    constants = op.static.union(case.constants)
    others = any(arg.name not in constants for arg in op.inputs[1:])
    return others and case.error is None and op.compiled_rule is not None


def check_values(case: OpCase) -> None:
    """Checks a row's values, dtypes and shapes in a session that knows nothing of the inputs' shapes; no gradients.

    Raises:
        AssertionError: they are not those that the row gives.
    """
    op = op_function(case.op)
    inputs = input_arrays(op, case.inputs)
    built = BuiltRow(case, inputs, known=False)
    (outputs,) = run_together([built])
    _check_static(case, built, outputs, known=False)
    _compare(_answered(case, inputs), outputs, "the session")


# ---------------------------------------------------------------------- building
def input_arrays(op: OpDef, values: tuple[Any, ...]) -> list[Any]:
    """The inputs of a row as arrays of the operation's dtypes, a list of them for a variadic one.

    Raises:
        ValueError: there are more or fewer inputs than the operation has.
    """
    if len(values) != len(op.inputs):
        raise ValueError(f"{op.name} has inputs {[a.name for a in op.inputs]}, the case gives {len(values)}")
    return [
        [_array(arg, v) for v in value] if arg.is_list else _array(arg, value)
        for arg, value in zip(op.inputs, values, strict=True)
    ]


def _array(arg: ArgDef, value: TensorValue) -> Array:
    own = isinstance(value, np.ndarray | np.generic) or arg.dtype is dtypes.variant
    return to_array(value, None if own else arg.dtype)


def flat_arrays(values: list[Any]) -> list[Array]:
    """What `input_arrays` gives as one list."""
    return [v for value in values for v in (value if isinstance(value, list) else [value])]


class BuiltRow:
    """One operation of a row's type on placeholders; `static` inputs are constants where all is `known`.

    Args:
        inputs: what `input_arrays` gives.
        graph: where it is built; default: a graph of its own.
    """

    def __init__(self, case: OpCase, inputs: list[Any], known: bool, graph: Graph | None = None) -> None:
        op = op_function(case.op)
        self.graph = Graph() if graph is None else graph
        self.constants = op.static | set(case.constants)
        self.feeds: Feeds = {}
        self.inputs: list[Tensor] = []
        with self.graph.as_default():
            args = [self._argument(arg, value, known) for arg, value in zip(op.inputs, inputs, strict=True)]
            op(*args, **case.attrs)
            self.operation: Operation = next(o for o in reversed(self.graph.get_operations()) if o.op_def is op)
            #: the results, lists of tensors being stacked
            self.outputs = [self._stacked(t, case.element_shape) for t in self.operation.outputs]

    def _argument(self, arg: ArgDef, value: TensorValue, known: bool) -> Any:
        constant = known and arg.name in self.constants
        if isinstance(value, list):
            return [self._tensor(f"{arg.name}_{i}", v, known, constant) for i, v in enumerate(value)]
        tensor = self._tensor(arg.name, value, known, constant)
        return raw.TensorListFromTensor(tensor, [*value.shape[1:]]) if arg.dtype is dtypes.variant else tensor

    def _stacked(self, tensor: Tensor, shape: TensorLike) -> Tensor:
        if tensor.dtype is not dtypes.variant:
            return tensor
        elements = self.operation.attrs.get("element_dtype", self.inputs[0].dtype)
        return raw.TensorListStack(tensor, shape, element_dtype=elements)  # type: ignore[no-any-return]

    def _tensor(self, name: str, value: Array, known: bool, constant: bool) -> Tensor:
        if constant:
            tensor = constant_of(value, name)
        else:
            shape = TensorShape(value.shape if known else None)
            tensor = raw.Placeholder(dtype=as_dtype(value.dtype), shape=shape, name=name)
            self.feeds[tensor] = value
        self.inputs.append(tensor)
        return tensor


def _built_together(cases: Sequence[OpCase], known: bool) -> list[BuiltRow]:
    graph = Graph()
    return [BuiltRow(case, input_arrays(op_function(case.op), case.inputs), known, graph) for case in cases]


def run_together(rows: Sequence[BuiltRow]) -> list[list[Array]]:
    """The outputs of rows that were built in one graph, all run in one step; none for an operation that has none."""
    if not rows:
        return []
    feeds = {tensor: value for row in rows for tensor, value in row.feeds.items()}
    with Session(graph=rows[0].graph) as session:
        values = session.run([row.outputs or row.operation for row in rows], feeds)
    return [value if row.outputs else [] for row, value in zip(rows, values, strict=True)]


def has_portable_kernel(op: OpDef) -> bool:
    """Whether the operation's values can be had without a session."""
    return op.compiled_rule is not None and op.portable and not op.stateful and not op.random


def run_portable(operation: Operation, inputs: list[Any]) -> list[Array]:
    rule = operation.op_def.compiled_rule
    assert rule is not None
    with np.errstate(all="ignore"):
        lists = [_as_list(arg, value) for arg, value in zip(operation.op_def.inputs, inputs, strict=True)]
        kernel = BoundKernel(operation, rule, np, KernelContext(operation))
        return [np.asarray(v) for v in flatten_outputs(kernel.on_arguments(*lists))]


def _as_list(arg: ArgDef, value: TensorValue) -> Any:
    return TensorList(value, len(value), value.dtype) if arg.dtype is dtypes.variant else value


# ---------------------------------------------------------------------- comparing
def _check_static(case: OpCase, built: BuiltRow, outputs: list[Array], known: bool) -> None:
    exact = case.static_shape
    if exact is None:
        exact = built.operation.op_def.compiled_rule is not None
    assert len(outputs) == len(built.outputs)
    for tensor, value in zip(built.outputs, outputs, strict=True):
        got = np.asarray(value)
        dtype = dtypes.string if got.dtype.kind in "OSU" else as_dtype(got.dtype)
        assert dtype is tensor.dtype, f"{case}: {tensor.name} is {tensor.dtype.name}, but its value is {dtype.name}"
        shape = tensor.shape
        assert shape.is_compatible_with(got.shape), f"{case}: static shape {shape}, but the value has {got.shape}"
        if known and exact and tensor in built.operation.outputs:
            assert shape.is_fully_defined(), f"{case}: all input shapes are known, but {tensor.name} has shape {shape}"


def _answered(case: OpCase, inputs: list[Any]) -> OpCase:
    """The row with its oracle's answer; oracles that go element by element take long, and all ways have one answer."""
    return case if case.oracle is None else replace(case, oracle=None, expected=_ask(case, flat_arrays(inputs)))


def _compare(case: OpCase, outputs: list[Array], what: str) -> None:
    if case.verify is not None:
        case.verify([_as_array(o) for o in outputs])
    expected = case.expected
    if expected is None:
        assert case.verify is not None or not outputs, f"{case}: give an oracle, the expected outputs, or verify"
        return
    if len(outputs) == 1 and not _is_flat_list(expected):
        expected = [expected]
    assert len(expected) == len(outputs), f"{case}: {len(outputs)} outputs, the oracle gives {len(expected)}"
    for i, (got, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(got, wanted, case.tolerance, f"{case}: output {i} of {what}")


def _as_array(value: TensorValue) -> Array:
    """A fetched value as an array. NumPy's own byte strings would lose trailing zero bytes."""
    return to_array(value, dtypes.string) if isinstance(value, bytes) else np.asarray(value)


def _is_flat_list(expected: object) -> bool:
    """Whether an oracle for one output gave a list of outputs, rather than the elements of the one."""
    return isinstance(expected, list | tuple) and len(expected) == 1 and isinstance(expected[0], np.ndarray)


def _ask(case: OpCase, inputs: list[Array]) -> Any:
    assert case.oracle is not None
    widened = [v.astype(np.float32) if v.dtype.name in {"float16", "bfloat16"} else v for v in inputs]
    at = iter(widened)
    op = op_function(case.op)
    grouped = [
        [next(at) for _ in value] if arg.is_list else next(at)
        for arg, value in zip(op.inputs, case.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        return case.oracle(*grouped)


def assert_close(got: TensorValue, wanted: TensorValue, tolerance: float | None = None, what: str = "value") -> None:
    """Equality of shape, and of elements up to a tolerance that follows the dtype of `got`; strings exactly."""
    got = np.asarray(got)
    if got.dtype.kind in "OSU":
        wanted = to_array(wanted, dtypes.string) if np.size(wanted) else np.asarray(wanted, np.object_)
        assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
        assert got.tolist() == wanted.tolist(), f"{what}: {got.tolist()}, expected {wanted.tolist()}"
        # an array of one text equals it
        kinds = [{type(value) for value in array.reshape(-1).tolist()} for array in (got, wanted)]
        assert kinds[0] == kinds[1], f"{what}: values of {kinds[0]}, expected {kinds[1]}"
        return
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    if got.dtype.name not in _TOLERANCE:
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    allowed = _TOLERANCE[got.dtype.name] if tolerance is None else tolerance
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(kind), wanted.astype(kind), rtol=allowed, atol=allowed, err_msg=what)


def _check_error(case: OpCase, known: bool) -> None:
    assert case.error is not None
    try:
        built = BuiltRow(case, input_arrays(op_function(case.op), case.inputs), known)
    except (case.error, ValueError, TypeError):
        return
    try:
        run_together([built])
    except case.error:
        return
    raise AssertionError(f"{case}: expected {case.error.__name__}, but the step succeeded")
