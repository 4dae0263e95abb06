"""Partition: one `_Send` and `_Recv` for each tensor and pair of devices that it goes between (§3.3, WP3.2.2).

After this pass no operation takes a tensor of another device: it takes the output of a `_Recv` of its own device.
However many operations of a device take the tensor, it is sent there once. An operation that waits for one of another
device waits for what is received of it, if anything is. The other control edges from one device into an operation of
another become one *signal*: a `_Send` that waits for the earlier operations and carries an empty tensor, and a `_Recv`
that the later one waits for. Operations that wait for the same share it.

Values that are the same in every step, and fed values, are everywhere and not sent.

Devices of one process are run by one executor. There, a `_Recv` also waits for its `_Send` by a control edge, so
that it is in the same loop frame and dead when the sent value is dead, and never waits for anything else.

The added operations belong to no graph: they take tensors, but the tensors do not know of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.core.dtypes import float32
from anabranch.core.shapes import TensorShape
from anabranch.graph.loop_structure import SWITCHES
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.detached import detached_operation
from anabranch.passes.step_graph import StepGraph


def partition(step: StepGraph) -> StepGraph:
    """Adds the Send and Recv operations that a placed step needs."""
    if len(set(step.device.values())) <= 1:
        return step
    return _Partition(step).result()


class _Partition:
    def __init__(self, step: StepGraph) -> None:
        self.step = replace(step, known=dict(step.known), device=dict(step.device))
        self._given = {*step.known, *step.feeds}
        #: the pairs to insert after each operation, in order
        self._after: dict[Operation, list[Operation]] = {}
        self._received: dict[str, dict[Tensor, Tensor]] = {}
        self._signalled: dict[tuple[frozenset[Operation], str], Operation] = {}
        self._position = {op: at for at, op in enumerate(step.operations)}
        self._controls: dict[Operation, list[Operation]] = dict(step.controls)
        self._named: dict[tuple[Operation, str], list[Tensor]] = {}
        self._count = 0

    def result(self) -> StepGraph:
        step = self.step
        for op in step.operations:
            device = step.device[op]
            for tensor in step.inputs_of(op):
                if tensor not in self._given and step.device[tensor.op] != device:
                    self._receive(tensor, device)
        for op in step.operations:
            self._receive_controls(op, step.device[op])
        operations = [added for op in step.operations for added in (op, *self._after.get(op, ()))]
        return replace(step, operations=operations, local_alias=self._local_aliases(), controls=self._controls)

    def _receive(self, tensor: Tensor, device: str) -> None:
        received = self._received.setdefault(device, {})
        if tensor not in received:
            received[tensor] = self._pair(tensor, tensor.op, device, [])._outputs[0]

    def _receive_controls(self, op: Operation, device: str) -> None:
        step = self.step
        near: list[Operation] = []
        far: dict[str, list[Operation]] = {}
        for control in step.controls_of(op):
            received = self._received_of(control, device)
            if step.device[control] == device:
                near.append(control)
            elif received is not None:
                near.append(received)
            else:
                far.setdefault(step.device[control], []).append(control)
        if near != step.controls_of(op):
            self._controls[op] = near + [self._signal(sources, device) for sources in far.values()]

    def _received_of(self, op: Operation, device: str) -> Operation | None:
        """A Recv on a device of something that an operation of another computes."""
        received = self._received.get(device, {})
        return next((received[t].op for t in op._outputs if t in received), None) if op.type not in SWITCHES else None

    def _signal(self, sources: list[Operation], device: str) -> Operation:
        """The Recv on a device that completes after operations of another."""
        key = frozenset(sources), device
        if key not in self._signalled:
            last = max(sources, key=self._position.__getitem__)
            empty = detached_operation("Const", last, "signal", [], value=np.zeros(0, np.float32), dtype=float32)
            empty._outputs = [Tensor(empty, 0, float32, TensorShape([0]))]
            self.step.known[empty._outputs[0]] = empty.attrs["value"]
            self._signalled[key] = self._pair(empty._outputs[0], last, device, sources)
        return self._signalled[key]

    def _pair(self, tensor: Tensor, source: Operation, device: str, controls: list[Operation]) -> Operation:
        """Sends `tensor`, which is there once `source` has run, and after `controls`; returns the Recv."""
        step, self._count = self.step, self._count + 1
        here = step.device[source]
        attrs: dict[str, Any] = {
            "tensor_name": f"edge_{self._count}_{tensor.name if not controls else '^' + source.name}".encode(),
            "send_device": here.encode(),
            "send_device_incarnation": 1,
            "recv_device": device.encode(),
            "client_terminated": False,
        }
        label = f"{tensor.value_index}_" if tensor.value_index else "control_" if controls else ""
        where = f"{label}{_short(here)}_to_{_short(device)}"
        same = self._named.setdefault((source, where), [])  # signals of which one operation is the last
        same.append(tensor)
        where += f"_{len(same)}" if len(same) > 1 else ""
        send = detached_operation("_Send", source, f"send_{where}", [tensor], controls, **attrs, T=tensor.dtype)
        recv = detached_operation("_Recv", source, f"recv_{where}", [], [send], **attrs, tensor_type=tensor.dtype)
        recv._outputs = [Tensor(recv, 0, tensor.dtype, tensor.shape)]
        step.device[send], step.device[recv] = here, device
        self._after.setdefault(source, []).extend((send, recv))
        return recv

    def _local_aliases(self) -> dict[str, dict[Tensor, Tensor]]:
        """On each device: the step's aliases, then the received copy."""
        alias = self.step.alias
        return {
            device: {**{t: received.get(stands, stands) for t, stands in alias.items()}, **received}
            for device, received in self._received.items()
        }


def _short(device: str) -> str:
    """``CPU_1`` for ``/job:localhost/replica:0/task:0/device:CPU:1``."""
    return device.rpartition(":")[0].rpartition(":")[2] + "_" + device.rpartition(":")[2]
