"""Running a `_Send` or `_Recv` in a step: the value goes through the step's rendezvous, on its device's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from anabranch.core.devices import Device
from anabranch.core.kernel_context import KernelContext, KernelOperation
from anabranch.core.pending import Pending
from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.runtime.devices import explicit_xla_device, moved_to
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.rendezvous_table import DEAD
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.step_frame import NestedExchange, StepFrame
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall


class TransferContext(KernelContext):
    """The kernel context of `_Send` and `_Recv`."""

    __slots__ = ("_exchange", "_route")

    def __init__(self, op: KernelOperation, exchange: NestedExchange, route: Route) -> None:
        self.op = op
        self._exchange = exchange
        self._route = route

    def send(self, value: TensorValue) -> None:
        """Gives a value to whoever receives it in this task; it stays on its device until then."""
        route = self._route
        self._exchange.send(route.source, route.destination, route.tensor, value)

    def receive(self) -> Any:
        """The value that was sent, copied to the destination device; or a `Pending` for the one that will be."""
        source, destination, tensor, device, _ = self._route
        # what was sent already is taken without a `Pending`, and copied at once
        value = self._exchange.ask(source, destination, tensor)
        if value is DEAD:
            return Pending.completed([DEAD])
        return value if device is None or isinstance(value, Pending) else moved_to(device, value)


class Route(NamedTuple):
    """Where a tensor goes from and to.

    Attributes:
        source, destination: the full names of the devices.
        tensor: the name of the transfer.
        copied_to: the device of this task onto which it is copied when it arrives; None: none.
        leaves: whether it goes to another task.
    """

    source: str
    destination: str
    tensor: str
    copied_to: Device | None
    leaves: bool = False

    @classmethod
    def between(cls, source: Device, destination: Device, tensor: str) -> Route:
        """The route from one device to another."""
        # devices of one type that share memory can share the value as well, for values are never changed
        shared = source.xla_device is destination.xla_device and source.device_type == destination.device_type
        return cls(source.name, destination.name, tensor, None if shared else destination)

    @classmethod
    def of(cls, op: StepNode, devices: Mapping[str, Device]) -> Route:
        """The route of a `_Send` or `_Recv` in a task that has these devices."""
        source, destination, tensor = (
            op.attrs[name].decode() for name in ("send_device", "recv_device", "tensor_name")
        )
        if crosses_tasks(op):
            device = devices.get(destination)
            # islands of JAX's default device take host arrays, and copy them, if they must, when they are called
            return cls(source, destination, tensor, device if explicit_xla_device(device) else None, device is None)
        return cls.between(devices[source], devices[destination], tensor)


class TransferCall(HostKernelCall):
    """A `_Send` or `_Recv` bound to the slots of a step. Values stay on their devices.

    Attributes:
        route: where the tensor goes from and to.
        way: its source, its destination, its name.
        receives: whether it is a `_Recv`.
    """

    def __init__(
        self,
        item: HostCall,
        slots: dict[Any, int],
        outputs: list[int],
        environment: SessionEnvironment,
        waited: tuple[list[StepTensor], list[StepNode]],
    ) -> None:
        """`waited`: the tensors and the operations of its task that it waits for."""
        super().__init__(item, slots, outputs, environment)
        self._waited = [op.name for op in waited[1]]
        self.route = Route.of(self.op, environment.devices)
        self.receives = bool(outputs)
        self.way = self.route.source, self.route.destination, self.route.tensor

    @property
    def sources(self) -> list[str]:
        """The names of the operations whose results it takes: a Recv takes what its Send sent."""
        return super().sources or self._waited

    def slot_for(self, dtype: np.dtype[Any]) -> int | None:
        """Where to store what has come for a `_Recv`; None where an array of this dtype is not stored as it is."""
        is_plain = dtype == self._dtypes[0] and dtype != np.object_ and self.route.copied_to is None
        return self._outputs[0] if is_plain else None

    def start(self, frame: StepFrame) -> Pending | None:
        """Sends, or asks for the value; returns what to wait for, or None when all is done.

        Raises:
            OpError: the destination device cannot take the value.
        """
        exchange = frame.exchange
        assert exchange is not None
        # a `_Recv`; a `_Send` has no outputs
        if self._outputs:
            value = exchange.taken.pop(self.way, None) if exchange.taken else None
            if value is not None:
                if self.route.copied_to is None and value.dtype is self._dtypes[0]:
                    frame.values[self._outputs[0]] = value
                else:
                    self._store(frame.values, (self._brought(value),))
                return None
            result = self._kernel.on_arguments(ctx=TransferContext(self.op, exchange, self.route))
            if isinstance(result, Pending):
                return result
            self._store(frame.values, (result,))
            return None
        ((slot, known),) = self._sources
        value = known if slot is None else frame.values[slot]
        if self.route.leaves:
            # by far the most, and each call of a Python function is a part of what a small step takes
            exchange.send_away(*self.way, value)
        else:
            self._kernel.on_arguments(value, ctx=TransferContext(self.op, exchange, self.route))
        return None

    def finish(self, frame: StepFrame, pending: Pending) -> bool:
        """Stores what has arrived on the device that it is for; or finds that it is dead."""
        try:
            (value,) = pending.wait()
        except OpError as error:
            error.attribute_to(self.op)
            raise
        if value is DEAD:
            return True
        self._store(frame.values, (self._brought(value),))
        return False

    def _brought(self, value: TensorValue) -> TensorValue:
        """What has come from another task, where it is to be."""
        device = self.route.copied_to
        return value if device is None else moved_to(device, value)

    def send_dead(self, frame: StepFrame) -> None:
        """Tells another task that the tensor is dead."""
        assert frame.exchange is not None
        frame.exchange.send_away(*self.way, DEAD)
