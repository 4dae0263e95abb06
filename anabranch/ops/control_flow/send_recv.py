"""Tensors from one device to another: `_Send`, `_Recv` (§3.3, WP3.2.2).

A placed step gets these operations where an edge leaves a device (`placement.partition`); programs do not make them.
What passes between them is kept by the rendezvous of the step (`runtime.rendezvous`), which their context gives them.

The kernel of a Recv gives the value if it was sent already, else a `Pending`. Between devices of one task a Recv runs
after its Send. Hence it is not declared asynchronous, which would keep what follows different Recvs in islands of
their own.
"""

from __future__ import annotations

from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import TransferKernelContext
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op

_ROUTE = "tensor_name: string, send_device: string, send_device_incarnation: int, recv_device: string"

Send = define_op(
    "_Send",
    "tensor: T ->",
    f"T: type, {_ROUTE}, client_terminated: bool = False",
    stateful=True,
    knows_objects=True,
    role=Role.SEND,
)
Send.not_differentiable()


@Send.shape
def _(tensor: TensorShape) -> tuple[()]:
    return ()


@Send.host_kernel
def _(tensor: Array, *, ctx: TransferKernelContext) -> tuple[()]:
    ctx.send(tensor)
    return ()


Recv = define_op(
    "_Recv",
    "-> tensor: tensor_type",
    f"tensor_type: type, {_ROUTE}, client_terminated: bool = False",
    stateful=True,
    role=Role.RECEIVE,
)
Recv.not_differentiable()


@Recv.shape
def _() -> TensorShape:
    return TensorShape(None)


@Recv.host_kernel
def _(*, ctx: TransferKernelContext) -> Any:
    return ctx.receive()
