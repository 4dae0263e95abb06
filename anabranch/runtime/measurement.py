"""Measuring what operations and transfers cost, for the greedy placer (WP3.2.1)."""

from __future__ import annotations

import functools
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import jax
import numpy as np

from anabranch.core.devices import Device
from anabranch.core.values import TensorValue
from anabranch.placement.cost_model import CostModel
from anabranch.runtime.devices import moved_to
from anabranch.runtime.item_call import ItemEvent
from anabranch.runtime.protocols import Step
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.transfer_call import Route
from anabranch.runtime.worker_threads import worker_threads

_REPEATS: Final = 20
#: bytes of the tensor by which a transfer rate is measured
_LARGE: Final = 1 << 24


def measure_step(
    model: CostModel, step: Step, feeds: Sequence[TensorValue], runs: int, types: Mapping[str, str]
) -> None:
    """Runs a step, once to compile it and then `runs` times, and adds what its islands and host operations took.

    Args:
        types: the type of each device of the session, by its full name.
    """
    events: list[ItemEvent] = []
    # once without being recorded: compiling is not what a step costs
    step.run(feeds)
    for _ in range(runs):
        step.run(feeds, events.append)
    by_name = {op.name: op for op in step.plan.step.operations}
    default = "CPU" if step.plan.placement is None else types[step.plan.placement.default]
    for event in events:
        operations = [by_name[name] for name in event.operations if name in by_name]
        if len(operations) == len(event.operations) and not any(op.op_def.is_transfer for op in operations):
            kind = types[event.device] if event.device else default
            model.add(operations, kind, event.end - event.start)


def measure_transfers(model: CostModel, devices: Sequence[Device]) -> None:
    """Sends a scalar and a large tensor between two devices of each pair of types, and states what that took."""
    by_type: dict[str, list[Device]] = {}
    for device in devices:
        by_type.setdefault(device.device_type, []).append(device)
    for source_type, target_type in itertools.product(by_type, repeat=2):
        source, target = by_type[source_type][0], by_type[target_type][-1]
        latency = _seconds(source, target, 4)
        # without the latency, which the model adds to every transfer
        large = _seconds(source, target, _LARGE) - latency
        copied = source.xla_device is not target.xla_device or source_type != target_type
        model.set_transfer(source_type, target_type, latency, _LARGE / max(large, 1e-9) if copied else 0.0)


def _seconds(source: Device, target: Device, size: int) -> float:
    """The median time that sending a tensor of `size` bytes takes, until it is there.

    Devices run their islands on threads of their own, so that what one sends to another goes from thread to thread.
    """
    value = source.put(np.zeros(size // 4, np.float32))
    taken = []
    with Rendezvous().step(StepId("measurement", 0)) as exchange:
        for number in range(_REPEATS):
            start = time.perf_counter()
            route = Route.between(source, target, str(number))
            _on_a_thread_of_its_own(functools.partial(exchange.send, *route[:3], value))
            received = exchange.ask(*route[:3])
            received = received if route.copied_to is None else moved_to(route.copied_to, received)
            jax.block_until_ready(received)  # type: ignore[no-untyped-call]
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _on_a_thread_of_its_own(work: Callable[[], object]) -> None:
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    worker_threads.submit(run)
    done.wait()
