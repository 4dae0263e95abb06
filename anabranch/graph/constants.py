"""What is known of a tensor's value while the graph is built: constants, and computations on constants and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from anabranch.core import dtypes
from anabranch.core.kernel_context import KernelContext
from anabranch.core.op_def import ArgDef, OpDef, Rule
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.graph.kernel_binding import BoundKernel, flatten_outputs
from anabranch.graph.operation import Tensor, group_by_argument
from anabranch.graph.step_nodes import AnyOperation, AnyTensor, StepTensor

_MAX_ELEMENTS = 100_000
_MAX_DEPTH = 60
#: what a graph says how to make, but is larger, is left to the step
_MAX_COMPUTED_ELEMENTS = 1 << 22
_NO_ARRAYS = (dtypes.resource, dtypes.variant)

#: the attribute of a function's parameter that tells which tensor of the enclosing graph it always stands for
CAPTURED = "captured"

#: the attribute of a constant in a function's body that is a copy of one of the enclosing graph
COPIED = "copied"

#: what a shape rule gives: a shape, or nested lists and tuples of them
ShapeRuleResult: TypeAlias = Any


def constant_value(tensor: object) -> np.ndarray[Any, Any] | None:
    """The value of `tensor` where it can be computed without running a step, else None.

    Every portable kernel (`OpDef.portable`) takes part, so whatever arithmetic leads from constants and known shapes
    to `tensor` is followed. The result is read-only.
    """
    if not isinstance(tensor, Tensor | StepTensor):
        return tensor if isinstance(tensor, np.ndarray) else None
    return _evaluate(tensor, 0)


def _evaluate(tensor: AnyTensor, depth: int) -> np.ndarray[Any, Any] | None:
    op = tensor.op
    if op.type == "Const":
        value: np.ndarray[Any, Any] = op.attrs["value"]
        return value
    known = tensor.known
    if isinstance(known, np.ndarray):
        return known
    outer = _captured_integers(tensor)
    if outer is not None:
        return _evaluate(outer, depth + 1)
    if not op.op_def.portable or op.op_def.stateful or depth > _MAX_DEPTH:
        return None
    if tensor._constant is None:  # what is not known is asked for again: shapes may become known later (set_shape)
        tensor._constant = _run_portable(tensor, depth)
    computed: np.ndarray[Any, Any] | None = tensor._constant
    return computed


def _captured_integers(tensor: AnyTensor) -> Tensor | None:
    """The outer tensor that a parameter of a function stands for, which is known inside where it is known outside.

    It may be a size or an axis there; a real number is none, and its gradient may be asked for.
    """
    if tensor.op.type != "Placeholder" or not isinstance(tensor, Tensor) or not tensor.dtype.is_integer:
        return None
    outer: Tensor | None = tensor.get_attribute(CAPTURED)
    return outer


def _run_portable(tensor: AnyTensor, depth: int) -> np.ndarray[Any, Any] | None:
    op = tensor.op
    inputs: list[Any] = []
    for source in op.inputs:
        if op.op_def.shape_valued:
            if (described := described_by_shape(op, source)) is None:
                return None
            inputs.append(described)
            continue
        value = _evaluate(source, depth + 1)
        if value is None or value.size > _MAX_ELEMENTS:
            return None
        inputs.append(value)
    if not inputs and not op.op_def.shape_valued:
        return None
    return run_on_known_values(op, inputs)[tensor.value_index]


def described_by_shape(op: AnyOperation, source: AnyTensor) -> np.ndarray[Any, Any] | None:
    """What stands for an input of which an operation looks at the shape alone, without memory behind it.

    None where the shape is not known as far as the operation looks at it.
    """
    shape = source.shape
    if shape.is_fully_defined():
        return np.broadcast_to(np.zeros((), np.bool_), shape.sizes())
    if op.op_def.rank_valued and shape.ndims is not None:
        return np.broadcast_to(np.zeros((), np.bool_), (1,) * shape.ndims)
    return None


def run_on_known_values(op: AnyOperation, inputs: list[Any]) -> list[np.ndarray[Any, Any] | None]:
    """Runs a portable kernel on NumPy values; a list of Nones where these make it fail, or the results are very large.

    A failure is left to the step that runs the operation: it reports the error with its class.
    """
    rule = op.op_def.compiled_rule
    assert rule is not None
    if sum(out.shape.num_elements() or 0 for out in op.outputs) > _MAX_COMPUTED_ELEMENTS:
        return [None] * len(op.outputs)
    try:
        if is_open(op):
            check_shapes(op, inputs)
        with np.errstate(all="ignore"):
            result = BoundKernel(op, rule, np, KernelContext(op))(inputs)
    except Exception:  # whatever a kernel raises on these values will be raised again, named, by the step
        return [None] * len(op.outputs)
    tensors: Sequence[AnyTensor] = op.outputs
    outputs: list[np.ndarray[Any, Any] | None] = []
    for value, out in zip(flatten_outputs(result), tensors, strict=True):
        array = np.asarray(value, dtype=out.dtype.as_numpy_dtype).view()
        array.flags.writeable = False
        outputs.append(array)
    return outputs


def partial_vector(tensor: AnyTensor, depth: int = 0) -> list[int | None] | None:
    """The elements of an integer vector as far as they are known; None where not even the length is.

    Follows shapes through the operations with which programs take them apart and put them together
    (`OpDef.partial_value`).
    """
    value = _evaluate(tensor, 0)
    if value is not None:
        return [int(v) for v in value.reshape(-1)] if value.ndim <= 1 else None
    if depth > _MAX_DEPTH:
        return None
    op_def = tensor.op.op_def
    outer = _captured_integers(tensor)
    if outer is not None:
        elements = partial_vector(outer, depth + 1)
    elif op_def.passes_on:
        elements = partial_vector(tensor.op.inputs[tensor.value_index], depth + 1)
    else:
        elements = op_def.partial_rule(tensor, depth + 1) if op_def.partial_rule is not None else None
    if elements is not None:
        return elements
    dims = tensor.shape.dims_tuple
    if dims is None or len(dims) > 1 or (len(dims) == 1 and dims[0] is None):
        return None
    return [None] * (1 if not dims else dims[0] or 0)


def constant_value_as_shape(tensor: AnyTensor) -> TensorShape:
    """The shape that an integer vector describes, as far as it is known; -1 stands for an unknown dimension."""
    if tensor.shape.ndims == 0:
        value = constant_value(tensor)
        if value is not None and int(value) != -1:
            raise ValueError(f"a scalar shape must be -1 (unknown rank), but tensor {tensor.name} is {int(value)}")
        return TensorShape(None)
    elements = partial_vector(tensor)
    if elements is None:
        return TensorShape(None)
    return TensorShape([None if e is None or e < 0 else e for e in elements])


# ---------------------------------------------------------------------- shape rules
class ShapeContext:
    """Passed to shape rules that ask for `ctx`: the inputs' constant values, dtypes, and the output count."""

    __slots__ = ("_attrs", "_grouped", "_op_def")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any], inputs: Sequence[AnyTensor]) -> None:
        self._op_def = op_def
        self._attrs = attrs
        self._grouped = group_by_argument(op_def.inputs, attrs, inputs)

    def tensor(self, name: str) -> Any:
        """The input (a tensor, or a list of them) of that name."""
        for arg, value in zip(self._op_def.inputs, self._grouped, strict=True):
            if arg.name == name:
                return value
        raise KeyError(f"operation {self._op_def.name} has no input {name!r}")

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of an input where it is known while the graph is built."""
        return constant_value(self.tensor(name))

    def constant_as_shape(self, name: str) -> TensorShape:
        """The (partial) shape that an integer vector input describes."""
        return constant_value_as_shape(self.tensor(name))

    def is_from_outside(self, name: str) -> bool:
        """Whether the input follows from what a function, a branch or a loop's body takes from the enclosing graph.

        TensorFlow knows no value of such an input while the body is built, so that a body which is never run may hold
        what cannot be.
        """
        pending, seen = [self.tensor(name)], set()
        while pending:
            tensor = pending.pop()
            if tensor in seen or not isinstance(tensor, Tensor):  # in a step all is known
                continue
            seen.add(tensor)
            if tensor.get_attribute(CAPTURED) is not None or tensor.get_attribute(COPIED) is not None:
                return True
            pending += tensor.op.inputs
        return False

    @property
    def output_count(self) -> int:
        """How many tensors the operation has as outputs, flat."""
        return sum(count_of(arg, self._attrs) for arg in self._op_def.outputs)


def count_of(arg: ArgDef, attrs: dict[str, Any]) -> int:
    """How many tensors an argument stands for."""
    if arg.number_attr is not None:
        count: int = attrs[arg.number_attr]
        return count
    return len(attrs[arg.type_list_attr]) if arg.type_list_attr is not None else 1


def is_open(op: AnyOperation) -> bool:
    """Whether the shapes of an operation's inputs may yet be refused.

    Not all was known of them when it was made, or a refusal was put off (`OpDef.late_shape`).
    """
    if op.op_def.shape_rule is None:
        return False
    return not all(t.shape.is_fully_defined() for t in op.inputs) or any(t.shape.ndims is None for t in op.outputs)


def check_shapes(op: AnyOperation, values: Sequence[Any]) -> list[TensorShape]:
    """Applies an operation's shape rule to the shapes of the values that it meets.

    So kernels need not repeat what the rule says of ranks and sizes. A handle or a list of tensors has the shape that
    is known of its tensor.

    Returns:
        What follows of the shapes of the results, flat.

    Raises:
        ValueError: the shapes do not go together.
    """
    rule = op.op_def.shape_rule
    assert rule is not None
    tensors: Sequence[AnyTensor] = op.inputs
    shapes = [
        tensor.shape if tensor.dtype in _NO_ARRAYS else TensorShape.from_tuple(np.shape(value))
        for tensor, value in zip(tensors, values, strict=True)
    ]
    return flat_shapes(apply_shape_rule(rule, op.op_def, op.attrs, op.inputs, shapes))


def flat_shapes(result: ShapeRuleResult) -> list[TensorShape]:
    """What a shape rule gives, a shape or nested lists of them, as a flat list."""
    if isinstance(result, TensorShape):
        return [result]
    return [] if result is None else [shape for item in result for shape in flat_shapes(item)]


#: combinations of shapes that are remembered for an operation
_MAX_CHECKED = 1024


class ShapeCheck:
    """`check_shapes` for one operation that is called again and again: only shapes that are new are looked at.

    It may be called from several threads.
    """

    __slots__ = ("_checked", "_op", "_positions")

    def __init__(self, op: AnyOperation) -> None:
        self._op = op
        tensors: Sequence[AnyTensor] = op.inputs
        #: the inputs whose shapes are looked at: handles and lists have the shape that is known of their tensors
        self._positions = [at for at, tensor in enumerate(tensors) if tensor.dtype not in _NO_ARRAYS]
        #: the inputs' shapes that were found right before
        self._checked: set[tuple[Any, ...]] = set()

    def __call__(self, values: Sequence[Any]) -> None:
        shapes = tuple([getattr(values[at], "shape", None) for at in self._positions])
        if shapes not in self._checked:
            check_shapes(self._op, values)
            if len(self._checked) >= _MAX_CHECKED:
                self._checked.clear()
            self._checked.add(shapes)


def apply_shape_rule(
    rule: Rule, op_def: OpDef, attrs: dict[str, Any], inputs: Sequence[AnyTensor], shapes: list[TensorShape]
) -> Any:
    """What a shape rule says of inputs of some shapes."""
    grouped = group_by_argument(op_def.inputs, attrs, shapes)
    if op_def.ranks or op_def.late_ranks:
        op_def.check_ranks([s.ndims for s in shape] if isinstance(shape, list) else shape.ndims for shape in grouped)
    known: dict[str, Any] = {}
    for keyword in rule.keywords:
        known[keyword] = ShapeContext(op_def, attrs, inputs) if keyword == "ctx" else attrs[keyword]
    try:
        return rule.function(*grouped, **known)
    except ValueError as error:
        if op_def.refuses_late:
            raise LateShapeError(*error.args) from error
        raise
