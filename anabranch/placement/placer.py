"""The placer: a device for every operation of a step, and for each the reason (§3.3, WP3.2.1, WP4.3).

What is asked (device scopes, or the policy of the session) and what must be together gives groups with feasible devices
(`placement.constraints`). Among these chooses

* the *default* placer, as TensorFlow does: the first device of the session, which is the first accelerator that has the
  kernels, else CPU:0; but an operation that nothing binds goes where its neighbour is if it only describes an
  input (`Shape`), or takes nothing of the step and serves one other operation;
* the *greedy* placer: where the operation would end first (`placement.greedy`).

A variable stays where the first step that touched it found it, unless something asks for another device.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.core.device import DeviceSpec
from anabranch.core.devices import Device, task_of
from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph
from anabranch.placement.bodies import request_of_whole, spans_devices
from anabranch.placement.constraints import Constraints, Group, PlacementRequest
from anabranch.placement.cost_model import CostModel, size_of
from anabranch.placement.greedy import place_greedily
from anabranch.placement.policy import PlacementPolicy
from anabranch.placement.simulation import Input, Job, Simulation


@dataclass(frozen=True, slots=True)
class Assigned:
    """What was asked for an operation, what it got, and why."""

    asked: str
    got: str
    why: str


@dataclass(slots=True)
class Placement:
    """The placement of a step.

    Attributes:
        device: name of an operation -> full device name; empty where everything runs on the session's only device.
        assigned: name -> the report; those that are not listed run on `default`, which nothing contradicts.
        default: where operations without constraints run.
        seconds: what the greedy placer expects the step to take.
    """

    device: dict[str, str] = field(default_factory=dict)
    assigned: dict[str, Assigned] = field(default_factory=dict)
    default: str = ""
    seconds: float | None = None

    def of(self, op: StepNode) -> Assigned:
        """The report for an operation."""
        return self.assigned.get(op.name) or Assigned("", self.default, "the only device")


class Placer:
    """Places the steps of one session. Safe to use from several threads.

    Args:
        devices: those of the session, in the order of preference.
        host_work: whether an operation is work for the host.
        policy: what the session was given.
        soft: what the session's configuration says of soft placement.
        log: whether to print where each operation goes, to the standard error stream (`log_device_placement`).
    """

    def __init__(
        self,
        devices: Sequence[Device],
        host_work: Callable[[StepNode], bool],
        policy: PlacementPolicy | None = None,
        soft: bool = False,
        log: bool = False,
    ) -> None:
        self.devices = list(devices)
        self.policy = policy or PlacementPolicy()
        # a policy is given from outside the program, and knows better than the configuration in it (D12)
        soft = soft if self.policy.soft is None else self.policy.soft
        self._tasks = list(dict.fromkeys(task_of(device.name) for device in self.devices))
        self._constraints = Constraints(self.devices, host_work, self._request, soft)
        self.cost_model = self.policy.cost_model or CostModel()
        self._log = log
        self._logged: set[str] = set()
        # by handle and not by node: each step has nodes of its own, and the variable outlives them
        self._homes: dict[ResourceHandle, str] = {}
        # steps are planned on the threads that ask for them
        self._lock = threading.Lock()

    def _request(self, op: StepNode) -> PlacementRequest:
        return request_of_whole(op, self.policy.request)

    def place(self, step: StepGraph) -> Placement:
        """Chooses a device for every operation of a step; does not change the step.

        Raises:
            InvalidArgumentError: constraints contradict each other, or no device can satisfy them.
        """
        # a session usually has one CPU and no policy, and need not pay for groups that all end there
        placement = Placement(default=self.devices[0].name)
        if not self._has_nothing_to_choose(step):
            placement = self._placed(step)
        if self._log:
            self._print(step, placement)
        return placement

    def task_for(self, request: str) -> str:
        """The task of a resource, as `ResourceHandle.task` says it, of an operation that asks for a device."""
        if len(self._tasks) == 1:
            return ""
        spec = DeviceSpec.from_string(request)
        asked = DeviceSpec(job=spec.job, replica=spec.replica, task=spec.task)
        able = [task for task in self._tasks if asked.covers(DeviceSpec.from_string(task))]
        # where no task is able the request is an error, which is raised with its story when the step is placed
        return (able or self._tasks)[0]

    @property
    def default_device(self) -> str:
        """The full name of the device for what asks for none."""
        return self.devices[0].name

    def check_exists(self, folded: Iterable[StepNode]) -> None:
        """Refuses requests for devices that do not exist, of operations whose results became known.

        Raises:
            InvalidArgumentError: there is no such device.
        """
        self._constraints.check_exists(folded)

    def spans_devices(self, op: StepNode) -> bool:
        """Whether a conditional or loop belongs on several devices, so that it must be lowered before it is placed."""
        # of each operation alone: `_request` would answer for a conditional together with its bodies
        return len(self.devices) > 1 and spans_devices(op, self.policy.request)

    def _has_nothing_to_choose(self, step: StepGraph) -> bool:
        if len(self.devices) > 1 or self.devices[0].device_type != "CPU" or not self.policy.is_trivial:
            return False
        return not any(self._request(op).device for op in step.operations) and not any(
            t.op.device for t in step.known_tensors()
        )

    def _placed(self, step: StepGraph) -> Placement:
        groups = self._constraints.groups(step)
        chosen = [""] * len(groups)
        # to look for homes and to note them is one act: of two first steps on a variable, the second finds the
        # first one's choice
        with self._lock:
            self._choose_homes(groups, chosen)
            if self.policy.placer == "greedy":
                why, seconds = self._greedy(step, groups, chosen)
            else:
                why, seconds = self._default(step, groups, chosen), None
            for group, device in zip(groups, chosen, strict=True):
                for handle in group.resources:
                    self._homes.setdefault(handle, device)
        placement = self._report(groups, chosen, why)
        placement.seconds = seconds
        return placement

    def _choose_homes(self, groups: Sequence[Group], chosen: list[str]) -> None:
        """Groups on variables that earlier steps placed stay with them; a step that asks for more moves them."""
        for at, group in enumerate(groups):
            homes = [self._homes[handle] for handle in group.resources if handle in self._homes]
            # of several variables that are joined only now the first one's home is as good as any: one of them
            # has to move
            able = [home for home in homes if any(device.name == home for device in group.feasible)]
            if able:
                chosen[at] = able[0]
            elif homes:
                for handle in group.resources:
                    # it cannot stay where it is; where it goes is noted when the step has been placed
                    self._homes.pop(handle, None)

    # ------------------------------------------------------------------ default
    def _default(self, step: StepGraph, groups: Sequence[Group], chosen: list[str]) -> list[str]:
        group_of = {op: at for at, group in enumerate(groups) for op in group.members}
        neighbours = _Neighbours(step)
        # what has a device by now has it from its variables (`_choose_homes`)
        why = ["" if not device else "its variable is there" for device in chosen]
        free = [at for at, group in enumerate(groups) if not chosen[at]]
        beside = {at: op for at in free if (op := neighbours.of(groups[at])) is not None}
        # those beside nobody come first, since others follow them
        for at in free:
            if at not in beside:
                chosen[at] = groups[at].feasible[0].name
        for at in free:
            if at in beside:
                self._place_beside(at, beside, groups, group_of, chosen, why)
        return why

    @staticmethod
    def _place_beside(
        at: int,
        beside: Mapping[int, StepNode],
        groups: Sequence[Group],
        group_of: Mapping[StepNode, int],
        chosen: list[str],
        why: list[str],
    ) -> None:
        """Follows neighbours until one has a device; then all on the way get it if they can."""
        way = [at]
        while not chosen[way[-1]]:
            following = group_of[beside[way[-1]]]
            # a ring of neighbours, of which none has a device
            if following in way:
                break
            way.append(following)
        device = chosen[way[-1]]
        # from the one that has a device back to who asked: each follows its neighbour as far as it was followed itself
        for follower in reversed(way[:-1] if device else way):
            able = [d.name for d in groups[follower].feasible]
            chosen[follower] = device if device in able else able[0]
            if device in able and device != able[0]:
                why[follower] = f"beside {beside[follower].name}"
            device = chosen[follower]

    # ------------------------------------------------------------------ greedy
    def _greedy(self, step: StepGraph, groups: Sequence[Group], chosen: list[str]) -> tuple[list[str], float]:
        index = {device.name: at for at, device in enumerate(self.devices)}
        feasible = [
            # a variable that has a home leaves its group no choice
            [index[chosen[at]]] if chosen[at] else [index[device.name] for device in group.feasible]
            for at, group in enumerate(groups)
        ]
        why = ["its variable is there" if device else "" for device in chosen]
        result = place_greedily(Simulation(self._jobs(step, groups), len(self.devices), self._transfer), feasible)
        for at, device in enumerate(result.device_of_group):
            chosen[at] = self.devices[device].name
        said = f"greedy: {result.seconds * 1e6:.0f} µs, one device {result.single_device_seconds * 1e6:.0f} µs"
        why = [reason or (said if len(choices) > 1 else "") for reason, choices in zip(why, feasible, strict=True)]
        return why, result.seconds

    def _jobs(self, step: StepGraph, groups: Sequence[Group]) -> list[Job]:
        group_of = {op: at for at, group in enumerate(groups) for op in group.members}
        position = {op: at for at, op in enumerate(step.operations)}
        types = [device.device_type for device in self.devices]
        jobs = []
        for op in step.operations:
            cost = {kind: self.cost_model.seconds(op, kind) for kind in set(types)}
            inputs = [
                Input(position[t.op], t.value_index, size_of(t))
                for t in op.inputs
                # what is known or fed is everywhere, and costs no transfer
                if t.op in position and not t.is_known
            ]
            inputs += [Input(position[c], -1, 0) for c in op.control_inputs if c in position]
            jobs.append(Job([cost[kind] for kind in types], inputs, group_of[op]))
        return jobs

    def _transfer(self, source: int, destination: int, size: int) -> float:
        kinds = self.devices[source].device_type, self.devices[destination].device_type
        return self.cost_model.transfer_seconds(*kinds, size)

    # ------------------------------------------------------------------ report
    def _report(self, groups: Sequence[Group], chosen: Sequence[str], why: Sequence[str]) -> Placement:
        placement = Placement(default=self.devices[0].name)
        requests = {op: self._constraints.request(op) for group in groups for op in group.members}
        for group, device, reason in zip(groups, chosen, why, strict=True):
            for op in group.members:
                placement.device[op.name] = device
                asked = requests[op].device
                placement.assigned[op.name] = Assigned(asked, device, _why(group, op, requests[op], device, reason))
        # nothing would be sent, and the default needs no name: such a step is planned as one without a placer
        if len({d.xla_device for d in self.devices}) == 1 and set(chosen) <= {placement.default}:
            placement.device = {}
        return placement

    def _print(self, step: StepGraph, placement: Placement) -> None:
        """As TensorFlow does: one line for each operation, once."""
        with self._lock:
            for op in step.operations:
                line = f"{op.name}: ({op.type}): {placement.of(op).got}\n"
                if line not in self._logged:
                    self._logged.add(line)
                    sys.stderr.write(line)


def _why(group: Group, op: StepNode, request: PlacementRequest, got: str, reason: str) -> str:
    asked, source = request.device, request.source
    if group.relaxed:
        return f"soft placement: {group.relaxed}"
    if asked and DeviceSpec.from_string(asked).covers(DeviceSpec.from_string(got)):
        return f"asked for by {source}"
    if group.asked_by:
        other = next(iter(group.asked_by.values()))
        return f"{group.reason or 'colocated'}, and {other.name} is to be there"
    if reason:
        return reason
    if len(group.members) > 1 and group.reason:
        return group.reason
    return "the only device with a kernel" if len(group.feasible) == 1 else "default"


class _Neighbours:
    """Beside which operation one that nothing binds should run."""

    def __init__(self, step: StepGraph) -> None:
        self._members = set(step.operations)
        self._consumers: dict[StepNode, list[StepNode]] = {}
        for op in step.operations:
            for tensor in op.inputs:
                if self._is_computed(tensor):
                    self._consumers.setdefault(tensor.op, []).append(op)

    def of(self, group: Group) -> StepNode | None:
        """The neighbour of a group of one operation, or None."""
        # what is bound to something else is not free to follow; these two rules are TensorFlow's heuristics
        if len(group.members) > 1 or group.asked_by or group.outside:
            return None
        op = group.members[0]
        computed = [t for t in op.inputs if self._is_computed(t)]
        if op.op_def.shape_valued and computed:  # what only describes its input goes where that is
            return computed[0].op
        consumers = list(dict.fromkeys(self._consumers.get(op, ())))
        # it makes something from nothing for one consumer: made there, it need not be sent
        return consumers[0] if not computed and len(consumers) == 1 and len(op.outputs) == 1 else None

    def _is_computed(self, tensor: StepTensor) -> bool:
        return tensor.op in self._members and not tensor.is_known


def apply(step: StepGraph, placement: Placement) -> StepGraph:
    """A step with the devices of a placement."""
    rewriting = Rewriting(step)
    for op in step.operations:
        rewriting.keep(op, placed_on=placement.device[op.name])
    return rewriting.result()
