"""What must hold of a step once its operations have devices, and once it is cut between them."""

from __future__ import annotations

from collections.abc import Container

from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import fail

_SENDER_ATTRS = ("tensor_name", "send_device", "recv_device")


def verify_placed(step: StepGraph, devices: Container[str], stage: str) -> None:
    """Raises InternalError unless every operation has one of the session's devices."""
    for op in step.operations:
        if op.placed_on not in devices:
            fail(stage, op, f"is on {op.placed_on!r}, which is no device of the session")


def verify_partitioned(step: StepGraph, stage: str) -> None:
    """Raises InternalError unless devices meet in Send and Recv operations only, each pair under a name of its own.

    No operation takes what one of another device computes, or waits for one. Each Recv has a Send of the same tensor.
    """
    members = set(step.operations)
    names: set[bytes] = set()
    for op in step.operations:
        for tensor in op.inputs:
            if tensor.op in members and not tensor.is_known and tensor.op.placed_on != op.placed_on:
                fail(stage, op, f"on {op.placed_on!r} takes {tensor.name!r} of {tensor.op.placed_on!r}")
        if op.op_def.role is Role.RECEIVE:
            # whoever receives is looked at: a Send without a Recv costs time, a Recv without a Send waits for ever
            _check_pair(op, step, members, names, stage)
        if any(control.placed_on != op.placed_on for control in op.control_inputs):
            fail(stage, op, f"on {op.placed_on!r} waits for an operation of another device")


def _check_pair(recv: StepNode, step: StepGraph, members: set[StepNode], names: set[bytes], stage: str) -> None:
    transfer = step.transfers.get(recv)
    if transfer is None or transfer.send not in members:
        fail(stage, recv, "receives what nothing sends")
    if any(transfer.send.attrs[name] != recv.attrs[name] for name in _SENDER_ATTRS):
        fail(stage, recv, f"receives another tensor than {transfer.send.name!r} sends")
    if recv.attrs["tensor_name"] in names:
        fail(stage, recv, f"receives {recv.attrs['tensor_name'].decode()!r}, as another one does")
    names.add(recv.attrs["tensor_name"])
