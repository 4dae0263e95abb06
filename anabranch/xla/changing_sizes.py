"""Which tensors of a step have sizes that the data decides: what takes them would be compiled anew in every step.

`where`, `unique` or `boolean_mask` let through another number of elements in nearly every step, and so do all
operations after them whose shapes follow from that number. They run on the host if they have a kernel that can.

An operation may take such tensors and give what has the same size in each step: the product of a sparse matrix, of
which each step keeps other elements, with a dense one has the rows that the sparse one's *shape* says. Such an
operation states which inputs its sizes come from (`OpDef.sized_by`). The result changes where those do: where the
shape of an input changes, or where its values do not come from outside, as a fed shape does, or follow from what does
not change. A fed shape changes as seldom as that of a fed array, for which islands are compiled as well; so does the
shape of a sparse tensor that comes out of a pipeline (`OpDef.shape_outputs`), though not its number of elements. Nor
does that of a sparse tensor that is fed, so that its parts say it (`SIZE_VARIES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anabranch.core.attrs import SIZE_VARIES
from anabranch.core.op_def import ArgDef
from anabranch.graph.operation import group_by_argument
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph

#: a value computed on the way to a shape may be traced through only if it has at most this many elements
MAX_KEY_ELEMENTS = 16


class ChangingSizes:
    """The tensors of a step whose sizes the data decides.

    Args:
        host: the operations that run on the host in any case.
    """

    def __init__(self, step: StepGraph, host: set[StepNode]) -> None:
        self._step = step
        self._members = set(step.operations)
        self._host = set(host)
        self._changing = {t for t in step.feeds if t.op.attrs.get(SIZE_VARIES) and not t.shape.is_fully_defined()}
        self._steady: dict[StepTensor, bool] = {}
        self._counted: dict[StepTensor, bool] = {}

    def on_host(self) -> set[StepNode]:
        """The operations that run on the host, those among them that do for the sizes of what they take."""
        for op in self._step.operations:
            concerned = any(tensor in self._changing for tensor in self._taken(op))
            concerned = concerned or self._counts_up(op) or self._is_sized_by_count(op)
            if concerned and (has_host_form(op) or op.op_def.portable) and not op.op_def.shape_valued:
                self._host.add(op)
            # a size that the graph fixes does not change, whatever it is computed from
            if concerned or (op in self._host and _decides_sizes(op)):
                open_ones = {t for t in op.outputs if not t.shape.is_fully_defined()}
                self._changing.update(open_ones - self._sized_steadily(op))
        self._count_on_host()
        return self._host

    def _counts_up(self, op: StepNode) -> bool:
        """Whether an operation makes something as large as a tensor whose size changes, of nothing but that size."""
        static = op.op_def.static_positions(op) if op.op_def.portable and not op.op_def.shape_valued else ()
        if not static or not any(self._is_count(op.inputs[position]) for position in static):
            return False
        return all(self._is_count(tensor) or tensor.is_known for tensor in op.inputs)

    def _is_sized_by_count(self, op: StepNode) -> bool:
        """Whether an operation gives as many rows as a tensor whose size changes has, though it takes none such."""
        sized_by = op.op_def.sized_by
        if not op.op_def.portable or sized_by.keys().isdisjoint(op.op_def.static):
            return False
        inputs = _by_argument(op.op_def.inputs, op, op.inputs)
        return any(
            self._follows_from_count(tensor) for name in sized_by if name in op.op_def.static for tensor in inputs[name]
        )

    def _follows_from_count(self, tensor: StepTensor) -> bool:
        """Whether few integers are computed from the size of a tensor whose size changes."""
        if tensor.is_known or not (is_small_integer(tensor) or may_be_shape(tensor)):
            return False
        if tensor not in self._counted:
            op, self._counted[tensor] = tensor.op, False
            computes = op in self._members and op.op_def.portable and not op.op_def.shape_valued
            self._counted[tensor] = self._is_count(tensor) or (
                computes and any(map(self._follows_from_count, op.inputs))
            )
        return self._counted[tensor]

    def _is_count(self, tensor: StepTensor) -> bool:
        """Whether it is the size, or the shape, of a tensor whose size changes."""
        op = tensor.op
        return op in self._members and op.op_def.shape_valued and any(t in self._changing for t in op.inputs)

    def _count_on_host(self) -> None:
        """Sizes of what the host has, which change, and which only the host takes, are found there as well."""
        taken_by: dict[StepNode, list[StepNode]] = {}
        for op in self._step.operations:
            for tensor in op.inputs:
                taken_by.setdefault(tensor.op, []).append(op)
        fetched = {tensor.op for tensor in self._step.fetches}
        for op, users in taken_by.items():
            if op in fetched or not op.outputs or not self._is_count(op.outputs[0]):
                continue
            if self._host.issuperset(users) and self._host.issuperset(t.op for t in op.inputs):
                self._host.add(op)

    def _taken(self, op: StepNode) -> list[StepTensor]:
        """The inputs of an operation; a Recv takes what was sent."""
        transfer = self._step.transfers.get(op)
        return op.inputs if transfer is None else [transfer.tensor]

    def _sized_steadily(self, op: StepNode) -> set[StepTensor]:
        """The outputs of which an operation states what their sizes come from, and where that does not change."""
        op_def = op.op_def
        steady: set[StepTensor] = set()
        sized_by = op_def.sized_by if op_def.sized_rule is None else op_def.sized_rule(op)
        if not (sized_by or op_def.outputs_sized_by or op_def.shape_outputs):
            return steady
        for name, outputs in _by_argument(op_def.outputs, op, op.outputs).items():
            by = op_def.outputs_sized_by.get(name, sized_by)
            for output in outputs:
                if self._is_shape(output) or (by and self._is_sized_by(op, output, by)):
                    steady.add(output)
        return steady

    def _is_sized_by(self, op: StepNode, output: StepTensor, by: Mapping[str, str]) -> bool:
        inputs = _by_argument(op.op_def.inputs, op, op.inputs)
        return all(self._decides_steadily(tensor, kind, output) for name, kind in by.items() for tensor in inputs[name])

    def _decides_steadily(self, tensor: StepTensor, kind: str, output: StepTensor) -> bool:
        """Whether what an input says of an output's size, in one of the ways of `OpDef.sized_by`, does not change."""
        if kind == "shape":
            return tensor not in self._changing
        if kind == "rest":
            return tensor not in self._changing or bool(tensor.shape.ndims and tensor.shape[1:].is_fully_defined())
        if kind in ("rows", "dealt") and not (output.shape.ndims and output.shape[1:].is_fully_defined()):
            return False
        if kind == "dealt":
            # no row comes twice or is missing where all that was dealt out is put together again, as it mostly is
            op = tensor.op
            return op in self._members and op.op_def.deals_out and op.inputs[0] not in self._changing
        return self._has_steady_values(tensor) and not (kind == "sizes" and _leaves_open(tensor, self._members))

    def _is_shape(self, tensor: StepTensor) -> bool:
        """Whether it holds a shape that does not change, by what its operation states."""
        op = tensor.op
        sources = op.op_def.shape_outputs
        if not sources or op not in self._members:
            return False
        for name, outputs in _by_argument(op.op_def.outputs, op, op.outputs).items():
            if tensor in outputs and name in sources:
                inputs = _by_argument(op.op_def.inputs, op, op.inputs)
                return all(self._has_steady_values(taken) for source in sources[name] for taken in inputs[source])
        return False

    def _has_steady_values(self, tensor: StepTensor) -> bool:
        """Whether values that are a shape are fed, or follow from few numbers that are, and from shapes."""
        if tensor.is_known:
            return True
        if tensor not in self._steady:
            computed = self._is_shape(tensor) or self._is_computed_steadily(tensor.op)
            self._steady[tensor] = tensor not in self._changing and computed
        return self._steady[tensor]

    def _is_computed_steadily(self, op: StepNode) -> bool:
        if op not in self._members:
            return True
        taken, op_def = self._taken(op), op.op_def
        if op_def.shape_valued:
            return not any(tensor in self._changing for tensor in taken)
        if op_def.passes_on or op in self._step.transfers:
            return all(self._has_steady_values(tensor) for tensor in taken)
        if op in self._host or not op_def.portable or op_def.stateful:
            return False
        return all(
            t.is_known or ((is_small_integer(t) or may_be_shape(t)) and self._has_steady_values(t)) for t in taken
        )


def _by_argument(args: Sequence[ArgDef], op: StepNode, tensors: Sequence[StepTensor]) -> dict[str, list[StepTensor]]:
    """The inputs or outputs of an operation by the names of its signature."""
    grouped = group_by_argument(args, op.attrs, tensors)
    return {arg.name: list(part) if arg.is_list else [part] for arg, part in zip(args, grouped, strict=True)}


def _leaves_open(shape: StepTensor, members: set[StepNode]) -> bool:
    """Whether a -1 stands in a shape, or in what it is computed from, for what is left; sizes of tensors are none."""
    if shape.is_known:
        return bool(np.any(np.asarray(shape.known) < 0))
    op = shape.op
    if op not in members or op.op_def.shape_valued or op.op_def.shape_outputs:
        return False
    static = op.op_def.static_positions(op)  # axes and bounds, which count from the end where they are negative
    return any(_leaves_open(tensor, members) for i, tensor in enumerate(op.inputs) if i not in static)


def has_host_form(op: StepNode) -> bool:
    """Whether there is a way to run an operation that is not compiled: a host kernel, or to lower it.

    A host kernel that changes rows copies the table, since it has no lock: it is for strings, which nothing else takes.
    """
    if op.op_def.changes_rows:
        return False
    return op.op_def.host_rule is not None or op.op_def.is_functional


def _decides_sizes(op: StepNode) -> bool:
    """Whether the values of the inputs decide the shape of an output."""
    op_def = op.op_def
    if op_def.is_primitive or op_def.calls_user_code:
        return False
    return op_def.compiled_rule is None and not op_def.stateful


def is_small_integer(tensor: StepTensor) -> bool:
    """Whether a tensor is a few integers, or truth values."""
    return (tensor.dtype.is_integer or tensor.dtype.is_bool) and is_small(tensor)


def may_be_shape(tensor: StepTensor) -> bool:
    """Whether it may be the shape of a tensor of unknown rank."""
    return tensor.dtype.is_integer and tensor.shape.ndims == 1 and not tensor.shape.is_fully_defined()


def is_small(tensor: StepTensor) -> bool:
    """Whether a tensor is known to have few elements."""
    size = tensor.shape.num_elements()
    return size is not None and size <= MAX_KEY_ELEMENTS
