"""Constraints: groups by union-find, merged requests, feasible devices. Random graphs keep every promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.core.device import DeviceSpec
from anabranch.core.devices import Device
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify
from anabranch.placement.bodies import spans_devices
from anabranch.placement.constraints import Constraints, UnionFind, request_of_graph
from anabranch.placement.cost_model import CostModel
from anabranch.placement.partition import partition
from anabranch.placement.placer import Placer, apply
from anabranch.placement.policy import PlacementPolicy, PlacementRule


class PlainDevice(Device):
    """A device that only has a name and a list of what it cannot run."""

    def __init__(self, device_type: str, index: int, lacks: frozenset[str] = frozenset()) -> None:
        super().__init__(device_type, index)
        self.xla_device = self
        self.lacks = lacks

    def supports(self, op: Any) -> bool:
        return op.type not in self.lacks

    def put(self, value: Any) -> Any:
        return value

    def get(self, value: Any) -> Any:
        return value


CPUS = [PlainDevice("CPU", 0), PlainDevice("CPU", 1)]
GPU = PlainDevice("GPU", 0, frozenset({"Tanh"}))
HOST_TYPES = frozenset({"StringJoin", "AsString"})


def host_work(op: Any) -> bool:
    return op.type in HOST_TYPES


def step_of(*fetches: Any) -> StepGraph:
    return fold(prune(fetches, [], []))


def placed(fetches: Any, devices: Any, **options: Any) -> dict[str, str]:
    placement = Placer(devices, host_work, **options).place(step_of(*fetches))
    return {op: f"{d.device_type}:{d.device_index}" for op, name in placement.device.items() for d in [spec(name)]}


def spec(name: str) -> DeviceSpec:
    return DeviceSpec.from_string(name)


def source(name: str = "x") -> Any:
    return raw.Placeholder(dtype="float32", shape=[2], name=name)


# --------------------------------------------------------------------------------------------------- union-find
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_union_find_is_the_transitive_closure(pairs: list[tuple[int, int]]) -> None:
    sets = UnionFind()
    classes = {i: {i} for i in range(21)}
    for a, b in pairs:
        sets.union(a, b)
        joined = classes[a] | classes[b]
        for member in joined:
            classes[member] = joined
    for a in range(21):
        for b in range(21):
            assert (sets.find(a) == sets.find(b)) == (b in classes[a])


# -------------------------------------------------------------------------------------------------- single cases
def test_without_constraints_the_preferred_device_that_has_the_kernel() -> None:
    with Graph().as_default():
        x = source()
        y = raw.Tanh(x, name="y")
        z = raw.Exp(y, name="z")
        assert placed([z, raw.AsString(z, name="s")], [GPU, *CPUS]) == {
            "x": "CPU:0", "y": "CPU:0", "z": "GPU:0", "s": "CPU:0",
        }  # fmt: skip


def test_what_nothing_binds_follows_its_neighbour() -> None:
    """A source goes to its only consumer, a description to what it describes."""
    with Graph().as_default() as graph:
        x = source()
        numbers = raw.RandomUniform(shape=np.int32([2]), dtype="float32", name="numbers")
        with graph.device("/cpu:1"):
            total = raw.AddV2(numbers, x, name="total")
        sum_of = raw.Shape(raw.Where(raw.Greater(total, 0.0), name="where"), name="shape")
        found = placed([sum_of, raw.Exp(x)], CPUS)
        assert (found["numbers"], found["total"], found["x"]) == ("CPU:1", "CPU:1", "CPU:0")
        assert found["shape"] == found["where"]


def test_partial_requests_of_a_group_are_merged() -> None:
    with Graph().as_default() as graph:
        with graph.device("/job:localhost"):
            a = raw.Exp(source(), name="a")
        with graph.device("/cpu:1"), graph.colocate_with(None):
            b = raw.Exp(a, name="b")
        b.op._set_attr("_class", [b"loc:@a"])
        assert placed([b], CPUS)["a"] == "CPU:1"


def test_an_operation_outside_the_step_lends_its_request() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:1"):
            unrelated = raw.Exp(source(), name="unrelated")
        with graph.colocate_with(unrelated):
            follower = raw.Neg(source("y"), name="follower")
        follower.op.device = ""
        assert placed([follower], CPUS)["follower"] == "CPU:1"


def test_users_of_a_resource_share_its_device() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:1"):
            handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="v", name="v")
        read = raw.ReadVariableOp(handle, dtype="float32", name="read")
        found = placed([raw.Exp(read, name="after")], CPUS)
        assert found == {"read": "CPU:1", "after": "CPU:0"}


def test_a_variable_stays_where_its_first_step_found_it() -> None:
    with Graph().as_default() as graph:
        handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="v", name="v")
        with graph.device("/cpu:1"):
            first = raw.ReadVariableOp(handle, dtype="float32", name="first")
        second = raw.ReadVariableOp(handle, dtype="float32", name="second")
        placer = Placer(CPUS, host_work)
        assert placer.place(step_of(first)).device[first.op.name].endswith("CPU:1")
        report = placer.place(step_of(second))
        assert report.device[second.op.name].endswith("CPU:1")
        assert report.of(second.op).why == "its variable is there"


def test_contradictions_name_both_and_one_way_out() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:0"):
            leader = raw.Exp(source(), name="leader")
        with graph.device("/cpu:1"):
            follower = raw.Neg(leader, name="follower")
        follower.op._set_attr("_class", [b"loc:@leader"])
        with pytest.raises(InvalidArgumentError) as caught:
            placed([follower], CPUS)
    message = str(caught.value)
    for part in ("'follower'", "'leader'", "'/device:CPU:1'", "'/device:CPU:0'", "colocated with", "soft placement"):
        assert part in message
    assert message.count("test_constraints.py") == 2


def test_who_makes_a_resource_says_where_it_lives() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:0"):
            handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="v", name="v")
        with graph.device("/cpu:1"):
            read = raw.ReadVariableOp(handle, dtype="float32", name="read")
        report = Placer(CPUS, host_work).place(step_of(raw.Exp(read)))
        assert report.of(read.op).asked == "/device:CPU:1"
        assert report.of(read.op).got.endswith("CPU:0")
        assert report.of(read.op).why == "both use the variable 'v', and v is to be there"
        read.op._set_attr("_class", [b"loc:@read"])  # whoever says it twice means it
        with pytest.raises(InvalidArgumentError, match="both use the variable|colocated"):
            placed([read], CPUS)


def test_what_a_body_asks_for_counts_for_its_loop() -> None:
    with Graph().as_default():
        x = source()

        def branch() -> Any:
            with get_default_graph().device("/cpu:1"):
                return raw.Exp(x)

        chosen = cond(raw.Placeholder(dtype="bool", shape=[]), branch, lambda: raw.Neg(x))
        (op,) = [op for op in _ancestors(chosen) if "If" in op.type]
        report = Placer(CPUS, host_work).place(step_of(chosen))
        assert report.of(op).asked == "/device:CPU:1"
        assert report.of(op).got.endswith("CPU:1")
        policy = PlacementPolicy([PlacementRule("/cpu:0", type="Exp")])
        assert Placer(CPUS, host_work, policy).place(step_of(chosen)).of(op).got.endswith("CPU:0")


def test_a_rule_for_a_variable_moves_all_that_belongs_to_it() -> None:
    with Graph().as_default() as graph, graph.device("/job:elsewhere/device:GPU:3"):
        handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="v", name="v")
        read = raw.ReadVariableOp(handle, dtype="float32", name="read")
    policy = PlacementPolicy([PlacementRule("/cpu:1", type="VarHandleOp")])
    report = Placer(CPUS, host_work, policy).place(step_of(read))
    assert report.of(read.op).got.endswith("CPU:1")
    assert report.of(read.op).why == "both use the variable 'v', and v is to be there"
    two = PlacementPolicy([PlacementRule("/cpu:1", type="VarHandleOp"), PlacementRule("/cpu:0", name="read")])
    assert Placer(CPUS, host_work, two).place(step_of(read)).of(read.op).got.endswith("CPU:1")


def body_devices(*asked: str) -> Any:
    """A conditional whose branches read variables that ask for these devices."""
    graph = get_default_graph()
    handles = []
    for i, device in enumerate(asked):
        with graph.device(device):
            handles.append(raw.VarHandleOp(dtype="float32", shape=[2], shared_name=f"w{i}", name=f"w{i}"))

    def branch() -> Any:
        return raw.AddN([raw.ReadVariableOp(handle, dtype="float32") for handle in handles])

    return cond(raw.Placeholder(dtype="bool", shape=[]), branch, lambda: raw.Neg(branch()))


def test_a_conditional_over_variables_of_several_devices_can_be_placed() -> None:
    with Graph().as_default():
        several, one = body_devices("/cpu:0", "/cpu:1"), body_devices("/cpu:1", "/cpu:1")
        chosen = [next(op for op in _ancestors(t) if "If" in op.type) for t in step_of(several, one).fetches]
        assert [spans_devices(op, request_of_graph) for op in chosen] == [True, False]
        found = placed([several, one], CPUS)
        assert [found[op.name] for op in chosen] == ["CPU:0", "CPU:1"]


def _ancestors(tensor: Any) -> list[Any]:
    found, stack = [], [tensor.op]
    while stack:
        op = stack.pop()
        found.append(op)
        stack.extend(t.op for t in op.inputs)
    return found


def test_members_without_a_common_device() -> None:
    with Graph().as_default():
        a = raw.Tanh(source(), name="a")
        b = raw.Exp(a, name="b")
        b.op._set_attr("_class", [b"loc:@a"])
        only = [GPU, PlainDevice("ODD", 0, frozenset({"Exp"}))]
        with pytest.raises(InvalidArgumentError, match="no one device has kernels for all of Exp, Tanh"):
            placed([b], only)


def test_soft_placement_says_what_it_gave_up() -> None:
    with Graph().as_default() as graph:
        with graph.device("/gpu:0"):
            y = raw.Tanh(source(), name="y")
        with graph.device("/cpu:9"):
            z = raw.Exp(y, name="z")
        step = step_of(z)
        report = Placer([*CPUS, GPU], host_work, soft=True).place(step)
    assert report.of(y.op).got.endswith("CPU:0")
    assert report.of(y.op).why == "soft placement: no kernel for Tanh on /device:GPU:0"
    assert report.of(z.op).why == "soft placement: there is no device /device:CPU:9"
    assert report.of(z.op).asked == "/device:CPU:9"


# ------------------------------------------------------------------------------------------------ random graphs
_DEVICES = st.sampled_from(["", "", "", "/cpu:0", "/cpu:1", "/gpu:0", "/job:localhost", "/cpu:5", "/job:elsewhere"])


@st.composite
def graphs(draw: Any) -> list[Any]:
    """Operations of a random graph with requests, colocation and variables."""
    count = draw(st.integers(1, 12))
    made: list[Any] = [source(f"x{i}") for i in range(2)]
    handles = [raw.VarHandleOp(dtype="float32", shape=[2], shared_name=f"v{i}", name=f"v{i}") for i in range(2)]
    for handle in handles:
        handle.op.device = draw(st.sampled_from(["", "/cpu:1", "/gpu:0"]))
    for i in range(count):
        kind = draw(st.sampled_from(["Exp", "Tanh", "AddV2", "Read"]))
        a, b = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        if kind == "Read":
            new = raw.ReadVariableOp(draw(st.sampled_from(handles)), dtype="float32", name=f"n{i}")
        elif kind == "AddV2":
            new = raw.AddV2(a, b, name=f"n{i}")
        else:
            new = getattr(raw, kind)(a, name=f"n{i}")
        new.op.device = draw(_DEVICES)
        if draw(st.integers(0, 3)) == 0:
            new.op._set_attr("_class", [b"loc:@" + draw(st.sampled_from(made)).op.name.encode()])
        made.append(new)
    return made


@given(st.data(), st.booleans(), st.sampled_from(["default", "greedy"]))
def test_a_placement_keeps_all_constraints_or_is_refused(data: Any, soft: bool, kind: str) -> None:
    devices = [*CPUS, GPU]
    with Graph().as_default():
        made = data.draw(graphs())
        step = step_of(*made)
        try:
            placement = Placer(devices, host_work, PlacementPolicy(placer=kind), soft).place(step)
        except InvalidArgumentError:
            return
        by_name = {device.name: device for device in devices}
        got = {op: by_name[placement.device[op.name]] for op in step.operations}
        for op, device in got.items():
            assert Constraints(devices, host_work).can_run(device, op)
            if not soft and op.device and (op.type != "ReadVariableOp" or "_class" in op.attrs):
                assert spec(op.device).covers(device.spec)
            for group in op.attrs.get("_class", ()):
                assert by_name.get(placement.device.get(group[5:].decode(), device.name)) is device
        users: dict[Any, Any] = {}
        for op, device in got.items():
            for tensor in op.inputs:
                if tensor.dtype.name == "resource":
                    assert users.setdefault(tensor, device) is device
                    assert soft or not tensor.op.device or spec(tensor.op.device).covers(device.spec)
        check_partition(apply(step, placement))


def check_partition(step: StepGraph) -> None:
    """No operation takes a tensor of another device; one Send and Recv for each tensor and pair of devices."""
    parts = partition(step)
    names = set()
    seen = set()
    for op in parts.operations:
        for tensor in op.inputs:
            given_tensor = tensor.is_known or tensor in parts.feeds
            assert given_tensor or (tensor.op.placed_on == op.placed_on and tensor.op in seen)
        if op.type == "_Send":
            key = (op.inputs[0], op.attrs["send_device"], op.attrs["recv_device"])
            assert key not in names
            names.add(key)
        seen.add(op)
    assert [op.name for op in parts.operations if op.type not in ("_Send", "_Recv")] == [
        op.name for op in step.operations
    ]
    verify(parts, "partition")


def test_a_control_edge_between_devices_becomes_a_signal() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:0"):
            first = raw.Exp(source(), name="first")
        y = source("y")
        with graph.device("/cpu:1"), graph.control_dependencies([first]):
            second = raw.Neg(y, name="second")
            third = raw.Exp(y, name="third")
        step = step_of(second, third)
        parts = partition(apply(step, Placer(CPUS, host_work).place(step)))
    (send,) = [op for op in parts.operations if op.name.startswith("first/send")]
    by_name = {op.name: op for op in parts.operations}
    assert send.control_inputs == (by_name["first"],)
    assert send.inputs[0].known.size == 0
    assert [c.type for c in by_name["second"].control_inputs] == ["_Recv"]
    assert by_name["second"].control_inputs == by_name["third"].control_inputs
    assert not first.consumers()  # the graph of the program is as it was


def test_control_edges_from_one_device_are_one_signal() -> None:
    with Graph().as_default() as graph:
        with graph.device("/cpu:0"):
            first, second, third = (raw.Exp(source(f"x{i}"), name=f"n{i}") for i in range(3))
        with graph.device("/cpu:1"):
            y = source("y")
            with graph.control_dependencies([first, third, second]):
                waits = [raw.Neg(y), raw.Exp(y)]
            with graph.control_dependencies([third]):
                waits.append(raw.Tanh(y))
        step = step_of(*waits)
        parts = partition(apply(step, Placer(CPUS, host_work).place(step)))
    check_partition(apply(step, Placer(CPUS, host_work).place(step)))
    joint, single = [op for op in parts.operations if op.type == "_Send"]
    assert [control.name for control in joint.control_inputs] == ["n0", "n2", "n1"]
    assert [control.name for control in single.control_inputs] == ["n2"]
    assert [op.name for op in (joint, single)] == [f"n2/send_control_CPU_0_to_CPU_1{tail}" for tail in ("", "_2")]
    one, other, last = (t.op.control_inputs for t in parts.fetches)
    assert one == other != last


def test_a_greedy_placement_of_a_model_reads_costs() -> None:
    with Graph().as_default():
        branches = [raw.Exp(raw.Exp(raw.Exp(source(f"x{i}")))) for i in range(2)]
        total = raw.AddV2(*branches)
        model = CostModel()
        for _ in range(2):
            model.add([branches[0].op], "CPU", 1.0)
        found = placed([total], CPUS, policy=PlacementPolicy(placer="greedy", cost_model=model))
    assert {found[b.op.name] for b in branches} == {"CPU:0", "CPU:1"}
