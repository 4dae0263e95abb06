"""What a step's placement must respect: requests, colocation groups, and which devices have the kernels (§3.3, WP4.3).

Union-find joins the operations that must share a device into *groups*:

* an operation whose attribute `_class` lists ``loc:@x`` joins the group of that name, and so does the operation x;
* a Merge that begins an iteration, and the NextIteration whose value it takes, join the Enter whose value it takes;
* an operation that takes a resource handle joins the operation that made it, and all others that touch the resource;
  except one that calls functions on resources of several devices, which has to reach over to some of them.

The requests of a group's members are merged part by part (``/job:a`` and ``/device:CPU:1`` make
``/job:a/device:CPU:1``); two that contradict each other are an error that names both. Only where a resource lives is
decided by the operation that makes it: what a user of the resource asks for is ignored if it contradicts that, as in
TensorFlow. The devices left are those that the merged request covers and that have a kernel for every member.

With soft placement a request that no device can satisfy loses its device number, then its device type; and of two
contradictory requests the one of the operation created first counts.

Operations that are not part of the step (a variable's handle, which is known when a step is planned; a colocated
operation that does not run) take part with their requests, so that all steps of a session agree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.core.colocation import colocation_leader
from anabranch.core.device import DeviceSpec
from anabranch.core.devices import Device
from anabranch.core.resources import ResourceHandle
from anabranch.errors import InvalidArgumentError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.step_graph import StepGraph

#: the source of what a program's device scopes ask for
PROGRAM: Final = "tf.device"
_FIELDS = ("job", "replica", "task", "device_type", "device_index")
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What was asked for an operation, and by whom: "tf.device", or a rule of the placement policy."""

    device: str
    source: str = PROGRAM


@dataclass(slots=True)
class Group:
    """Operations that must share a device.

    Attributes:
        members: those of the step, in step order.
        outside: those that only lend their requests.
        resources: the resources that the members touch.
        followers: members that belong to the group for nothing but a resource that they take.
        spec: the merged request.
        asked_by: part of the spec -> the operation whose request states it.
        feasible: the devices that may be chosen, in the order in which the session prefers them.
        relaxed: what soft placement had to give up, in words; empty: nothing.
        reason: why the members belong together.
    """

    members: list[StepNode] = field(default_factory=list)
    outside: list[StepNode] = field(default_factory=list)
    resources: list[ResourceHandle] = field(default_factory=list)
    followers: set[StepNode] = field(default_factory=set)
    spec: DeviceSpec = field(default_factory=DeviceSpec)
    asked_by: dict[str, StepNode] = field(default_factory=dict)
    feasible: list[Device] = field(default_factory=list)
    relaxed: str = ""
    reason: str = ""


class UnionFind:
    """Disjoint sets of hashable things, with path halving and union by size."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._size: dict[Hashable, int] = {}

    def find(self, item: Hashable) -> Hashable:
        """The representative of an item's set; a new item is a set of its own."""
        parent = self._parent
        if item not in parent:
            parent[item], self._size[item] = item, 1
            return item
        # path halving: each look-up shortens the way for the next; a second pass over the way is not needed
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def union(self, a: Hashable, b: Hashable) -> None:
        """Joins the sets of two items."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        # the smaller set goes below, so that ways grow with the logarithm of the size
        if self._size[a] < self._size[b]:
            a, b = b, a
        self._parent[b] = a
        self._size[a] += self._size[b]


def request_of_graph(op: StepNode) -> PlacementRequest:
    """What the program's device scopes ask for an operation."""
    return PlacementRequest(op.device)


@dataclass(slots=True)
class Constraints:
    """Finds the groups of steps.

    Args:
        devices: those of the session, in the order of preference.
        host_work: whether an operation is work for the host, which only a CPU does.
        request: what is asked for an operation.
        soft: whether requests that cannot be satisfied are given up.
    """

    devices: Sequence[Device]
    host_work: Callable[[StepNode], bool]
    request: Callable[[StepNode], PlacementRequest] = request_of_graph
    soft: bool = False

    def groups(self, step: StepGraph) -> list[Group]:
        """The groups of a step, in the order of their first members, each with the devices that may run it.

        Raises:
            InvalidArgumentError: requests contradict each other, or no device can satisfy one. The message names the
                operations, where they were created, and the devices that there are.
        """
        groups = _Joining(step, self.request).groups()
        # all requests of a group before its devices: what one member asks for may leave another no choice
        for group in groups:
            self._merge_requests(group)
            self._find_feasible(group)
        return groups

    def check_exists(self, operations: Iterable[StepNode]) -> None:
        """Checks requests of operations that are not placed because their results are known.

        Raises:
            InvalidArgumentError: one asks for a device that does not exist.
        """
        # one operation for each request is enough: most of a program ask for the same few devices
        for asked, op in {self.request(op).device: op for op in operations}.items():
            alone = Group([op], spec=DeviceSpec.from_string(asked), asked_by={"device": op} if asked else {})
            # it would be given up if the operation were placed; only job and task would not
            if self.soft:
                alone.spec = alone.spec.replace(device_index=None, device_type=None)
            if not any(alone.spec.covers(device.spec) for device in self.devices):
                raise self._infeasible(alone)

    # ------------------------------------------------------------------ requests
    def _merge_requests(self, group: Group) -> None:
        # the operation that made a resource says where it lives; then the order of creation decides
        everybody = sorted([*group.outside, *group.members], key=lambda op: op.number)
        stated = [(op, request) for op in everybody if (request := self.request(op)).device]
        # what the policy says of one member overrides what the program says of any
        ruled = [(op, request) for op, request in stated if request.source != PROGRAM]
        for op, request in ruled or stated:
            self._merge(group, op, DeviceSpec.from_string(request.device))

    def _merge(self, group: Group, op: StepNode, asked: DeviceSpec) -> None:
        # part by part: a request may be partial, and two that state different parts do not contradict each other
        stated = {part: value for part in _FIELDS if (value := getattr(asked, part)) is not None}
        clashes = [part for part, value in stated.items() if getattr(group.spec, part) not in (None, value)]
        if clashes:
            self._ignore(group, op, clashes)
            return
        for part, value in stated.items():
            if getattr(group.spec, part) is None:
                setattr(group.spec, part, value)
                group.asked_by[part] = op

    def _ignore(self, group: Group, op: StepNode, clashes: list[str]) -> None:
        """Goes on without what an operation asks for, if that is allowed."""
        first = group.asked_by[clashes[0]]
        # as TensorFlow: an optimizer or a tower may name its own device around the variables of another
        if op in group.followers:
            return
        # soft placement never gives up job or task: what is there, files and variables, is not anywhere else
        if not self.soft or not {"device_type", "device_index"}.issuperset(clashes):
            raise self._contradiction(group, first, op)
        group.relaxed = f"{op.name} asks for {self._asked(op)}, and {first.name}, beside it, for another device"

    def _contradiction(self, group: Group, first: StepNode, second: StepNode) -> InvalidArgumentError:
        return InvalidArgumentError(
            None,
            second,
            f"operation {second.name!r} ({second.type}) asks for device {self._asked(second)}, but must share the "
            f"device of {first.name!r} ({first.type}, created at {first.site}), which asks for {self._asked(first)}: "
            f"{group.reason or 'they are colocated'}. Give both the same device, remove one request, or allow soft "
            "placement (ConfigProto(allow_soft_placement=True))",
        )

    def _asked(self, op: StepNode) -> str:
        request = self.request(op)
        return f"{request.device!r}" + ("" if request.source == PROGRAM else f" (by {request.source})")

    # ------------------------------------------------------------------ devices
    def _find_feasible(self, group: Group) -> None:
        group.feasible = self._able(group, group.spec)
        if group.feasible:
            return
        if not self.soft:
            raise self._infeasible(group)
        # as little as possible is given up: the number first
        for given_up in (("device_index",), ("device_index", "device_type")):
            spec = group.spec.replace(**dict.fromkeys(given_up))
            group.feasible = self._able(group, spec)
            if group.feasible:
                # what was given up while the requests were merged has been told already
                group.relaxed = group.relaxed or self._why_not(group)
                return
        raise self._infeasible(group)

    def _able(self, group: Group, spec: DeviceSpec) -> list[Device]:
        asked = spec.device_type is not None
        return [
            d for d in self.devices if spec.covers(d.spec) and all(self.can_run(d, op, asked) for op in group.members)
        ]

    def can_run(self, device: Device, op: StepNode, asked: bool = True) -> bool:
        """Whether a device has a kernel for an operation.

        Args:
            asked: whether a device of its type is asked for.
        """
        # strings, files and Python functions are work of the host, whose devices are the CPUs (0016)
        of_host = device.device_type != "CPU" and self.host_work(op) and not (asked and op.op_def.obeys_requests)
        return not of_host and device.supports(op)

    def _why_not(self, group: Group) -> str:
        covered = [d for d in self.devices if group.spec.covers(d.spec)]
        if not covered:
            return f"there is no device {group.spec.to_string()}"
        # there is one: if every device that is covered could run every member, one of them would have been feasible
        asked = group.spec.device_type is not None
        unable = next(op for op in group.members if not all(self.can_run(d, op, asked) for d in covered))
        return f"no kernel for {unable.type} on {group.spec.to_string() or 'any one device'}"

    def _infeasible(self, group: Group) -> InvalidArgumentError:
        covered = [d for d in self.devices if group.spec.covers(d.spec)]
        # the operation that first stated a part is who has to be told, though another of the group may be the one
        # that cannot
        asking = next(iter(group.asked_by.values()), group.members[0])
        asked = group.spec.device_type is not None
        unable = [op for op in group.members if covered and not any(self.can_run(d, op, asked) for d in covered)]
        op = unable[0] if unable else asking if asking in group.members else group.members[0]
        available = ", ".join(d.name for d in self.devices[:_MAX_LISTED])
        return InvalidArgumentError(
            None,
            op,
            f"Cannot assign a device for operation {op.name}: {self._problem(group, op, asking, bool(covered))}. "
            f"Available: {available}. Ask for one of these, for more devices (ConfigProto(device_count=...)), or allow "
            "soft placement (ConfigProto(allow_soft_placement=True))",
        )

    def _problem(self, group: Group, op: StepNode, asking: StepNode, exists: bool) -> str:
        by = "" if asking is op else f" (asked for by {asking.name!r}, created at {asking.site}: {group.reason})"
        if not group.asked_by:
            kinds = sorted({member.type for member in group.members})
            return f"no one device has kernels for all of {', '.join(kinds[:_MAX_LISTED])}, which must share one"
        if not exists:
            return f"there is no device {group.spec.to_string()!r}{by}"
        return f"no kernel for {op.type} on {group.spec.to_string()!r}{by}"


def _reaches_over(op: StepNode, request: Callable[[StepNode], PlacementRequest]) -> bool:
    """Whether an operation calls functions on resources for which several devices are asked."""
    if not op.op_def.calls_functions:
        return False
    # only calls: any other operation takes its resources itself, and runs where they are
    return len({request(t.op).device for t in op.inputs if t.dtype.name == "resource"} - {""}) > 1


class _Joining:
    """The groups of one step, before anything is asked for them."""

    def __init__(self, step: StepGraph, request: Callable[[StepNode], PlacementRequest]) -> None:
        self._step = step
        self._request = request
        self._sets = UnionFind()
        self._members = set(step.operations)
        # operations that run come last, and prevail: an operation that runs is placed, and not only asked
        self._by_name = {**step.colocated, **{op.name: op for op in step.operations}}
        self._outside: dict[StepNode, None] = {}
        self._reasons: dict[StepNode, str] = {}
        self._colocated: set[StepNode] = set()
        self._consumers: set[StepNode] = set()

    def groups(self) -> list[Group]:
        for op in self._step.operations:
            # it has a group also where nothing joins it to another
            self._sets.find(op)
            self._join_class(op)
            self._join_resources(op)
        seen = 0
        while seen < len(self._outside):  # what lends its request may be colocated in its turn
            later = list(self._outside)[seen:]
            seen = len(self._outside)
            for op in later:
                self._join_class(op)
        return self._collect()

    def _join_class(self, op: StepNode) -> None:
        for group in op.attrs.get("_class", ()):
            name = colocation_leader(group)
            if name is None:
                continue
            # the name itself is a member, so that operations meet there of which the one so named is not in the step
            self._sets.union(op, group)
            self._colocated.add(op)
            self._reasons[op] = f"it is colocated with {name!r}"
            other = self._by_name.get(name)
            if other is not None and other is not op:
                self._lend(other)
                self._sets.union(op, other)

    def _join_resources(self, op: StepNode) -> None:
        # joined to all of its resources it would join them to each other, and their requests contradict
        if _reaches_over(op, self._request):
            return
        for tensor in op.inputs:
            value = tensor.known
            if isinstance(value, ResourceHandle):
                # with the handle, which is the same in every use, and not only with the operation that gives it
                self._sets.union(op, value)
                self._consumers.add(op)
                self._reasons[op] = f"both use the {value}"
                self._lend(tensor.op)
                self._sets.union(op, tensor.op)
            elif is_back_edge(op, tensor):
                self._join_iterations(op)
            elif tensor.dtype.name == "resource" and tensor.op in self._members:
                self._sets.union(op, tensor.op)
                self._consumers.add(op)
                self._reasons[op] = f"it takes the resource of {tensor.op.name!r}"

    def _join_iterations(self, merge: StepNode) -> None:
        """A Merge, and what it takes from iteration to iteration, are where the Enter of the loop variable is.

        A value from another device would have to be received in the first iteration, or in all but the first, and what
        is received in a loop is received in each.
        """
        for tensor in merge.inputs:
            self._sets.union(merge, tensor.op)
            self._reasons[tensor.op] = f"{merge.name!r} takes its value from iteration to iteration"
            # like the users of a resource: what they ask for themselves yields to what the Enter asks for
            if is_back_edge(merge, tensor):
                self._consumers.update((merge, tensor.op))

    def _lend(self, op: StepNode) -> None:
        if op not in self._members:
            self._outside[op] = None

    def _collect(self) -> list[Group]:
        groups: dict[Hashable, Group] = {}
        for op in self._step.operations:
            # a dictionary keeps the order of the first members, on which the report and the placers' choices depend
            groups.setdefault(self._sets.find(op), Group()).members.append(op)
        for op in self._outside:
            group = groups.get(self._sets.find(op))
            # it may have been joined to others outside of the step alone
            if group is not None:
                group.outside.append(op)
        for handle in self._handles():
            group = groups.get(self._sets.find(handle))
            if group is not None and handle not in group.resources:
                group.resources.append(handle)
        for group in groups.values():
            # who was colocated by name has asked for it, and contradicting that stays an error
            group.followers = {op for op in group.members if op in self._consumers} - self._colocated
            group.reason = next((self._reasons[op] for op in group.members if op in self._reasons), "")
        return list(groups.values())

    def _handles(self) -> Iterable[ResourceHandle]:
        return dict.fromkeys(v for v in self._step.known_tensors().values() if isinstance(v, ResourceHandle))
