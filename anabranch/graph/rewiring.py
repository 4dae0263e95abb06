"""Changes of the edges of a graph that stands already  (docs/decisions/0072).

A batch of changes is made as a whole or not at all. Before it counts, the graph is looked at as it would be: no cycle,
element types that fit, shapes that the operations behind can take. What was found out about values and shapes behind
the changes is found out anew, and sessions forget the plans that they made of the graph as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.constants import constant_value, partial_vector
from anabranch.graph.graph import Graph
from anabranch.graph.inner_values import RECORDS, beside, owner_of
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.ordering import in_execution_order
from anabranch.graph.shape_inference import infer_shapes


class NewInput(NamedTuple):
    """An operation is to take `tensor` as its input number `place`."""

    op: Operation
    place: int
    tensor: Tensor


def rewire(changes: Iterable[NewInput]) -> int:
    """Gives operations other inputs.

    Returns:
        How many inputs are other ones than before.

    Raises:
        RuntimeError: the graph is finalized.
        IndexError: an operation has no input of that number.
        ValueError: a tensor is of another graph or of another type, or its shape cannot be that of the tensor whose
            place it takes; an operation behind cannot take the shapes that follow; the body of a loop, a conditional
            or another function was built for a shape that is known no more; the graph would have a cycle.
    """
    wanted = {(change.op, change.place): change.tensor for change in changes}
    if not wanted:
        return 0
    graph = next(iter(wanted))[0].graph
    graph._check_not_finalized()
    with graph._lock:
        for (op, index), tensor in wanted.items():
            _check_input(graph, op, index, tensor)
        wanted = {key: tensor for key, tensor in wanted.items() if key[0]._inputs[key[1]] is not tensor}
        if not wanted:
            return 0
        count = len(wanted)
        wanted |= _for_those_beside(wanted)
        _exchange(graph, wanted)
    return count


def add_control_inputs(op: Operation, controls: Sequence[Operation]) -> None:
    """Lets an operation wait for others as well.

    Raises:
        RuntimeError: the graph is finalized.
        ValueError: one of them is of another graph, or waits for `op` itself.
    """
    graph = op.graph
    with graph._lock:
        new = [c for c in dict.fromkeys(controls) if c not in op._control_inputs]
        for control in new:
            if control.graph is not graph:
                raise ValueError(
                    f"operation {control.name} is of another graph than operation {op.name}, which cannot wait for it"
                )
        if not new:
            return
        graph._check_not_finalized()
        for control in new:
            op._link_control_input(control)
        try:
            _check_no_cycle([op])
        except ValueError:
            for control in new:
                op._unlink_control_input(control)
            raise
        _note_change(graph)


def remove_control_inputs(op: Operation, controls: Sequence[Operation]) -> None:
    """Lets an operation wait for others no more.

    Raises:
        RuntimeError: the graph is finalized.
        ValueError: it does not wait for one of them; or it gives what is inside of one of them, for a gradient.
    """
    graph = op.graph
    with graph._lock:
        for control in controls:
            if control not in op._control_inputs:
                raise ValueError(f"{control.name} is not a control input of {op.name}")
            if op.op_def.role is Role.BESIDE and control is owner_of(op):
                raise ValueError(
                    f"operation {op.name} ({op.type}) gives what is inside of {control.name}, and must wait for it"
                )
        if controls:
            graph._check_not_finalized()
            for control in dict.fromkeys(controls):
                op._unlink_control_input(control)
            _note_change(graph)


def update_input(op: Operation, index: int, tensor: Tensor) -> None:
    """`Operation._update_input`: one change by itself."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor must be a Tensor: {tensor!r}")
    rewire([NewInput(op, index, tensor)])


Operation.EDIT.update(update_input=update_input, add_control_inputs=add_control_inputs)


def _note_change(graph: Graph) -> None:
    """Lets every session plan anew that runs the graph, or a graph that calls it as a function."""
    around: Graph | None = graph
    while around is not None:
        around._changed()
        around = around.outer_graph


# ---------------------------------------------------------------------- what fits
def _check_input(graph: Graph, op: Operation, index: int, tensor: Tensor) -> None:
    if op.graph is not graph:
        raise ValueError(f"operation {op.name} is of another graph; change one graph at a time")
    if tensor.graph is not graph:
        raise ValueError(f"tensor {tensor.name} is of another graph than operation {op.name}")
    if not 0 <= index < len(op._inputs):
        raise IndexError(f"operation {op.name} has {len(op._inputs)} inputs, and no input {index}")
    old = op._inputs[index]
    if not old.dtype.base_dtype.is_compatible_with(tensor.dtype.base_dtype):
        raise ValueError(
            f"input {index} of operation {op.name} ({op.type}, created at {op.site}) is {old.name} of "
            f"{old.dtype.name}; {tensor.name} of {tensor.dtype.name} cannot take its place: use tf.cast"
        )
    if not old.shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"Cannot update edge, incompatible shapes: input {index} of operation {op.name} ({op.type}, created at "
            f"{op.site}) is {old.name} of shape {old.shape}; {tensor.name} has shape {tensor.shape}. "
            "tf.contrib.graph_editor.graph_replace builds the operations behind anew"
        )


_Inputs = dict[tuple[Operation, int], Tensor]


def _for_those_beside(wanted: _Inputs) -> _Inputs:
    """The same changes for what stands beside a loop or a conditional, which takes what that takes."""
    return {
        (other, len(other._inputs) - len(op._inputs) + index): tensor
        for (op, index), tensor in wanted.items()
        for other in beside(op)
    }


def _check_those_beside(owners: dict[Operation, Operation], replaced: _Inputs) -> None:
    """What stands beside loops and conditionals still does, and the bounds of loops are those of the loops as they are.

    Raises:
        ValueError: they would not.
    """
    for other, owner in owners.items():
        try:
            stays = owner_of(other) is owner
        except InvalidArgumentError:
            stays = False
        if not stays:
            raise ValueError(
                f"operation {other.name} ({other.type}) gives what is inside of {owner.name}, for a gradient: change "
                f"the inputs of {owner.name}, and it follows"
            )
        old = {tensor for (op, _), tensor in replaced.items() if op is owner}
        new = {t for t in owner._inputs if t not in old}
        if old and other.type == RECORDS and old & _behind(other._inputs[0], new):
            raise ValueError(
                f"how often the loop {owner.name} runs was worked out from {', '.join(sorted(t.name for t in old))}, "
                "for a gradient that has been built; change the loop's inputs before calling tf.gradients, or those "
                "of all that takes these tensors"
            )


def _behind(tensor: Tensor, without: set[Tensor]) -> set[Tensor]:
    """All tensors that one is computed from, itself among them; not further than some."""
    found: set[Tensor] = set()
    stack = [tensor]
    while stack:
        one = stack.pop()
        if one not in found and one not in without:
            found.add(one)
            stack.extend(one._op._inputs)
    return found


def _check_no_cycle(changed: Iterable[Operation]) -> None:
    """Operations that were changed do not wait for themselves.

    While every operation was made after all that it waits for there is nothing to look for.

    Raises:
        ValueError: they do.
    """
    starts = list(changed)
    if starts and starts[0].graph._in_creation_order:
        return
    done: set[Operation] = set()
    entered: dict[Operation, None] = {}
    stack = [(op, False) for op in starts]
    while stack:
        op, left = stack.pop()
        if left:
            del entered[op]
            done.add(op)
        elif op in entered:
            names = [other.name for other in list(entered)[list(entered).index(op) :]]
            raise ValueError(
                f"the graph would have a cycle: operation {op.name} (created at {op.site}) would wait for itself, "
                f"through {', '.join(names[1:6]) or op.name}"
            )
        elif op not in done:
            entered[op] = None
            stack.append((op, True))
            before = [t._op for t in op._inputs if not is_back_edge(op, t)]
            stack.extend((other, False) for other in [*before, *op._control_inputs] if other not in done)


# ---------------------------------------------------------------------- the change itself
def _exchange(graph: Graph, wanted: _Inputs) -> None:
    """Makes the changes, or raises and leaves everything as it was."""
    owners = _owners([op for op, _ in wanted])
    replaced = {(op, index): op._inputs[index] for op, index in wanted}
    knowledge = _Knowledge()
    if any(knowledge.of(tensor) != knowledge.of(replaced[key]) for key, tensor in wanted.items()):
        knowledge.note_what_follows_from([op for op, _ in wanted])
    in_order = graph._in_creation_order
    _set_inputs(wanted)
    try:
        changed = list(dict.fromkeys(op for op, _ in wanted))
        _check_no_cycle(changed)
        _check_those_beside(owners, replaced)
        shapes = knowledge.new_shapes(replaced)
    except BaseException:
        _set_inputs(replaced)
        graph._in_creation_order = in_order
        knowledge.restore()
        raise
    for tensor, shape in shapes.items():
        tensor._shape = shape
    _note_change(graph)


def _owners(operations: Iterable[Operation]) -> dict[Operation, Operation]:
    """What stands beside loops or conditionals, with these, among operations that are changed."""
    owners = {other: op for op in operations for other in beside(op)}
    owners.update({op: owner_of(op) for op in operations if op.op_def.role is Role.BESIDE})
    return owners


def _set_inputs(inputs: _Inputs) -> None:
    for (op, index), tensor in inputs.items():
        op._set_input(index, tensor)


class _Known(NamedTuple):
    """What is known of a tensor while the graph is built: its shape, its value, or some elements of that."""

    dims: tuple[int | None, ...] | None
    value: tuple[bytes, str] | None
    elements: tuple[int | None, ...] | None


class _Knowledge:
    """What is known behind the inputs that are exchanged, before and after.

    Values that were worked out are forgotten there, and the shapes follow from the operations' rules anew. What a
    program stated by `set_shape` besides stays as long as what the rule says stays, or only gets more.
    """

    def __init__(self) -> None:
        self._followers: list[Operation] = []
        self._inferred: dict[Operation, list[TensorShape] | None] = {}
        self._before: dict[Tensor, _Known] = {}
        self._values: dict[Tensor, object] = {}

    def of(self, tensor: Tensor) -> _Known:
        value = constant_value(tensor)
        whole = tensor.dtype.is_integer and (tensor.shape.ndims or 0) <= 1
        elements = partial_vector(tensor) if whole and value is None else None
        return _Known(
            tensor.shape.dims_tuple,
            None if value is None else (value.tobytes(), value.dtype.str),
            None if elements is None else tuple(elements),
        )

    def note_what_follows_from(self, changed: Iterable[Operation]) -> None:
        """Takes down what is known of all that follows from some operations, before they are changed."""
        found: set[Operation] = set()
        stack = list(changed)
        while stack:
            op = stack.pop()
            if op not in found:
                found.add(op)
                stack.extend(c for t in op._outputs for c in t._consumers if not is_back_edge(c, t))
        self._followers = list(found)
        for op in self._followers:
            self._inferred[op] = _inferred(op)
            for tensor in (*op._outputs, *op._inputs):
                if tensor not in self._before:
                    self._before[tensor] = self.of(tensor)
        for op in self._followers:
            for tensor in op._outputs:
                self._values[tensor], tensor._constant = tensor._constant, None

    def restore(self) -> None:
        """Undoes what `note_what_follows_from` and `new_shapes` did."""
        for tensor, value in self._values.items():
            tensor._constant = value
            tensor._shape = TensorShape.from_tuple(self._before[tensor].dims)

    def new_shapes(self, replaced: _Inputs) -> dict[Tensor, TensorShape]:
        """The shapes of the tensors of which others are known now.

        Raises:
            ValueError: an operation cannot take what it would get.
        """
        shapes: dict[Tensor, TensorShape] = {}
        others = {tensor for tensor in self._before if tensor not in self._values}
        for op in in_execution_order(self._followers, others):
            before = [self._before[replaced.get((op, i), t)] for i, t in enumerate(op._inputs)]
            now = [self.of(t) for t in op._inputs]
            if before == now:
                continue
            _check_function_inputs(op, before, now)
            for tensor, shape in zip(op._outputs, self._shapes_of(op), strict=True):
                tensor._shape = shapes[tensor] = shape
        return shapes

    def _shapes_of(self, op: Operation) -> list[TensorShape]:
        inferred = infer_shapes(op.op_def, op.attrs, op._inputs, op.name, op.site)
        before = self._inferred[op]
        if before is None:
            return inferred
        return [_stated(tensor, old, new) for tensor, old, new in zip(op._outputs, before, inferred, strict=True)]


def _inferred(op: Operation) -> list[TensorShape] | None:
    try:
        return infer_shapes(op.op_def, op.attrs, op._inputs, op.name, op.site)
    except ValueError:  # what `set_shape` says now the rule would have refused
        return None


def _stated(tensor: Tensor, before: TensorShape, now: TensorShape) -> TensorShape:
    """The shape of a tensor of which a rule said one thing and says another now."""
    if not _tells_as_much(now, before):
        return now
    try:
        return tensor._shape.merge_with(now)
    except ValueError as error:
        raise ValueError(
            f"tensor {tensor.name} (created at {tensor.op.site}) would have shape {now}, and its shape is stated to "
            f"be {tensor._shape}"
        ) from error


def _tells_as_much(shape: TensorShape, other: TensorShape) -> bool:
    """Whether all that is known from `other` is known from `shape`."""
    return shape.is_compatible_with(other) and shape.merge_with(other).dims_tuple == shape.dims_tuple


def _check_function_inputs(op: Operation, before: list[_Known], now: list[_Known]) -> None:
    """The functions that an operation calls were built for the shapes that its inputs had.

    Raises:
        ValueError: less is known of them now.
    """
    if not op.op_def.calls_functions:
        return
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        before_shape, shape = TensorShape.from_tuple(old.dims), TensorShape.from_tuple(new.dims)
        if not _tells_as_much(shape, before_shape):
            raise ValueError(
                f"the functions of operation {op.name} ({op.type}, created at {op.site}) were built for an input "
                f"{index} of shape {before_shape}, and would get one of shape {shape}: state the shape by set_shape"
            )
