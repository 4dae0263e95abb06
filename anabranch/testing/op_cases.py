"""The op table: one row per use of an operation, checked against an independent NumPy oracle.

`check_case` builds the operation twice - with everything known of the inputs' shapes, and with nothing - and compares
static dtypes and shapes, what a session computes, and what the portable kernel computes on plain NumPy arrays.
`check_beside_constants` builds it with constants for all inputs but the first. `check_gradient` compares the gradient's
product with a random direction against central differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.kernel_context import KernelContext
from anabranch.core.op_def import ArgDef, OpDef
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, TensorValue, to_array
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import Gradient, IndexedSlices, IndexedSlicesValue
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.graph.kernel_binding import BoundKernel, flatten_outputs
from anabranch.graph.operation import Operation, StepRunner, Tensor
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


def check_case(case: OpCase, quickly: bool = False) -> None:
    """Checks one row, fed.

    Args:
        quickly: whether to run it once only where what is known of the inputs' shapes cannot change the program.

    Raises:
        AssertionError: one of its promises does not hold; it says which.
    """
    op = op_function(case.op)
    inputs = input_arrays(op, case.inputs)
    if case.error is not None:
        for is_known in (True, False):
            _check_error(case, op, inputs, is_known)
        return
    case = _answered(case, inputs)
    unknown, known = _Built(op, inputs, case, known=False), _Built(op, inputs, case, known=True)
    outputs = unknown.run()
    _check_static(case, unknown, outputs, known=False)
    _compare(case, outputs, "the session")
    if not quickly or known.feeds.keys() != set(known.inputs):
        outputs = known.run()
        _compare(case, outputs, "the session")
    _check_static(case, known, outputs, known=True)
    if _has_portable_kernel(op):
        _compare(case, _run_portable(known.operation, inputs), "the portable kernel")


def check_beside_constants(case: OpCase) -> None:
    """Checks the values of a row that `can_stand_beside_constants`, all inputs but the first being constants.

    Raises:
        AssertionError: they are not those that the row gives.
    """
    op = op_function(case.op)
    inputs = input_arrays(op, case.inputs)
    built = _Built(op, inputs, replace(case, constants=[arg.name for arg in op.inputs[1:]]), known=True)
    what = "the session, all inputs but the first being constants,"
    _compare(_answered(case, inputs), built.run(), what)


def can_stand_beside_constants(case: OpCase) -> bool:
    """Whether the kernel would then meet other NumPy arrays beside traced ones than in `check_case`."""
    op = op_function(case.op)
    constants = op.static.union(case.constants)
    others = any(arg.name not in constants for arg in op.inputs[1:])
    return others and case.error is None and op.compiled_rule is not None


def check_gradient(case: OpCase) -> None:
    """Checks the gradient of a row for which `wants_gradient`; raises AssertionError where it is wrong."""
    op = op_function(case.op)
    _GradientCheck(case, op, input_arrays(op, case.inputs)).check()


def wants_gradient(case: OpCase) -> bool:
    """Whether a row has a gradient to be checked."""
    if case.error is not None or case.gradient is not None:
        return case.error is None and bool(case.gradient)
    op = op_function(case.op)
    return op.differentiable is True and any(_inexact(v.dtype) for v in flat_arrays(input_arrays(op, case.inputs)))


def check_values(case: OpCase) -> None:
    """Checks a row's values, dtypes and shapes in a session that knows nothing of the inputs' shapes; no gradients.

    Raises:
        AssertionError: they are not those that the row gives.
    """
    op = op_function(case.op)
    inputs = input_arrays(op, case.inputs)
    built = _Built(op, inputs, case, known=False)
    outputs = built.run()
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


class _Built:
    """A graph with one operation of the type on placeholders; `static` inputs are constants where all is `known`."""

    def __init__(self, op: OpFunction, inputs: list[Any], case: OpCase, known: bool) -> None:
        self.graph = Graph()
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

    def run(self) -> list[Array]:
        with Session(graph=self.graph) as session:
            if not self.operation.outputs:
                session.run(self.operation, self.feeds)
                return []
            values: list[Array] = session.run(self.outputs, self.feeds)
            return values


def _has_portable_kernel(op: OpDef) -> bool:
    """Whether the operation's values can be had without a session."""
    return op.compiled_rule is not None and op.portable and not op.stateful and not op.random


def _run_portable(operation: Operation, inputs: list[Any]) -> list[Array]:
    rule = operation.op_def.compiled_rule
    assert rule is not None
    with np.errstate(all="ignore"):
        lists = [_as_list(arg, value) for arg, value in zip(operation.op_def.inputs, inputs, strict=True)]
        kernel = BoundKernel(operation, rule, np, KernelContext(operation))
        return [np.asarray(v) for v in flatten_outputs(kernel.on_arguments(*lists))]


def _as_list(arg: ArgDef, value: TensorValue) -> Any:
    return TensorList(value, len(value), value.dtype) if arg.dtype is dtypes.variant else value


# ---------------------------------------------------------------------- comparing
def _check_static(case: OpCase, built: _Built, outputs: list[Array], known: bool) -> None:
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
        return
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    if got.dtype.name not in _TOLERANCE:
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    allowed = _TOLERANCE[got.dtype.name] if tolerance is None else tolerance
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(kind), wanted.astype(kind), rtol=allowed, atol=allowed, err_msg=what)


def _check_error(case: OpCase, op: OpFunction, inputs: list[Any], known: bool) -> None:
    assert case.error is not None
    try:
        built = _Built(op, inputs, case, known)
    except (case.error, ValueError, TypeError):
        return
    try:
        built.run()
    except case.error:
        return
    raise AssertionError(f"{case}: expected {case.error.__name__}, but the step succeeded")


# ---------------------------------------------------------------------- gradients
def _inexact(dtype: DTypeLike) -> bool:
    as_type = as_dtype(dtype)
    return as_type.is_floating or as_type.is_complex


class _GradientCheck:
    """<w, y(x)> for a random w: the graph's gradient along a random direction against central differences.

    For complex values the scalar is Re(sum(conj(w) y)), so that its change along d is Re(sum(conj(grad) d)). The
    portable kernel, where there is one, gives y(x): `check_case` has found it to give what a session gives, which would
    compile the operation once more for the double precision that differences need.
    """

    def __init__(self, case: OpCase, op: OpFunction, inputs: list[Any]) -> None:
        self.case = case
        self.random = np.random.default_rng(7)
        wide = inputs
        if not _fixes_types(op, case.attrs):
            wide = [_widened(op, arg, value) for arg, value in zip(op.inputs, inputs, strict=True)]
        self.built = _Built(op, wide, case, known=True)
        self.values = [value for arg in wide for value in (arg if isinstance(arg, list) else [arg])]
        self.lengths = [len(value) if isinstance(value, list) else None for value in wide]
        chosen = range(len(self.built.inputs)) if case.differentiate is None else case.differentiate
        tensors = [self.built.inputs[i] for i in chosen]
        self.xs = [t for t in tensors if t in self.built.feeds and _inexact(t.dtype)]
        self.ys = [t for t in self.built.outputs if _inexact(t.dtype)]
        self.is_portable = _has_portable_kernel(op) and self.built.outputs == list(self.built.operation.outputs)
        assert self.ys, f"{case}: no output has a gradient; say gradient=False"
        double = not any(t.dtype in _DOUBLE for t in [*self.built.inputs, *self.ys])
        self.delta, self.tolerance = (1e-5, 2e-6) if double else (1e-2, 3e-2)

    def check(self) -> None:
        feeds = dict(self.built.feeds)
        with self.built.graph.as_default(), Session(graph=self.built.graph) as session:
            forward = self._run_kernel if self.is_portable else _running(session, self.ys)
            values = forward(feeds)
            weights = [self._placeholder(y, v, feeds) for y, v in zip(self.ys, values, strict=True)]
            first = gradients(self.ys, self.xs, grad_ys=weights)
            self._compare(session, feeds, forward, weights, self.xs, first, "gradient")
            if self.case.order < 2:
                return
            present = [(g, x) for g, x in zip(first, self.xs, strict=True) if g is not None]
            grads = [_dense(g) for g, _ in present]
            directions = [self._placeholder(x, feeds[x], feeds) for _, x in present]
            sources = [*self.xs, *weights]
            second = gradients(grads, sources, grad_ys=directions)
            forward = _running(session, grads)
            self._compare(session, feeds, forward, directions, sources, second, "second-order gradient")

    def _run_kernel(self, feeds: Feeds) -> list[Array]:
        """The values of `ys` by the portable kernel."""
        flat = (feeds.get(tensor, value) for tensor, value in zip(self.built.inputs, self.values, strict=True))
        arguments = [next(flat) if n is None else list(itertools.islice(flat, n)) for n in self.lengths]
        outputs = _run_portable(self.built.operation, arguments)
        return [value for tensor, value in zip(self.built.outputs, outputs, strict=True) if _inexact(tensor.dtype)]

    def _placeholder(self, like: Tensor, value: Array, feeds: Feeds) -> Tensor:
        """A placeholder for a random tensor like `like`, whose value is entered into `feeds`."""
        tensor: Tensor = raw.Placeholder(dtype=like.dtype, shape=TensorShape(value.shape))
        feeds[tensor] = self._noise(like.dtype, value.shape)
        return tensor

    def _noise(self, dtype: DType, shape: Sequence[int]) -> Array:
        noise = self.random.normal(size=shape)
        if dtype.is_complex:
            noise = noise + 1j * self.random.normal(size=shape)
        return np.asarray(noise, dtype.as_numpy_dtype)

    def _compare(
        self,
        session: StepRunner,
        feeds: Feeds,
        forward: Forward,
        weights: list[Tensor],
        xs: list[Tensor],
        grads: list[Any],
        what: str,
    ) -> None:
        present = [g for g in grads if g is not None]
        values = iter(session.run(present, feeds) if present else [])
        for x, grad in zip(xs, grads, strict=True):
            got = np.zeros(feeds[x].shape) if grad is None else _dense_value(next(values), feeds[x].shape)
            assert got.shape == feeds[x].shape, (
                f"{self.case}: the {what} for {x.name} has shape {got.shape}, the tensor itself {feeds[x].shape}"
            )
            along = self._noise(x.dtype, feeds[x].shape)
            if self.case.project is not None and x in self.xs:
                along = self.case.project(along).astype(along.dtype)
            analytic = float(np.sum(np.conj(got) * along).real)
            sides = [self._loss(forward, {**feeds, x: feeds[x] + self._step(along, s)}, weights) for s in (1, -1)]
            numeric = (sides[0] - sides[1]) / (2 * self.delta)
            np.testing.assert_allclose(
                analytic,
                numeric,
                rtol=self.tolerance,
                atol=self.tolerance * max(1.0, abs(sides[0])),
                err_msg=f"{self.case}: {what} for {x.name}, against central differences",
            )

    def _step(self, along: Array, sign: int) -> Array:
        return (sign * self.delta * along).astype(along.dtype)

    def _loss(self, forward: Forward, feeds: Feeds, weights: list[Tensor]) -> float:
        # fed as when the ys were first asked for: a step with other feeds is another program
        values = forward({t: v for t, v in feeds.items() if t not in weights})
        terms = [np.sum(np.conj(feeds[w]) * np.asarray(v)).real for w, v in zip(weights, values, strict=True)]
        return float(np.sum(terms, dtype=np.float64))


def _running(session: StepRunner, fetches: list[Tensor]) -> Forward:
    def run(feeds: Feeds) -> list[Array]:
        values: list[Array] = session.run(fetches, feeds)
        return values

    return run


def _fixes_types(op: OpDef, attrs: dict[str, Any]) -> bool:
    return any(op.attrs[name].kind in {"type", "list(type)"} for name in attrs)


def _widened(op: OpDef, arg: ArgDef, value: TensorValue) -> Any:
    if isinstance(value, list):
        return [_widened(op, arg, v) for v in value]
    wide = _DOUBLE.get(as_dtype(value.dtype))
    attr = op.attrs.get(arg.type_attr or arg.type_list_attr or "")
    if wide is None or attr is None or (attr.allowed is not None and wide not in attr.allowed):
        return value
    return value.astype(wide.as_numpy_dtype)


def _dense(grad: Gradient) -> Tensor:
    if isinstance(grad, IndexedSlices):
        rows = raw.StridedSlice(grad.dense_shape, [0], [1], [1], shrink_axis_mask=1)
        return raw.UnsortedSegmentSum(grad.values, grad.indices, rows)  # type: ignore[no-any-return]
    tensor: Tensor = grad
    return tensor


def _dense_value(value: TensorValue, shape: Sequence[int]) -> Array:
    if not isinstance(value, IndexedSlicesValue):
        return np.asarray(value)
    dense = np.zeros(shape, np.asarray(value.values).dtype)
    np.add.at(dense, value.indices, value.values)
    return dense
