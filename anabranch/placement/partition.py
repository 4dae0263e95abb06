"""Partition: one `_Send` and `_Recv` for each tensor and pair of devices that it goes between (§3.3, WP3.2.2).

After this pass no operation takes a tensor of another device: it takes the output of a `_Recv` of its own device.
However many operations of a device take the tensor, it is sent there once. An operation that waits for one of another
device waits for what is received of it, if anything is. The other control edges from one device into an operation of
another become one *signal*: a `_Send` that waits for the earlier operations and carries an empty tensor, and a `_Recv`
that the later one waits for. Operations that wait for the same share it.

Values that are the same in every step, and fed values, are everywhere and not sent.

No edge leads from a `_Send` to its `_Recv`: `StepGraph.transfers` says that they belong together. Devices of one task
are run by one executor; there, a `_Recv` runs after its `_Send` (`passes.dependencies`), so that it is in the same
loop frame and dead when the sent value is dead, and never waits for anything else. Between tasks a `_Recv` waits for
what arrives. It is asked for at the beginning of the step or, in a loop, of the iteration (`placement.control_loops`),
and is dead if what arrives is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from anabranch.core.devices import task_of
from anabranch.core.dtypes import float32
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import find_frames
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph, Transfer
from anabranch.placement.control_loops import Triggers, add_control_loops


def partition(step: StepGraph) -> StepGraph:
    """Adds the Send and Recv operations that a placed step needs."""
    if len({op.placed_on for op in step.operations}) <= 1:
        return step
    return _Partition(*add_control_loops(_without_idle_waits(step))).run()


def _without_idle_waits(step: StepGraph) -> StepGraph:
    """Drops what only waits for operations of other tasks, and for which nothing waits, such as a `tf.group`.

    A step ends when all its tasks have done their parts, so that a message which says so to one of them says nothing
    new; most training steps end in such an operation.
    """
    waiting = Counter(op for later in step.operations for op in (*later.control_inputs, *(t.op for t in later.inputs)))
    targets, dropped = dict.fromkeys(step.targets), set[StepNode]()
    # from the end: what a dropped one has waited for may be the next
    for op in reversed(step.operations):
        home = task_of(op.placed_on)
        if op.type == "NoOp" and not waiting[op] and any(task_of(c.placed_on) != home for c in op.control_inputs):
            dropped.add(op)
            targets.pop(op, None)
            targets.update(dict.fromkeys(op.control_inputs))
            waiting.subtract(op.control_inputs)
    if not dropped:
        return step
    return step.with_operations([op for op in step.operations if op not in dropped], targets=list(targets))


class _Partition(Rewriting):
    """The pairs are made first, in terms of the old graph; then each is put behind the operation that it sends from."""

    def __init__(self, step: StepGraph, triggers: Triggers) -> None:
        super().__init__(step)
        self._triggers = triggers
        # of the step with control loops, whose positions the triggers are noted by; without them nothing is received in
        # a loop from another task
        self._frames = find_frames(Dependencies(step)) if triggers else None
        #: what to insert after each operation, in order
        self._after: dict[StepNode, list[StepNode]] = {}
        self._received: dict[str, dict[StepTensor, StepTensor]] = {}
        self._signalled: dict[tuple[frozenset[StepNode], str], StepNode] = {}
        # to send a signal behind the last of several operations, so that all stand before it
        self._position = {op: at for at, op in enumerate(step.operations)}
        self._named: dict[tuple[StepNode, str], int] = {}
        self._count = 0
        self._transfers: dict[StepNode, Transfer] = {}

    def run(self) -> StepGraph:
        for op in self.step.operations:
            for tensor in op.inputs:
                if self._is_computed(tensor) and tensor.op.placed_on != op.placed_on:
                    self._receive(tensor, op.placed_on)
        # all before anything is kept: they may add pairs behind operations that come earlier
        controls = {op: self._controls(op) for op in self.step.operations}
        for op in self.step.operations:
            received = self._received.get(op.placed_on, {})
            inputs = [received[t] if t in received else self.tensor(t) for t in op.inputs]
            self.keep(op, inputs=inputs, control_inputs=self.nodes(controls[op]))
            # the Send right behind what it sends, and its Recv there as well: an order in which each comes after
            # what it waits for
            for added in self._after.get(op, ()):
                added.inputs = [self.tensor(t) for t in added.inputs]
                added.control_inputs = self.nodes(added.control_inputs)
                self.add(added)
        return self.result(transfers=self._transfers)

    def _is_computed(self, tensor: StepTensor) -> bool:
        return tensor.op in self._members and not tensor.is_known

    def _receive(self, tensor: StepTensor, device: str) -> None:
        received = self._received.setdefault(device, {})
        if tensor not in received:
            received[tensor] = self._pair(tensor, tensor.op, device, []).outputs[0]

    def _controls(self, op: StepNode) -> list[StepNode]:
        """What an operation waits for on its own device, Recvs among it."""
        near: list[StepNode] = []
        far: dict[str, list[StepNode]] = {}
        for control in op.control_inputs:
            received = self._received_of(control, op.placed_on)
            if control.placed_on == op.placed_on:
                near.append(control)
            # its value comes only after it has run, and comes anyhow: one transfer serves both
            elif received is not None:
                near.append(received)
            else:
                # one signal for all operations of a device, sent when all of them have run
                far.setdefault(control.placed_on, []).append(control)
        return near + [self._signal(sources, op.placed_on) for sources in far.values()]

    def _received_of(self, op: StepNode, device: str) -> StepNode | None:
        """A Recv on a device of something that an operation of another computes."""
        received = self._received.get(device, {})
        # one output of a Switch may be dead though the Switch has run
        return (
            next((received[t].op for t in op.outputs if t in received), None)
            if op.op_def.role is not Role.SWITCH
            else None
        )

    def _signal(self, sources: list[StepNode], device: str) -> StepNode:
        """The Recv on a device that completes after operations of another."""
        # the order of the sources does not matter, and operations that wait for the same share the signal
        key = frozenset(sources), device
        if key not in self._signalled:
            last = max(sources, key=self._position.__getitem__)
            # a value without elements: only its coming matters
            value = np.zeros(0, np.float32)
            kind = (float32, TensorShape([0]))
            empty = added_node("Const", last, "signal", outputs=[kind], value=value, dtype=float32).outputs[0]
            # known, so that no operation has to make it
            empty.known = value
            self._signalled[key] = self._pair(empty, last, device, sources)
        return self._signalled[key]

    def _pair(self, tensor: StepTensor, source: StepNode, device: str, controls: list[StepNode]) -> StepNode:
        """Sends `tensor`, which is there once `source` has run, and after `controls`; returns the Recv."""
        self._count += 1
        sender = source.placed_on
        attrs: dict[str, Any] = {
            # numbered, so that no two transfers of a step have one name, by which both ends find each other
            "tensor_name": f"edge_{self._count}_{tensor.name if not controls else '^' + source.name}".encode(),
            "send_device": sender.encode(),
            # TensorFlow's attribute, which nobody here reads: links know incarnations (`distributed.links`)
            "send_device_incarnation": 1,
            "recv_device": device.encode(),
            "client_terminated": False,
        }
        label = f"{tensor.value_index}_" if tensor.value_index else "control_" if controls else ""
        where = f"{label}{_short(sender)}_to_{_short(device)}"
        count = self._named[source, where] = self._named.get((source, where), 0) + 1
        where += f"_{count}" if count > 1 else ""  # signals of which one operation is the last
        send = added_node("_Send", source, f"send_{where}", [tensor], controls, **attrs, T=tensor.dtype)
        kind = (tensor.dtype, tensor.shape)
        recv = added_node("_Recv", source, f"recv_{where}", outputs=[kind], **attrs, tensor_type=tensor.dtype)
        send.placed_on, recv.placed_on = sender, device
        # within a task the Recv comes after its Send, and so into the Send's frame and iteration by itself
        if self._frames is not None and task_of(sender) != task_of(device):
            trigger = self._triggers.get((self._frames.home(source).position, task_of(device)))
            recv.control_inputs = () if trigger is None else (trigger,)
        self._transfers[recv] = Transfer(send, recv, attrs["tensor_name"].decode(), sender, device)
        self._after.setdefault(source, []).extend((send, recv))
        return recv


def _short(device: str) -> str:
    """``CPU_1`` for ``/job:localhost/replica:0/task:0/device:CPU:1``."""
    return device.rpartition(":")[0].rpartition(":")[2] + "_" + device.rpartition(":")[2]
