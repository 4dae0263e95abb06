"""What the task that a process is says of itself: to masters that look for it, and to those who watch a cluster."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from anabranch.errors import NotFoundError
from anabranch.proto.step_plan_pb2 import DeviceDef, LinkActivity, TaskActivity, TaskDescription, VariableActivity
from anabranch.proto.tensors import make_tensor_proto
from anabranch.runtime.devices import session_devices
from anabranch.runtime.protocols import LinkTraffic
from anabranch.runtime.served_sessions import ServedTask


def described(task: ServedTask | None) -> TaskDescription:
    """What a task is.

    Raises:
        NotFoundError: the process is none.
    """
    known = _known(task)
    devices = [
        DeviceDef(
            name=device.name,
            device_type=device.device_type,
            memory_limit=device.memory_limit_bytes,
            incarnation=known.incarnation,
        )
        for device in session_devices(known.config, known.name)
    ]
    return TaskDescription(
        task=known.name, address=dict(known.addresses), device=devices, incarnation=known.incarnation
    )


def activity(task: ServedTask | None, traffic: Sequence[LinkTraffic], variables: Collection[str]) -> TaskActivity:
    """What a task has done so far.

    Args:
        traffic: what went between its process and others.
        variables: those whose values are told along if they are small, by the last parts of their names.

    Raises:
        NotFoundError: the process is none.
    """
    containers = _known(task).state.containers
    return TaskActivity(
        seconds=time.monotonic(),
        ended_steps=containers.rendezvous.ended_steps,
        running_steps=containers.rendezvous.steps,
        link=[LinkActivity(**link._asdict()) for link in traffic],
        variable=[
            VariableActivity(name=name, value=make_tensor_proto(value))
            for name, value in containers.small_values(variables)
        ],
    )


def _known(task: ServedTask | None) -> ServedTask:
    if task is None:
        raise NotFoundError(None, None, "this process is no task of a cluster")
    return task
