"""Partitions to and from messages: how a plan goes to the task that runs it (§3.3; docs/decisions/0036).

A message has tables: of nodes, of tensors, of functions, of frames; everything else refers to them by position. A node
that runs is written with what it takes; one that only lends its name to what is fed or known is written without. What
is read is checked: a position that there is not, an operation type that nobody registered and an attribute of the wrong
kind are refused with InvalidArgumentError before anything is bound.

The same plan is written as the same bytes, whichever process wrote it: tables are filled in the order of the items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import as_dtype
from anabranch.core.op_def import OpDef
from anabranch.core.resources import ResourceHandle
from anabranch.core.roles import Role
from anabranch.errors import InvalidArgumentError
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.graph import op_def_of
from anabranch.graph.loop_bodies import innermost_first
from anabranch.graph.step_nodes import NOT_KNOWN, StepFunction, StepNode, StepTensor
from anabranch.passes.frames import Frame, Frames
from anabranch.proto.attr_values import attr_from_proto, attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue
from anabranch.proto.step_plan_pb2 import (
    CreationSiteDef,
    FrameDef,
    HandleDef,
    PartitionDef,
    PlanItemDef,
    StepFunctionDef,
    StepNodeDef,
    StepTensorDef,
    TransferEndDef,
    WaitDef,
)
from anabranch.proto.tensors import dtype_to_proto, make_ndarray, make_tensor_proto, shape_from_proto, shape_to_proto
from anabranch.xla.islands import Grouping, HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition, TransferEnd

_T = TypeVar("_T")


def partition_to_proto(partition: Partition) -> PartitionDef:
    """The message of a partition.

    Raises:
        TypeError: an attribute cannot be written; the message names the operation.
        ValueError: a value is too large for a message.
    """
    return _PartitionWriter(partition).message


def partition_from_proto(message: PartitionDef) -> Partition:
    """The partition that a message describes, with nodes of its own.

    Raises:
        InvalidArgumentError: the message is not of a partition, or not of one that can run here.
    """
    try:
        return _PartitionReader(message).partition()
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            None, None, f"this is no partition of a step: {error}; send what partition_to_proto gave"
        ) from error


def partition_bytes(partition: Partition) -> bytes:
    """A partition as bytes: equal plans give equal bytes."""
    return partition_to_proto(partition).SerializeToString(deterministic=True)


def handle_to_proto(handle: ResourceHandle) -> HandleDef:
    """The message of a handle."""
    shape = shape_to_proto(handle.shape)
    return HandleDef(container=handle.container, name=handle.name, kind=handle.kind, task=handle.task, shape=shape)


def handle_from_proto(message: HandleDef) -> ResourceHandle:
    """The handle that a message describes."""
    shape = shape_from_proto(message.shape)
    return ResourceHandle(message.container, message.name, message.kind, task=message.task, shape=shape)


# ---------------------------------------------------------------------- writing
class _PartitionWriter:
    def __init__(self, partition: Partition) -> None:
        self.message = PartitionDef(
            task=partition.task, default_device=partition.default_device, follows_order=partition.follows_order
        )
        self._nodes: dict[StepNode, int] = {}
        self._tensors: dict[StepTensor, int] = {}
        self._functions: dict[StepFunction, int] = {}
        self._connected: set[StepNode] = set()
        operations = list(partition.operations)
        # first the nodes that run, in their order, so that equal plans are written alike
        for op in operations:
            self._node(op)
        self._connect(operations)
        self._write_ends(partition)
        for item in partition.items:
            self.message.item.append(self._item(item))
        self._write_order(partition.grouping, operations)

    def _write_ends(self, partition: Partition) -> None:
        message = self.message
        message.feed.extend(map(self._tensor, partition.feeds))
        message.feed_position.extend(partition.feed_positions)
        message.fetch.extend(map(self._tensor, partition.fetches))
        message.fetch_position.extend(partition.fetch_positions)
        message.send.extend(map(_end_to_proto, partition.sends))
        message.receive.extend(map(_end_to_proto, partition.receives))

    def _write_order(self, grouping: Grouping, operations: Sequence[StepNode]) -> None:
        for frame in grouping.frames.all:
            parent = -1 if frame.parent is None else frame.parent.position
            self.message.frame.append(
                FrameDef(name=frame.name, parent=parent, parallel_iterations=frame.parallel_iterations)
            )
        for op in operations:
            tensors, controls = grouping.waits[op]
            self.message.wait.append(
                WaitDef(
                    node=self._node(op),
                    tensor=[self._tensor(t) for t in tensors],
                    control=[self._node(c) for c in controls],
                    order=[self._node(c) for c in grouping.order.get(op, ())],
                    frame=grouping.frames.of[op].position,
                )
            )

    # ---- nodes and tensors
    def _node(self, node: StepNode) -> int:
        """The position of a node, which is written without what it takes when it is first met."""
        position = self._nodes.get(node)
        if position is None:
            # what it takes is written by `_connect`: along the back edge of a loop that comes from a later node
            position = self._nodes[node] = len(self.message.node)
            written = StepNodeDef(
                name=node.name,
                op=node.type,
                device=node.device,
                placed_on=node.placed_on,
                number=node.number,
                origin=node.origin,
                site=CreationSiteDef(filename=node.site[0], line=node.site[1], function=node.site[2]),
            )
            for name, value in node.attrs.items():
                written.attr[name].CopyFrom(_attr_to_proto(node, name, value))
            self.message.node.append(written)
            # the outputs, in their order, before anything else comes among the tensors
            self.message.node[position].output.extend([self._tensor(t) for t in node.outputs])
        return position

    def _tensor(self, tensor: StepTensor) -> int:
        position = self._tensors.get(tensor)
        if position is None:
            node = self._node(tensor.op)
            if tensor in self._tensors:  # an output of the node that was written just now
                return self._tensors[tensor]
            position = self._tensors[tensor] = len(self.message.tensor)
            outputs = tensor.op.outputs
            own = tensor.value_index < len(outputs) and outputs[tensor.value_index] is tensor
            written = StepTensorDef(
                node=node,
                value_index=tensor.value_index,
                apart=not own,
                dtype=dtype_to_proto(tensor.dtype),
                shape=shape_to_proto(tensor.shape),
            )
            if tensor.is_known:
                _write_known(written, tensor)
            self.message.tensor.append(written)
        return position

    def _connect(self, operations: Iterable[StepNode]) -> None:
        """Writes what nodes that run take, and the functions that they call: once, functions can share nodes."""
        for op in operations:
            if op in self._connected:
                continue
            self._connected.add(op)
            written = self.message.node[self._node(op)]
            written.input.extend([self._tensor(t) for t in op.inputs])
            written.control_input.extend([self._node(c) for c in op.control_inputs])
            written.after.extend([self._node(a) for a in op.after])
            for name, body in sorted(op.functions.items(), key=lambda item: item[0]):
                written.function[name] = self._function(body)

    def _function(self, body: StepFunction) -> int:
        if body not in self._functions:
            for inner in innermost_first(body, self._functions.__contains__):
                self._write_function(inner)
        if body not in self._functions:  # one that no operation calls while it is compiled
            self._write_function(body)
        return self._functions[body]

    def _write_function(self, body: StepFunction) -> None:
        written = StepFunctionDef(
            name=body.name,
            input=[self._tensor(t) for t in body.inputs],
            operation=[self._node(op) for op in body.operations],
            colocated={name: self._node(op) for name, op in body.colocated.items()},
        )
        self._connect(body.operations)
        written.output.extend([self._tensor(t) for t in body.outputs])
        self._functions[body] = len(self.message.function)
        self.message.function.append(written)

    # ---- items
    def _item(self, item: PlanItem) -> PlanItemDef:
        written = PlanItemDef(level=item.level, device=item.device)
        written.operation.extend(map(self._node, item.operations))
        if isinstance(item, Island):
            written.is_island = True
            for field, tensors in (
                (written.input, item.inputs),
                (written.static_input, [t for t in item.inputs if t in item.static]),
                (written.output, item.outputs),
                (written.known, item.known),
                (written.constant, item.constants),
            ):
                field.extend(map(self._tensor, tensors))
            written.read.extend(map(handle_to_proto, item.reads))
            written.write.extend(map(handle_to_proto, item.writes))
            written.random.extend(map(self._node, item.random))
        return written


def _attr_to_proto(node: StepNode, name: str, value: AttributeValue) -> AttrValue:
    definition = node.op_def.attrs.get(name)
    try:
        if definition is not None and definition.kind == "tensor" and "dtype" in node.attrs:
            # an empty array of objects does not tell what it would hold
            return AttrValue(tensor=make_tensor_proto(value, node.attrs["dtype"]))
        return attr_to_proto(None if definition is None else definition.kind, value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"operation {node.name!r} ({node.type}): cannot write the attribute {name!r}: {error}"
        ) from error


def _write_known(written: StepTensorDef, tensor: StepTensor) -> None:
    if isinstance(tensor.known, ResourceHandle):
        written.handle.CopyFrom(handle_to_proto(tensor.known))
    elif tensor.known is tensor.op.attrs.get("value"):
        written.attribute = True
    else:
        written.value.CopyFrom(make_tensor_proto(tensor.known, tensor.dtype))


def _end_to_proto(end: TransferEnd) -> TransferEndDef:
    return TransferEndDef(
        tensor=end.tensor,
        source=end.source,
        destination=end.destination,
        dtype=dtype_to_proto(end.dtype),
        shape=shape_to_proto(end.shape),
        size=end.size,
    )


# ---------------------------------------------------------------------- reading
class _PartitionReader:
    def __init__(self, message: PartitionDef) -> None:
        self._message = message
        self._nodes = [_node_from_proto(node) for node in message.node]
        self._tensors: list[StepTensor] = []
        # nodes first, then tensors, then what nodes take: a Merge takes what comes after it
        for tensor in message.tensor:
            self._tensors.append(self._tensor(tensor))
        for node, written in zip(self._nodes, message.node, strict=True):
            node.inputs = self._all(self._tensors, written.input)
            node.control_inputs = tuple(self._all(self._nodes, written.control_input))
            node.after = tuple(self._all(self._nodes, written.after))
        functions = [self._function(function) for function in message.function]
        for node, written in zip(self._nodes, message.node, strict=True):
            node.functions = {name: _at(functions, at) for name, at in sorted(written.function.items())}

    def partition(self) -> Partition:
        message = self._message
        feeds, fetches = self._all(self._tensors, message.feed), self._all(self._tensors, message.fetch)
        feed_positions, fetch_positions = list(message.feed_position), list(message.fetch_position)
        if len(feeds) != len(feed_positions) or len(fetches) != len(fetch_positions):
            raise ValueError("its feeds or fetches have no positions")
        return Partition(
            message.task,
            message.default_device,
            self._grouping(),
            feeds,
            feed_positions,
            fetches,
            fetch_positions,
            [_end_from_proto(end) for end in message.send],
            [_end_from_proto(end) for end in message.receive],
            message.follows_order,
        )

    @staticmethod
    def _all(table: Sequence[_T], positions: Iterable[int]) -> list[_T]:
        return [_at(table, position) for position in positions]

    def _tensor(self, message: StepTensorDef) -> StepTensor:
        node = _at(self._nodes, message.node)
        which = message.WhichOneof("known")
        known: Any = NOT_KNOWN
        if which == "handle":
            known = handle_from_proto(message.handle)
        elif which == "attribute":
            known = node.attrs["value"]
        elif which == "value":
            known = make_ndarray(message.value)
        shape = shape_from_proto(message.shape)
        tensor = StepTensor(node, message.value_index, as_dtype(message.dtype), shape, known)
        if not message.apart:
            if message.value_index != len(node.outputs):
                raise ValueError(f"the outputs of {node.name!r} are not in order")
            node.outputs.append(tensor)
        return tensor

    def _function(self, message: StepFunctionDef) -> StepFunction:
        return StepFunction(
            message.name,
            self._all(self._tensors, message.input),
            self._all(self._tensors, message.output),
            self._all(self._nodes, message.operation),
            {name: _at(self._nodes, position) for name, position in sorted(message.colocated.items())},
        )

    def _grouping(self) -> Grouping:
        frames = self._frames()
        waits: dict[StepNode, tuple[list[StepTensor], list[StepNode]]] = {}
        order: dict[StepNode, list[StepNode]] = {}
        for message in self._message.wait:
            node = _at(self._nodes, message.node)
            waits[node] = self._all(self._tensors, message.tensor), self._all(self._nodes, message.control)
            if message.order:
                order[node] = self._all(self._nodes, message.order)
            frames.of[node] = _at(frames.all, message.frame)
        items = [self._item(item) for item in self._message.item]
        for item in items:
            for op in item.operations:
                if op not in waits:
                    raise ValueError(f"it does not say what {op.name!r} waits for")
                if op.op_def.role is Role.ENTER:
                    frames.entered(op)
        return Grouping(items, waits, order, frames)

    def _frames(self) -> Frames:
        frames = Frames([])
        for position, message in enumerate(self._message.frame):
            parent = None if message.parent < 0 else _at(frames.all, message.parent)
            frames.add(Frame(message.name, parent, message.parallel_iterations, position))
        if not frames.all or frames.all[0].parent is not None:
            raise ValueError("it has no root frame")
        return frames

    def _item(self, message: PlanItemDef) -> PlanItem:
        operations = self._all(self._nodes, message.operation)
        if not message.is_island:
            (operation,) = operations
            return HostCall(operation, message.level)
        if not operations:
            raise ValueError("an island has no operations")
        return Island(
            operations,
            message.level,
            message.device,
            self._all(self._tensors, message.input),
            frozenset(self._all(self._tensors, message.static_input)),
            self._all(self._tensors, message.output),
            [handle_from_proto(handle) for handle in message.read],
            [handle_from_proto(handle) for handle in message.write],
            self._all(self._nodes, message.random),
            {t: t.known for t in self._all(self._tensors, message.known)},
            self._all(self._tensors, message.constant),
        )


def _at(table: Sequence[_T], position: int) -> _T:
    if not 0 <= position < len(table):
        raise ValueError(f"it refers to number {position} of {len(table)}")
    return table[position]


def _node_from_proto(message: StepNodeDef) -> StepNode:
    try:
        op_def = op_def_of(message.op)
    except ValueError as error:
        raise ValueError(f"{message.name!r} is of type {message.op!r}, which is not registered here") from error
    site = CreationSite(message.site.filename, message.site.line, message.site.function)
    attrs = _attrs_from_proto(message.attr, op_def)
    node = StepNode(op_def, message.name, [], (), attrs, message.device, message.number, site, message.origin, {})
    node.placed_on = message.placed_on
    return node


def _attrs_from_proto(messages: Mapping[str, AttrValue], op_def: OpDef) -> dict[str, AttributeValue]:
    """The attributes in the order of the signature, the annotations after them: kernels do not care, writers do."""
    attrs = {}
    for name in [*(n for n in op_def.attrs if n in messages), *sorted(n for n in messages if n not in op_def.attrs)]:
        definition = op_def.attrs.get(name)
        attrs[name] = attr_from_proto(messages[name], None if definition is None else definition.kind)
    return attrs


def _end_from_proto(message: TransferEndDef) -> TransferEnd:
    dtype, shape = as_dtype(message.dtype), shape_from_proto(message.shape)
    return TransferEnd(message.tensor, message.source, message.destination, dtype, shape, message.size)
