"""Operations that together pick rows become one, where the host runs them (docs/decisions/0115).

* ``tf.gather(x, tf.where(mask)[:, 0])``, of several tensors for one mask, which is what `tf.boolean_mask` and the
  look-ups of sparse tensors are made of. Mostly a look-up keeps all of its ids, and then nothing is to be done at all.
* Rows at places of which some are none, and give zeros: what the gradients of sums over segments are made of.

What is picked is the same. Steps of several devices and with primitives of control flow keep theirs.
"""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting, needed_by_ends
from anabranch.passes.step_graph import StepGraph


def fuse_rows(step: StepGraph) -> StepGraph:
    """A step in which rows are picked by one operation; itself where there is nothing to put together."""
    if step.transfers or any(op.op_def.is_primitive for op in step.operations):
        return step
    masks = [op for op in step.operations if op.type == "Where" and op.inputs[0].dtype is dtypes.bool]
    users = step.consumers()
    kept = {op: found for op in masks if (found := _gathers(op, users, step))}
    zeros = {op: picked for op in step.operations if (picked := _rows_or_zeros(op)) is not None}
    if not kept and not zeros:
        return step
    rewriting = Rewriting(step)
    placed: set[StepNode] = set()
    for op in step.operations:
        if op in kept:
            flat, gathers = kept[op]
            rewriting.keep(op)  # somebody else may take the places as they are
            _keep_rows(op, flat, gathers, rewriting)
            placed.update(gathers)
        elif op in zeros:
            params, indices = (rewriting.tensor(t) for t in zeros[op])
            types = {"T": params.dtype, "Tindices": indices.dtype}
            outputs = [(op.outputs[0].dtype, op.outputs[0].shape)]
            made = added_node("_RowsOrZeros", op, "rows", [params, indices], (), op.device, outputs, **types)
            node = rewriting.add(made)
            rewriting.take_in(op, node, {0: node.outputs[0]})
        elif op not in placed:
            rewriting.keep(op)
    rewritten = rewriting.result()
    needed = needed_by_ends(rewritten, (op for op in rewritten.operations if op.op_def.stateful))
    return rewritten.with_operations([op for op in rewritten.operations if op in needed])


# ---------------------------------------------------------------------- rows that a mask keeps
def _gathers(
    where: StepNode, users: dict[StepTensor, list[StepNode]], step: StepGraph
) -> tuple[list[StepTensor], list[StepNode]] | None:
    """The vectors that hold the places of a mask, and the gathers by these of what is there before the mask is."""
    if where.inputs[0].shape.ndims != 1 or where.control_inputs or where.after:
        return None
    flat = [op for op in users.get(where.outputs[0], ()) if _is_flattening(op)]
    before = set(step.operations[: step.operations.index(where)])
    gathers = [
        op
        for vector in flat
        for op in users.get(vector.outputs[0], ())
        if op.type == "GatherV2"
        and op.inputs[1] is vector.outputs[0]
        and op.inputs[0] is not vector.outputs[0]
        and _integer(op.inputs[2]) == 0
        and op.attrs["batch_dims"] == 0
        and not (op.control_inputs or op.after or op.inputs[0].is_known)
        and (op.inputs[0].op in before or op.inputs[0] in step.feeds)
        and op.inputs[0].shape.ndims is not None
    ]
    return ([op.outputs[0] for op in flat], gathers) if gathers else None


def _is_flattening(op: StepNode) -> bool:
    """Whether an operation makes a vector of the places of a mask with one dimension."""
    if op.control_inputs or op.after:
        return False
    if op.type == "Reshape":
        return op.inputs[1].is_known and np.array_equal(np.asarray(op.inputs[1].known), [-1])
    if op.type == "Squeeze":
        return op.attrs["squeeze_dims"] in ([1], [-1])
    if op.type != "StridedSlice" or not all(t.is_known for t in op.inputs[1:]):
        return False
    # [:, 0]
    masks = [
        op.attrs[name] for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    ]
    begin, _, strides = (np.asarray(t.known).tolist() for t in op.inputs[1:])
    whole = (masks[0] & 1 or begin[0] == 0) and masks[1] & 1 and strides[0] == 1
    return bool(whole) and masks[2:] == [0, 0, 2] and len(begin) == 2 and begin[1] == 0


def _keep_rows(where: StepNode, flat: list[StepTensor], gathers: list[StepNode], rewriting: Rewriting) -> None:
    values = [op.inputs[0] for op in gathers]
    taken = [rewriting.tensor(t) for t in (where.inputs[0], *values)]
    outputs = [(dtypes.int64, TensorShape([None])), *((op.outputs[0].dtype, op.outputs[0].shape) for op in gathers)]
    names = [op.name.encode() for op in gathers]
    made = added_node(
        "_KeptRows", where, "rows", taken, (), where.device, outputs, T=[t.dtype for t in values], gathers=names
    )
    node = rewriting.add(made)
    for vector in flat:
        rewriting.take_in(vector.op, node, {0: node.outputs[0]})
    for position, op in enumerate(gathers):
        rewriting.take_in(op, node, {0: node.outputs[1 + position]})


# ---------------------------------------------------------------------- rows or zeros
def _rows_or_zeros(op: StepNode) -> tuple[StepTensor, StepTensor] | None:
    """The rows and the places of what gives zeros where a place is negative."""
    if op.type != "SelectV2" or op.control_inputs or op.after or op.outputs[0].shape.ndims is None:
        return None
    valid, rows, other = op.inputs
    if not _is_number(other, 0) or rows.op.type != "GatherV2" or rows.op.attrs["batch_dims"] != 0:
        return None
    params, places, axis = rows.op.inputs
    if _integer(axis) != 0 or places.op.type != "Maximum" or not _is_number(places.op.inputs[1], 0):
        return None
    indices = places.op.inputs[0]
    spread = (params.shape.ndims or 0) - 1
    compared = valid
    for _ in range(spread):
        if compared.op.type != "ExpandDims" or _integer(compared.op.inputs[1]) != -1:
            return None
        compared = compared.op.inputs[0]
    if compared.op.type != "GreaterEqual" or not _is_number(compared.op.inputs[1], 0):
        return None
    if compared.op.inputs[0] is not indices or indices.dtype not in (dtypes.int32, dtypes.int64):
        return None
    if indices.shape.ndims is None or op.outputs[0].shape.ndims != indices.shape.ndims + spread:
        return None
    return params, indices


def _integer(tensor: StepTensor) -> int | None:
    value: TensorValue = tensor.known if tensor.is_known else None
    return int(np.asarray(value).item()) if value is not None and np.size(value) == 1 else None


def _is_number(tensor: StepTensor, number: int) -> bool:
    return tensor.is_known and np.ndim(tensor.known) == 0 and np.asarray(tensor.known).item() == number
