"""Scopes of a graph: what the `with` blocks around an operation say of it, and that they end where they end."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

import anabranch as tf
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw


@pytest.fixture
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


def op(name: str = "op") -> Any:
    return tf.no_op(name=name)


# ---------------------------------------------------------------------- names
def test_taken_names_are_counted_ignoring_case(graph: Graph) -> None:
    assert [op(n).name for n in ("a", "A", "a_1", "a", "a")] == ["a", "A_1", "a_1_1", "a_2", "a_3"]
    assert graph.unique_name("a", mark_as_used=False) == graph.unique_name("a")
    assert op("a").name == "a_5"


def test_scopes_prefix_and_are_entered_again_by_their_full_name(graph: Graph) -> None:
    with graph.name_scope("s") as full:
        assert (full, op().name) == ("s/", "s/op")
        with graph.name_scope("t"):
            assert graph.get_name_scope() == "s/t"
            with graph.name_scope(None) as root:
                assert (root, op().name) == ("", "op")
    with graph.name_scope("s"):
        assert op().name == "s_1/op"
    with graph.name_scope(full):
        assert op().name == "s/op_1"
    assert graph.get_name_scope() == ""


def test_an_absolute_name_is_taken_as_it_is_or_refused(graph: Graph) -> None:
    with graph.name_scope("s"):
        assert op("far/away/").name == "far/away"
    with pytest.raises(ValueError, match="an operation named 'far/away' already exists"):
        op("far/away/")
    assert op("far/away").name == "far/away_1"


@pytest.mark.parametrize("name", ["_first", "a b", "-", "a:0", "ä"])
def test_names_that_cannot_be(graph: Graph, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid operation name"):
        op(name)
    with pytest.raises(ValueError, match="not a valid scope name"), graph.name_scope(name):
        pass
    assert graph.get_operations() == []


# ---------------------------------------------------------------------- control dependencies
def test_what_an_input_waits_for_is_not_waited_for_again(graph: Graph) -> None:
    x = tf.placeholder(tf.float32, [])
    outer, inner = op("outer"), op("inner")
    with graph.control_dependencies([outer]):
        first = raw.Neg(x)
        with graph.control_dependencies([inner]):
            both = raw.Neg(x)
            after_first = raw.Neg(first)
            after_both = raw.Neg(both)
        with graph.control_dependencies(None):
            free = raw.Neg(x)
    assert first.op.control_inputs == [outer]
    assert both.op.control_inputs == [outer, inner]
    assert after_first.op.control_inputs == [inner]
    assert after_both.op.control_inputs == []
    assert free.op.control_inputs == []
    assert raw.Neg(x).op.control_inputs == []


def test_things_to_wait_for(graph: Graph) -> None:
    x, v = tf.constant(1.0), tf.get_variable("v", [], use_resource=True)
    rows = tf.IndexedSlices(tf.constant([[1.0]], name="rows"), tf.constant([0]))
    with graph.control_dependencies([x, x.op, v, rows]):
        assert {o.name for o in op().control_inputs} >= {x.op.name, "rows"}
    with pytest.raises(TypeError, match="must be an operation or a tensor, got 3"), graph.control_dependencies([3]):
        pass
    with Graph().as_default():
        foreign = op("foreign")
    with pytest.raises(ValueError, match="'foreign' .* not an element"), graph.control_dependencies([foreign]):
        pass


# ---------------------------------------------------------------------- devices
def test_inner_devices_go_before_outer_ones(graph: Graph) -> None:
    with graph.device("/job:ps/task:1/cpu:0"):
        assert op().device == "/job:ps/task:1/device:CPU:0"
        with graph.device("/task:2"):
            assert op().device == "/job:ps/task:2/device:CPU:0"
        with graph.device(lambda o: "/gpu:1" if o.name == "there" else None):
            assert op("there").device == "/job:ps/task:1/device:GPU:1"
            assert op("here").device == "/job:ps/task:1/device:CPU:0"
        with graph.device(None):
            assert op().device == ""
    assert op().device == ""


def test_what_a_function_says_of_a_device_stays_as_it_was_written(graph: Graph) -> None:
    with graph.device(lambda o: "cpu:1"):
        assert op().device == "cpu:1"
        with graph.device("/job:ps"):
            assert op().device == "cpu:1"
    with graph.device("/job:ps"), graph.device(lambda o: "cpu:1"):
        assert op().device == "/job:ps/device:CPU:1"
    with graph.device(lambda o: tf.DeviceSpec(device_type="cpu", device_index=1)):
        assert op().device == "/device:CPU:1"
    with graph.device(lambda o: "/nowhere:x:y"), pytest.raises(ValueError, match="nowhere"):
        op()


def test_an_operation_is_where_its_leader_is(graph: Graph) -> None:
    with graph.device("/cpu:3"):
        leader, other = op("leader"), op("other")
    with graph.device("/cpu:1"), graph.colocate_with(leader):
        follower = op()
        with graph.colocate_with(other):
            assert op().colocation_groups() == [b"loc:@leader", b"loc:@other"]
        with graph.colocate_with(other, ignore_existing=True):
            assert op().colocation_groups() == [b"loc:@other"]
        with graph.colocate_with(None):
            alone = op("alone")
    assert (follower.device, follower.colocation_groups()) == ("/device:CPU:3", [b"loc:@leader"])
    assert alone.colocation_groups() == [b"loc:@alone"]


# ---------------------------------------------------------------------- all of them
def test_every_scope_ends_when_its_block_raises(graph: Graph) -> None:
    first = op("first")
    scopes: list[Any] = [
        graph.name_scope("s"),
        graph.device("/cpu:1"),
        graph.control_dependencies([first]),
        graph.container("box"),
        graph.gradient_override_map({"NoOp": "Mine"}),
        graph.colocate_with(first),
    ]
    for scope in scopes:
        with contextlib.suppress(KeyError), scope:
            op()
            raise KeyError
    last = op("last")
    assert (last.name, last.device, last.control_inputs, last.attrs) == ("last", "", [], {})
    assert graph.current_container == ""


def test_scopes_are_of_one_thread(graph: Graph) -> None:
    found = []

    def build() -> None:
        assert get_default_graph() is not graph
        with graph.as_default():
            found.append(op("there"))

    first = op("first")
    with graph.name_scope("s"), graph.device("/cpu:1"), graph.control_dependencies([first]):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    (there,) = found
    assert (there.name, there.device, there.control_inputs) == ("there", "", [])


def test_labels_of_kernels_are_written_on_operations(graph: Graph) -> None:
    with graph._kernel_label_map({"NoOp": "outer"}), graph._kernel_label_map({"NoOp": "inner"}):
        assert op("labelled").attrs["_kernel"] == b"inner"
    assert "_kernel" not in op("plain").attrs
    with pytest.raises(TypeError, match="dictionary"), graph._kernel_label_map({"NoOp": 1}):  # type: ignore[dict-item]
        op()
