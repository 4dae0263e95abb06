"""`tf.contrib.graph_editor`: what it finds in a graph, and what the graph computes after it was changed or copied."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.testing.gradient_checker import compute_gradient_error

ge = tf.contrib.graph_editor


class Small(NamedTuple):
    """Names: a; foo/b, foo/c, foo/d; foo/bar/e, f, g, h. `h` waits for `c`."""

    graph: Any
    a: Any
    b: Any
    c: Any
    d: Any
    e: Any
    f: Any
    g: Any
    h: Any


@pytest.fixture
def small() -> Any:
    graph = Graph()
    with graph.as_default():
        a = tf.constant([1.0, 1.0], name="a")
        with tf.name_scope("foo"):
            b = tf.constant([2.0, 2.0], name="b")
            c = tf.add(a, b, name="c")
            d = tf.constant([3.0, 3.0], name="d")
            with tf.name_scope("bar"):
                e = tf.add(c, d, name="e")
                f = tf.add(c, d, name="f")
                g = tf.add(c, a, name="g")
                with tf.control_dependencies([c.op]):
                    h = tf.add(f, g, name="h")
        yield Small(graph, a, b, c, d, e, f, g, h)


def names(elements: Iterable[Any]) -> list[str]:
    return [element.name for element in elements]


def last_names(elements: Iterable[Any]) -> str:
    """The last letters of operations' names, sorted."""
    return "".join(sorted(element.name.rpartition("/")[2].partition(":")[0] for element in elements))


def value_of(*tensors: Any) -> list[Any]:
    with tf.Session(graph=tensors[0].graph) as session:
        return [np.asarray(value).tolist() for value in session.run(list(tensors))]


# ---------------------------------------------------------------------- lists and names
def test_lists_of_operations_and_tensors(small: Small) -> None:
    assert ge.make_list_of_op(small.graph) == small.graph.get_operations()
    assert ge.make_list_of_op(small.a.op) == [small.a.op]
    assert ge.make_list_of_op((small.a.op, small.b), ignore_ts=True) == [small.a.op]
    assert ge.make_list_of_t((small.a, small.b.op), ignore_ops=True) == [small.a]
    assert ge.make_list_of_t(iter([small.a, small.b])) == [small.a, small.b]
    assert ge.get_tensors(small.graph) == ge.make_list_of_t(small.graph)
    assert last_names(ge.get_consuming_ops([small.a])) == "cg"
    assert ge.get_generating_ops([small.a, small.a]) == [small.a.op] * 2
    with pytest.raises(TypeError, match=r"Expected a type in \(Operation\), got"):
        ge.make_list_of_op([small.a])
    with pytest.raises(TypeError, match="allow_graph is False"):
        ge.make_list_of_t(small.graph, allow_graph=False)
    with Graph().as_default():
        foreign = tf.constant(1)
    with pytest.raises(ValueError, match="does not belong to the graph"):
        ge.make_list_of_t([small.a, foreign])
    with pytest.raises(ValueError, match=r"Argument\[1\]: Wrong graph"):
        ge.util.check_graphs(small.a, foreign)


def test_structures_and_scopes(small: Small) -> None:
    Pair = collections.namedtuple("Pair", "x y")  # noqa: PYI024  what programs write
    tree = {"k": [1, (2, 3)], "p": Pair(4, {"z": 5})}
    assert ge.util.flatten_tree(tree) == [1, 2, 3, 4, 5]
    doubled = ge.util.transform_tree(tree, lambda leaf: leaf * 2)
    assert doubled == {"k": [2, (4, 6)], "p": Pair(8, {"z": 10})}
    assert type(doubled["p"]) is Pair
    assert not ge.util.is_iterable(small.a)
    assert (ge.util.scope_finalize("foo/bar"), ge.util.scope_finalize("")) == ("foo/bar/", "")
    assert (ge.util.scope_dirname("foo/bar/op"), ge.util.scope_basename("foo/bar/op")) == ("foo/bar/", "op")
    view = ge.util.ListView([0, 1])
    assert [*view, *(view + [2])] == [0, 1, 0, 1, 2]
    other = Graph()
    ge.copy(small.graph, other, dst_scope="x")
    assert ge.util.find_corresponding([small.c, small.h.op], other, "x", "") == [
        other.get_tensor_by_name("x/foo/c:0"),
        other.get_operation_by_name("x/foo/bar/h"),
    ]


def test_placeholders_are_named_for_what_they_stand_for(small: Small) -> None:
    assert ge.placeholder_name(small.a) == "geph__a_0"
    assert ge.placeholder_name(small.b) == "foo/geph__b_0"
    assert ge.placeholder_name(small.b, scope="") == "geph__b_0"
    assert ge.placeholder_name(small.b, scope="x") == "x/geph__b_0"
    assert (ge.placeholder_name(), ge.placeholder_name(scope="x/")) == ("geph", "x/geph")
    made = ge.make_placeholder_from_tensor(small.b)
    assert (made.name, made.dtype, made.shape.as_list()) == ("foo/geph__b_0:0", tf.float32, [2])
    assert ge.make_placeholder_from_tensor(made).name == "foo/geph__b_0_1:0"
    assert ge.ph(tf.int32, [3]).shape.as_list() == [3]


def test_control_outputs_follow_the_graph(small: Small) -> None:
    outputs = ge.ControlOutputs(small.graph)
    assert outputs.get_all() == {small.c.op: [small.h.op]}
    ge.add_control_inputs(small.e.op, small.g.op)
    assert outputs.get(small.g.op) == ()
    assert outputs.update().get(small.g.op) == [small.e.op]
    with pytest.raises(ValueError, match="g is already a control input of foo/bar/e"):
        ge.add_control_inputs(small.e.op, [small.g.op])
    ge.remove_control_inputs(small.e.op, small.g.op)
    assert small.e.op.control_inputs == [] == small.g.op.control_outputs
    with pytest.raises(ValueError, match="g is not a control input of foo/bar/e"):
        ge.remove_control_inputs(small.e.op, small.g.op)


# ---------------------------------------------------------------------- selection
def test_filters(small: Small) -> None:
    assert len(ge.filter_ops(small.graph, True)) == 8
    assert last_names(ge.filter_ops(small.graph, lambda op: op.type == "Const")) == "abd"
    assert last_names(ge.filter_ops_from_regex(small.graph, r"\b[abc]$")) == "abc"
    assert last_names(ge.filter_ts_from_regex(small.graph, r"^.*/[fgh]:\d$")) == "fgh"
    assert last_names(ge.filter_ts([small.g.op], True)) == "acg"
    assert last_names(ge.get_name_scope_ops(small.graph, "foo/")) == "bcdefgh"
    assert last_names(ge.get_name_scope_ops(small.graph, "foo/bar")) == "efgh"
    assert last_names(ge.get_name_scope_ops(small.graph, "foo/b")) == "b"
    assert ge.can_be_regex("x")
    assert ge.make_regex(re.compile("x")).pattern == "x"
    with pytest.raises(ValueError, match="Expected a string or a regex"):
        ge.make_regex(3)


def test_selections(small: Small) -> None:
    def chosen(*args: Any, **kwargs: Any) -> str:
        return last_names(ge.select_ops(*args, graph=small.graph, **kwargs))

    assert chosen("^foo/") == "bcdefgh"
    assert chosen("^foo/bar/", "a") == "aefgh"  # "foo/bar" has an a, too
    assert chosen(small.e.op, [small.f.op, small.g], "^foo/bar/e$") == "ef"
    assert chosen("^foo/", positive_filter=lambda op: op.type == "Const") == "bd"
    assert last_names(ge.select_ts(r".*/bar/\w+:0", graph=small.graph)) == "efgh"
    ops, ts = ge.select_ops_and_ts("^foo/.*", "(?#ts)^foo/bar/.*", small.a, graph=small.graph)
    assert (last_names(ops), last_names(ts)) == ("bcdefgh", "aefgh")
    with pytest.raises(ValueError, match="Use the keyword argument 'graph'"):
        ge.select_ops("x")
    with pytest.raises(TypeError, match="Expected a type in"):
        ge.select_ops([1])


def test_what_is_connected(small: Small) -> None:
    outputs = ge.ControlOutputs(small.graph)
    assert last_names(ge.get_ops_ios(small.h.op)) == "fg"
    assert last_names(ge.get_ops_ios(small.h.op, control_ios=outputs)) == "cfg"
    assert last_names(ge.get_ops_ios(small.c.op)) == "abefg"
    assert last_names(ge.get_ops_ios(small.c.op, control_ios=outputs)) == "abefgh"
    assert ge.compute_boundary_ts(small.g.op) == ([small.c, small.a], [small.g], [])
    assert ge.compute_boundary_ts([small.g.op, small.h.op]) == ([small.c, small.a, small.f], [small.h], [small.g])
    # c goes to g, which is inside, and to e and f, which are not
    assert ge.compute_boundary_ts([small.c.op, small.g.op]) == ([small.a, small.b], [small.c, small.g], [small.c])
    within = ge.get_within_boundary_ops(
        small.graph, small.f.op, [small.c.op, small.h.op], inclusive=False, control_ios=outputs
    )
    assert last_names(within) == "def"
    assert last_names(ge.get_within_boundary_ops(small.graph, small.h.op, [small.f.op, small.g.op])) == "fgh"
    with pytest.raises(ValueError, match="intersecting"):
        ge.get_within_boundary_ops(small.graph, small.f.op, small.f.op)
    with pytest.raises(ValueError, match="should be None"):
        ge.check_cios(control_outputs=outputs, control_ios=outputs)


def test_walks(small: Small) -> None:
    assert names(ge.get_forward_walk_ops(small.c.op))[0] == "foo/c"
    assert last_names(ge.get_forward_walk_ops(small.c.op)) == "cefgh"
    assert last_names(ge.get_forward_walk_ops(small.c)) == "efgh"
    assert last_names(ge.get_forward_walk_ops(small.c.op, inclusive=False, stop_at_ts=[small.g])) == "efgh"
    assert last_names(ge.get_forward_walk_ops(small.c.op, stop_at_ts=[small.f, small.g])) == "cefg"
    assert last_names(ge.get_forward_walk_ops(small.a.op, within_ops=[small.a.op, small.g.op])) == "ag"
    assert last_names(ge.get_forward_walk_ops(small.a.op, within_ops=[])) == "a"
    assert last_names(ge.get_forward_walk_ops(small.a.op, within_ops_fn=lambda op: op.name != "foo/c")) == "agh"
    outputs = ge.ControlOutputs(small.graph)
    assert last_names(ge.get_forward_walk_ops([small.c.op], stop_at_ts=[small.c], control_outputs=outputs)) == "ch"
    assert last_names(ge.get_backward_walk_ops(small.h)) == "abcdfgh"
    assert last_names(ge.get_backward_walk_ops(small.h, stop_at_ts=[small.f, small.g], control_inputs=True)) == "abch"
    assert last_names(ge.get_walks_intersection_ops([small.c.op], [small.g.op])) == "cg"
    assert last_names(ge.get_walks_union_ops([small.f.op], [small.g.op])) == "abcfgh"


# ---------------------------------------------------------------------- views
def test_views(small: Small) -> None:
    view = ge.sgv(small.graph)
    assert (list(view.inputs), list(view.outputs), len(view.ops)) == ([], [small.e, small.h], 8)
    assert view["foo/c"] is small.c.op
    part = view.remap_outputs([1]).remove_unused_ops()
    assert (list(part.outputs), last_names(part.ops)) == ([small.h], "abcdfgh")
    view = ge.sgv(small.f.op, small.g.op)
    assert (list(view.inputs), list(view.outputs)) == ([small.c, small.d, small.a], [small.f, small.g])
    assert last_names(view.consumers()) == "h"
    assert list(ge.sgv_scope("foo/bar", small.graph).ops) == [small.e.op, small.f.op, small.g.op, small.h.op]
    assert not ge.SubGraphView()
    through = ge.sgv(small.a, small.b)
    assert list(through.inputs) == list(through.outputs) == [small.a, small.b] == list(through.passthroughs)
    assert str(through) == "SubGraphView:\n** ops:\n** inputs:\na:0 *\nfoo/b:0 *\n** outputs:\na:0 *\nfoo/b:0 *\n"
    with pytest.raises(ValueError, match="Graph mismatch"):
        ge.sgv(small.a.op, graph=Graph())
    with pytest.raises(ValueError, match="zz not in subgraph"):
        view.find_op_by_name("zz")


def test_other_views_of_the_same(small: Small) -> None:
    view = ge.sgv(small.c.op)
    many = view.remap_outputs_to_consumers()
    assert list(many.outputs) == [small.c] * 3
    assert list(many.remap_outputs_make_unique().outputs) == [small.c]
    turned = view.remap([1, 0], [])
    assert (list(turned.inputs), list(turned.outputs)) == ([small.b, small.a], [])
    assert turned.input_index(small.a) == 1
    assert list(turned.remap_default().outputs) == [small.c] == list(view.outputs)
    with pytest.raises(ValueError, match="Found repetition"):
        view.remap_inputs([0, 0])
    with pytest.raises(ValueError, match=r"Out of \[0, 1\[ range: 1"):
        view.remap_outputs([1])
    with pytest.raises(ValueError, match="Can't find foo/d:0 in inputs"):
        view.input_index(small.d)


# ---------------------------------------------------------------------- edges
def test_edges_are_rerouted_and_swapped(small: Small) -> None:
    with tf.Session() as session:  # a session that has planned the graph as it was
        assert session.run(small.h).tolist() == [10.0, 10.0]
        assert ge.reroute_ts([small.b], [small.d]) == 2
        assert session.run([small.e, small.h])[1].tolist() == [9.0, 9.0]
        run_h = session.make_callable(small.h)
        assert ge.reroute_ts(small.d, small.b, can_modify=[small.f.op]) == 1
        assert run_h().tolist() == [10.0, 10.0]
        assert session.run(small.e).tolist() == [5.0, 5.0]
        assert ge.swap_ts(small.a, small.b, cannot_modify=small.g.op) == 3
        # c took a and b, and takes b and a; e took c and b; g still takes a
        assert names(small.c.op.inputs) == ["foo/b:0", "a:0"]
        assert names(small.e.op.inputs) == ["foo/c:0", "a:0"]
        assert names(small.g.op.inputs) == ["foo/c:0", "a:0"]
        assert session.run(small.e).tolist() == [4.0, 4.0]


def test_what_does_not_fit_is_refused_and_nothing_changed(small: Small) -> None:
    before = {op: list(op.inputs) for op in small.graph.get_operations()}
    three, whole = tf.constant([1.0, 2.0, 3.0]), tf.constant([1, 2])
    with pytest.raises(ValueError, match=r"Shapes \(3,\) of .* and \(2,\) of a:0 are not compatible"):
        ge.reroute_ts([small.b, three], [small.d, small.a])
    with pytest.raises(ValueError, match="Dtypes"):
        ge.reroute_ts(whole, small.a)
    with pytest.raises(ValueError, match="different sizes: 1 != 2"):
        ge.reroute_ts([small.a], [small.b, small.d])
    with pytest.raises(ValueError, match="would have a cycle: operation foo/.*would wait for itself, through foo/"):
        ge.reroute_ts([small.b, small.h], [small.d, small.a])
    with pytest.raises(ValueError, match="would have a cycle"):
        ge.add_control_inputs(small.c.op, small.h.op)
    assert small.c.op.control_inputs == []
    assert {op: list(op.inputs) for op in before} == before
    small.graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        ge.reroute_ts(small.b, small.d)
    with pytest.raises(RuntimeError, match="finalized"):
        ge.add_control_inputs(small.e.op, small.g.op)
    with pytest.raises(RuntimeError, match="finalized"):
        ge.copy(small.c.op)


def test_inputs_and_outputs_of_views(small: Small) -> None:
    e, f = ge.sgv(small.e.op), ge.sgv(small.g.op)
    ge.swap_inputs(e, f)
    assert (names(small.e.op.inputs), names(small.g.op.inputs)) == (["foo/c:0", "a:0"], ["foo/c:0", "foo/d:0"])
    assert list(e.inputs) == [small.c, small.a]
    ge.reroute_inputs(e, f)
    assert names(small.g.op.inputs) == ["foo/c:0", "a:0"]
    ge.swap_outputs(small.f.op, small.e.op)
    assert names(small.h.op.inputs) == ["foo/bar/e:0", "foo/bar/g:0"]
    ge.reroute_outputs(small.f.op, small.e.op)
    assert names(small.h.op.inputs) == ["foo/bar/f:0", "foo/bar/g:0"]


def test_outputs_are_swapped_where_a_tensor_stays_and_leaves() -> None:
    with Graph().as_default():
        a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
        c = tf.add(a, b, name="c")
        d = tf.add(a, c, name="d")
        e, f = tf.constant(10.0, name="e"), tf.constant(20.0, name="f")
        g = tf.add(e, f, name="g")
        ge.swap_outputs(ge.sgv(a.op, b.op, c.op), ge.sgv(e.op, f.op))
        assert (names(g.op.inputs), names(d.op.inputs)) == (["a:0", "c:0"], ["e:0", "f:0"])
        assert value_of(c, d, g) == [3.0, 30.0, 4.0]


def test_parts_are_detached_connected_and_bypassed(small: Small) -> None:
    _, inputs = ge.bypass(ge.sgv(small.f.op).remap_inputs([0]))
    assert (names(small.h.op.inputs), names(small.f.op.inputs)) == (
        ["foo/c:0", "foo/bar/g:0"],
        ["foo/geph__c_0:0", "foo/d:0"],
    )
    assert value_of(small.h) == [[7.0, 7.0]]
    assert inputs[0].shape.ndims is None
    z = tf.constant([5.0, 5.0], name="z")
    ge.connect(z.op, ge.sgv(small.e.op).remap_inputs([0]))
    assert value_of(small.e) == [[8.0, 8.0]]
    view, detached, left = ge.detach(ge.sgv(small.c.op, small.a.op), control_ios=ge.ControlOutputs(small.graph))
    assert names(small.c.op.inputs) == ["a:0", "foo/geph__b_0:0"]
    assert (names(detached), list(view.inputs)) == (["foo/geph__b_0:0"], detached)
    assert small.h.op.control_inputs == []
    with tf.Session() as session:
        assert session.run(small.c, {detached[0]: [7.0, 8.0]}).tolist() == [8.0, 9.0]
        fed = {key: [1.0, 1.0] for key in left}
        assert session.run(small.g, fed).tolist() == [2.0, 2.0]


# ---------------------------------------------------------------------- copies
def test_a_graph_is_copied_into_another(small: Small) -> None:
    tf.add_to_collection("mine", small.c)
    tf.add_to_collection(tf.GraphKeys.LOSSES, small.h)
    other = Graph()
    view, info = ge.copy(small.graph, other, dst_scope="in")
    assert names(other.get_operations()) == [f"in/{name}" for name in names(small.graph.get_operations())]
    assert info.transformed([small.c, small.h.op]) == list(info.transformed((small.c, small.h.op)))
    assert info.original(info.transformed(small.g)) is small.g
    assert info.transformed("foo/c:0").name == "in/foo/c:0"
    assert names(view.outputs) == ["in/foo/bar/e:0", "in/foo/bar/h:0"]
    assert names(info.transformed(small.h.op).control_inputs) == ["in/foo/c"]
    assert names(other.get_collection("in/mine")) == ["in/foo/c:0"]
    assert names(other.get_collection(tf.GraphKeys.LOSSES)) == ["in/foo/bar/h:0"]
    assert value_of(info.transformed(small.h)) == value_of(small.h)
    assert "foo/c => in/foo/c" in str(info)
    _, again = ge.copy(small.c.op, other, dst_scope="in")
    assert names(again.transformed(small.c).op.inputs) == ["in_1/geph__a_0:0", "in_1/geph__b_0:0"]
    with pytest.raises(ValueError, match="a does not start with foo/"):
        ge.copy(small.graph, other, "x", "foo")
    assert not [name for name in names(other.get_operations()) if name.startswith("x/")]


def test_inputs_are_replaced_in_a_copy(small: Small) -> None:
    ten = tf.constant([10.0, 20.0], name="ten")
    view, info = ge.copy_with_input_replacements([small.g.op, small.h.op], {small.c: ten})
    assert value_of(view.outputs[0], small.h) == [[17.0, 27.0], [10.0, 10.0]]
    assert names(info.transformed(small.h.op).control_inputs) == ["foo/c"]
    assert [t.name for t in view.inputs] == ["ten:0", "a:0", "foo/bar/f:0"]
    changed = ge.graph_replace({"h": small.h, "a": small.a}, {small.d: ten})
    assert changed["a"] is small.a
    assert value_of(changed["h"]) == [[17.0, 27.0]]
    with pytest.raises(ValueError, match="not connected"):
        ge.graph_replace(small.e, {small.g: ten})


def test_handlers_change_what_is_copied(small: Small) -> None:
    transformer = ge.Transformer()

    def twice(info: Any, op: Any, new_inputs: Any) -> Any:
        copied, outputs = ge.transform.copy_op_handler(info, op, new_inputs)
        if op.type not in {"Add", "AddV2"}:
            return copied, outputs
        with info.graph_.as_default():
            doubled = tf.multiply(outputs[0], 2.0, name="doubled")
        return doubled.op, doubled.op.outputs

    transformer.transform_op_handler = twice
    other = Graph()
    _, info = transformer(small.graph, other, "")
    # c = 2 * 3 = 6, f = 2 * (6 + 3) = 18, g = 2 * (6 + 1) = 14, h = 2 * 32
    assert value_of(info.transformed(small.h)) == [[64.0, 64.0]]
    transformer.transform_op_handler = lambda info, op, new_inputs: (op, op.outputs)
    with pytest.raises(ValueError, match="In-place transformation not allowed"):
        transformer(small.graph, small.graph, "")


def test_a_node_is_changed_as_it_is_copied(small: Small) -> None:
    def product(node: Any) -> Any:
        node.op = "Mul"
        return node

    transformer = ge.Transformer()
    transformer.transform_external_input_handler = ge.keep_t_if_possible_handler
    transformer.transform_op_handler = lambda info, op, new: ge.copy_op_handler(info, op, new, nodedef_fn=product)
    _, info = transformer(small.e.op, small.graph, "")
    assert value_of(info.transformed(small.e)) == [[9.0, 9.0]]


def test_variables_of_a_copy_are_the_same_ones() -> None:
    with Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=3.0)
        x = tf.placeholder(tf.float32, [], name="x")
        y = v * x
        z = ge.graph_replace(y, {x: x + 1.0})
        session.run(tf.global_variables_initializer())
        session.run(v.assign(5.0))
        assert session.run([y, z], {x: 2.0}) == [10.0, 15.0]


def loop_and_conditional(x: Any) -> Any:
    y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, x])[1]
    return tf.cond(y > 100.0, lambda: y / 10.0, lambda: y * x)


@pytest.mark.parametrize("into_another", [False, True])
def test_loops_and_conditionals_are_copied_with_their_functions(into_another: bool) -> None:
    with Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [], name="x")
        y = loop_and_conditional(x)
        other = Graph() if into_another else graph
        view, info = ge.copy(y.op.graph, other, dst_scope="copied")
    assert len(view.ops) == len(info._transformed_ops)
    with other.as_default(), tf.Session() as session:
        x_, y_ = info.transformed([x, y])
        slope = tf.gradients(y_, x_)[0]
        assert session.run([y_, slope], {x_: 2.0}) == [32.0, 80.0]  # x ** 5
        assert session.run([y_, slope], {x_: 4.0}) == pytest.approx([25.6, 25.6])  # x ** 4 / 10


def test_primitive_loops_are_copied() -> None:
    source = Graph()
    with source.as_default():
        n = tf.constant(5, name="n")
        result = tf.identity(tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), [0, 0])[1], name="sum")
    message = tf.graph_util.convert_variables_to_constants(tf.Session(graph=source), source.as_graph_def(), ["sum"])
    del result
    with Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
        kinds = {op.type for op in graph.get_operations()}
        _, info = ge.copy(graph, dst_scope="copied")
        total = info.transformed(graph.get_tensor_by_name("sum:0"))
        assert value_of(total) == [10]
        assert kinds


# ---------------------------------------------------------------------- gradients over copies
def memory_saving_gradients(y: Any, xs: list[Any], kept: list[Any]) -> list[Any]:
    """Gradients that compute everything but `kept` again, written with the editor.

    From the last kept tensor to the first, the operations behind it are copied, with copies that take the kept tensors
    cut off from what they depend on, and run after the gradient that they serve has arrived.
    """
    cut = {tensor: tf.stop_gradient(tensor) for tensor in kept}
    between = [op for op in ge.get_walks_intersection_ops([x.op for x in xs], y) if op.inputs]
    arrived: dict[Any, Any] = {y: None}
    totals: list[Any] = [None] * len(xs)
    for end in [y, *reversed(kept)]:
        others = [tensor for tensor in kept if tensor is not end]
        behind = set(ge.get_backward_walk_ops([end.op], stop_at_ts=others)).intersection(between)
        ops = [op for op in between if op in behind and op not in {t.op for t in others}]
        _, info = ge.copy_with_input_replacements(ge.sgv(ops), {})
        copies = [info.transformed(op) for op in ops]
        ge.reroute_ts([cut[t] for t in others], others, can_modify=copies)
        slopes = tf.gradients(info.transformed(end), [*(cut[t] for t in others), *xs], arrived[end])
        for op in copies:
            late = y.op if arrived[end] is None else arrived[end].op
            ge.add_control_inputs(op, [late] if late not in op.control_inputs else [])
        for tensor, slope in zip(others, slopes, strict=False):
            if slope is not None:
                arrived[tensor] = slope if arrived.get(tensor) is None else arrived[tensor] + slope
        for number, slope in enumerate(slopes[len(others) :]):
            if slope is not None:
                totals[number] = slope if totals[number] is None else totals[number] + slope
    return totals


def test_gradients_over_copies_are_the_gradients() -> None:
    rng = np.random.RandomState(1)
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 4])
        weights = [tf.get_variable(f"w{i}", initializer=rng.randn(4, 4).astype(np.float32)) for i in range(6)]
        layers = [x]
        for weight in weights:
            layers.append(tf.tanh(tf.matmul(layers[-1], weight)) + 0.5 * layers[-1])
        loss = tf.reduce_sum(tf.square(layers[-1]))
        plain = tf.gradients(loss, weights)
        saving = memory_saving_gradients(loss, weights, [layers[2], layers[4]])
        session.run(tf.global_variables_initializer())
        expected, got = session.run([plain, saving], {x: rng.randn(3, 4)})
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_copy_has_the_gradient_of_what_it_computes() -> None:
    with Graph().as_default(), tf.Session():
        x = tf.placeholder(tf.float32, [3])
        y = tf.sin(x) * tf.reduce_sum(x)
        z = ge.graph_replace(y, {x: tf.square(x)})
        assert compute_gradient_error(x, [3], z, [3], x_init_value=np.array([0.2, 0.5, 0.9], np.float32)) < 1e-2
