"""Common subexpressions: of operations that compute the same from the same, keep the first (§5, WP5.1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from anabranch.core.attrs import AttributeValue
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.control_edges import RemovingOperations
from anabranch.passes.step_graph import StepGraph

# what is compared is copied, to be the key of a table: larger arrays are taken to differ
_MAX_COMPARED_BYTES = 4096


def merge_common_subexpressions(step: StepGraph) -> StepGraph:
    """Redirects the consumers of a repeated operation to its first occurrence.

    Operations with state and targets are left alone; except that reads of a variable are merged between which nothing
    of the step writes it. (Inside an island such reads cost nothing, but each would be sent to another device.)
    """
    seen: dict[Hashable, StepNode] = {}
    # the caller asked for these to run, and not only for what they compute
    pinned = set(step.targets)
    constants: dict[Hashable, StepTensor] = {}
    versions = _Versions()
    rewriting = RemovingOperations(step)
    for op in step.operations:
        for tensor in op.inputs:
            if tensor.is_known:
                _merge_constant(tensor, constants, rewriting)
        version = versions.seen_by(op)
        controls = rewriting.inherit(op)
        inputs = [rewriting.tensor(t) for t in op.inputs]
        # inputs and controls in terms of the new graph: where two inputs were merged, their consumers may be merged too
        key = None if op in pinned else _key(op, inputs, version, controls)
        first = None if key is None else seen.get(key)
        if first is not None:
            rewriting.merge(op, first)
            continue
        node = rewriting.keep(op, inputs=inputs, control_inputs=controls)
        if key is not None:
            seen[key] = node
    return rewriting.result()


def _merge_constant(tensor: StepTensor, constants: dict[Hashable, StepTensor], rewriting: RemovingOperations) -> None:
    value = tensor.known
    if isinstance(value, np.ndarray) and value.nbytes <= _MAX_COMPARED_BYTES:
        rewriting.stand_for(tensor, constants.setdefault(_value_key(value) or tensor, tensor))


def _value_key(value: np.ndarray[Any, Any]) -> Hashable:
    """What is equal for equal arrays only; None: nothing is known of them."""
    if value.dtype != np.object_:
        # by its bytes, so that -0.0 is not 0.0 and NaN is what it is
        return value.dtype, value.shape, value.tobytes()
    elements = tuple(value.reshape(-1).tolist())
    return (value.shape, elements) if all(type(element) is bytes for element in elements) else None


class _Versions:
    """Counts, in step order, the operations that may have written each resource."""

    def __init__(self) -> None:
        self._count: dict[ResourceHandle, int] = {}

    def seen_by(self, op: StepNode) -> Hashable:
        """What an operation that only reads variables sees of them, or None for any other; counts those that write."""
        handles = [t.known for t in op.inputs if isinstance(t.known, ResourceHandle)]
        if op.op_def.only_reads and handles:
            # equal for two reads exactly if nothing between them may have written one of the variables
            return tuple([(handle, self._count.get(handle, 0)) for handle in handles])
        # all that is given a handle and does not say that it only reads may write: a call of a function, a loop
        for handle in handles:
            self._count[handle] = self._count.get(handle, 0) + 1
        return None


def _key(op: StepNode, inputs: list[StepTensor], read: Hashable, controls: tuple[StepNode, ...]) -> Hashable:
    op_def = op.op_def
    # to run once is not to run twice where there is state; and what has no outputs has no consumers to redirect
    if (op_def.stateful and read is None) or not op.outputs:
        return None
    if op_def.commutative:
        # any order does that is the same for the same tensors
        inputs = sorted(inputs, key=id)
    attrs = tuple((k, _hashable(op.attrs[k])) for k in op_def.attrs)
    if any(a is _UNHASHABLE for _, a in attrs):
        return None
    # a handle that is known is in `read`: its tensors are not the same
    compared = tuple(inputs) if read is None else tuple(t for t in inputs if not _says_only_the_handle(t))
    # what waits for other operations is not the same, though it has the same inputs
    return (op_def.name, op.device, read, compared, attrs, frozenset(controls))


def _says_only_the_handle(tensor: StepTensor) -> bool:
    """Whether a tensor is a handle and no more: what a Switch or an Enter gives also says when its takers are alive."""
    return isinstance(tensor.known, ResourceHandle) and not tensor.op.op_def.is_primitive


_UNHASHABLE = object()


def _hashable(value: AttributeValue) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, np.ndarray):
        if value.dtype == np.object_ or value.nbytes > _MAX_COMPARED_BYTES:
            return _UNHASHABLE
        return (value.dtype, value.shape, value.tobytes())
    if isinstance(value, TensorShape):
        return ("shape", value.dims_tuple)
    try:
        hash(value)
    except TypeError:
        return _UNHASHABLE
    return value  # type: ignore[no-any-return]
