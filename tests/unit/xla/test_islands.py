"""How a step falls into islands and host calls: the guarantees that `xla.islands` opens with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.errors import InvalidArgumentError
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.pipeline import plan_step
from anabranch.session import Session
from anabranch.xla.islands import Island, group


def placeholder(shape: Any = (2,), dtype: str = "float32", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def variable(name: str = "v", shape: Any = (2,)) -> Any:
    return raw.VarHandleOp(dtype="float32", shape=shape, shared_name=name)


def kinds(fetches: Any, feeds: Any, targets: Any = ()) -> list[list[str]]:
    plan = plan_step(fetches, list(targets), feeds)
    return [
        [op.type for op in item.operations] if isinstance(item, Island) else [f"host {item.operation.type}"]
        for item in plan.items
    ]


def test_compiled_operations_form_one_island() -> None:
    x = placeholder()
    assert kinds([raw.Exp(raw.Neg(x))], [x]) == [["Neg", "Exp"]]


def test_host_work_separates_islands_and_unrelated_work_stays_together() -> None:
    x = placeholder()
    negated = raw.Neg(x)
    positions = raw.Where(raw.Greater(negated, 0.0))
    beside = raw.Exp(x)
    after = raw.Cast(positions, DstT="float32")
    assert kinds([after, beside], [x]) == [["Neg", "Greater", "Exp"], ["host Where"], ["host Cast"]]


def test_tensors_whose_size_the_data_decides_stay_on_the_host() -> None:
    """A compiled operation on them would be compiled anew in each step."""
    x = placeholder()
    kept = raw.GatherV2(x, raw.Reshape(raw.Where(raw.Greater(x, 0.0)), [-1]), 0)
    mean = raw.Exp(raw.Mean(raw.Mul(kept, 2.0), [0]))
    on_host = ["_KeptRows", "Mul", "Mean"]
    assert kinds([mean], [x]) == [["Greater"], *([f"host {kind}"] for kind in on_host), ["Exp"]]
    with Session() as session:
        for values in ([1.0, 5.0], [-1.0, 0.5]):
            positive = np.array([v for v in values if v > 0], np.float32)
            assert np.allclose(session.run(mean, {x: values}), np.exp(2 * positive.mean()))


def test_dropout_of_a_sparse_tensor_compiles_nothing_of_its_size() -> None:
    """How many elements are kept differs in each step, and all that handles them has a kernel on the host."""
    x = placeholder(shape=(4,))
    kept = raw.Reshape(raw.Where(raw.Greater(x, 0.0)), [-1])
    indices, values = raw.GatherV2(np.array([[0, 1], [1, 0], [1, 1], [2, 0]]), kept, 0), raw.GatherV2(x, kept, 0)
    shape = np.array([3, 2])
    scaled = raw.SparseDenseCwiseMul(indices, values, shape, np.float32(2))
    product = raw.SparseTensorDenseMatMul(indices, scaled, shape, np.eye(2, dtype=np.float32))
    on_host = {kind for item in kinds([product], [x]) for kind in item if kind.startswith("host")}
    assert on_host >= {"host SparseDenseCwiseMul", "host SparseTensorDenseMatMul"}
    with Session() as session:
        assert session.run(product, {x: [1.0, -1.0, 3.0, 4.0]}).tolist() == [[0, 2], [0, 6], [8, 0]]


def product_of_kept(x: Any, shape: Any, right: Any) -> Any:
    """The product with those elements of a sparse matrix of the fed shape `shape` that are greater than zero."""
    kept = raw.Reshape(raw.Where(raw.Greater(x, 0.0)), [-1])
    indices, values = raw.GatherV2(np.array([[0, 1], [1, 0], [1, 1], [2, 0]]), kept, 0), raw.GatherV2(x, kept, 0)
    return raw.SparseTensorDenseMatMul(indices, values, shape, right)


def test_what_a_fed_shape_sizes_is_compiled_though_data_decides_its_elements() -> None:
    x, shape = placeholder(shape=(4,)), placeholder((None,), "int64", "shape")
    product = product_of_kept(x, shape, np.eye(2, dtype=np.float32))
    dense = raw.SparseToDense(np.array([[0, 1], [2, 0]]), raw.Identity(shape), np.array([4, 5], np.float32), 0.0)
    total = raw.Exp(raw.Mul(raw.Add(product, dense), 0.5))
    assert product.shape.as_list() == [None, 2]
    assert kinds([total], [x, shape])[-1] == ["Add", "Mul", "Exp"]
    with Session() as session:
        for rows in (3, 4, 3):
            expected = np.zeros((rows, 2), np.float32)
            expected[:3] = [[0, 6], [0, 3], [9, 0]]
            got = session.run(total, {x: [2.0, -1.0, 3.0, 4.0], shape: [rows, 2]})
            np.testing.assert_allclose(got, np.exp(expected / 2), rtol=1e-6)


def test_what_follows_a_loss_whose_gradient_is_as_large_as_its_inputs_is_compiled() -> None:
    """Labels decide how large a loss is, and not of how many numbers its gradient consists."""
    logits, length = placeholder((None, None, 3)), placeholder((None,), "int32", "length")
    indices, labels = placeholder((None, 2), "int64", "indices"), placeholder((None,), "int32", "labels")
    _, gradient = raw.CTCLoss(raw.Neg(logits), indices, labels, length)
    assert kinds([raw.Exp(raw.Mul(gradient, 2.0))], [logits, length, indices, labels]) == [
        ["Neg"],
        ["host CTCLoss"],
        ["Mul", "Exp"],
    ]


@pytest.mark.parametrize("unsteady", ["rows", "columns"])
def test_what_computed_values_size_stays_on_the_host(unsteady: str) -> None:
    x, count = placeholder(shape=(4,)), placeholder((2,), "int64", "count")
    kept = raw.Cast(raw.Size(raw.Where(raw.Greater(x, 0.0)), out_type="int64"), DstT="int64")
    shape, right = count, convert_to_tensor(np.eye(2, dtype=np.float32))
    if unsteady == "rows":
        shape = raw.Pack([raw.Maximum(kept, np.int64(3)), np.int64(2)])
    else:
        right = raw.Transpose(raw.GatherV2(np.ones((4, 2), np.float32), raw.Reshape(raw.Where(x), [-1]), 0), [1, 0])
    doubled = raw.Mul(product_of_kept(x, shape, right), 2.0)
    assert kinds([doubled], [x, count])[-1] == ["host Mul"]
    with Session() as session:
        found = session.run(doubled, {x: [1.0, -1.0, 3.0, 4.0], count: [3, 2]})
        sparse = np.array([[0, 1], [0, 3], [4, 0]], np.float32)
        np.testing.assert_allclose(found, 2 * sparse @ (np.eye(2) if unsteady == "rows" else np.ones((2, 4))))


def test_a_value_needed_at_compile_time_is_cut_out() -> None:
    x = placeholder()
    length = raw.ArgMax(x, 0)
    filled = raw.Fill(raw.Pack([length]), 1.0)
    plan = kinds([filled], [x])
    assert plan == [["ArgMax"], ["Pack", "Fill"]]
    with Session() as session:
        assert session.run(filled, {x: [1.0, 5.0]}).tolist() == [1.0]


def test_shapes_need_no_cut() -> None:
    x = placeholder((None, 3))
    rows = raw.Slice(raw.Shape(x), [0], [1])
    assert kinds([raw.Fill(rows, 1.0), raw.Neg(x)], [x]) == [["Shape", "Slice", "Fill", "Neg"]]


def test_a_fed_size_is_part_of_the_key_not_a_cut() -> None:
    size = placeholder((1,), "int32", "size")
    filled = raw.Fill(size, 2.0)
    assert kinds([filled], [size]) == [["Fill"]]
    with Session() as session:
        assert [len(session.run(filled, {size: [n]})) for n in (3, 1, 3)] == [3, 1, 3]


def test_reads_and_writes_of_one_variable_keep_step_order() -> None:
    handle = variable()
    raw.AssignVariableOp(handle, np.zeros(2, np.float32), name="init")
    before = raw.ReadVariableOp(handle, dtype="float32")
    number = raw.ListDiff(before, convert_to_tensor(np.full(1, -1.0, np.float32))).out
    number.set_shape([2])
    write = raw.AssignVariableOp(handle, raw.AddV2(number, 1.0))
    after = raw.ReadVariableOp(handle, dtype="float32")
    with Session() as session:
        session.run("init")
        assert [v.tolist() for v in session.run([before, after, write])[:2]] == [[0, 0], [1, 1]]
        assert [v.tolist() for v in session.run([after, write, before])[::2]] == [[2, 2], [1, 1]]


def test_variables_are_read_in_the_island_that_takes_their_values() -> None:
    """And not in one of their own, before what the step waits for: they would be copied from one to the other."""
    x = placeholder()
    waited = raw.PyFunc([x], token="token", Tout=["float32"])[0]
    waited.set_shape([2])
    weights = variable()
    read = raw.ReadVariableOp(weights, dtype="float32")
    decay = raw.Mul(read, 0.1)
    step = raw.AssignSubVariableOp(weights, raw.Add(raw.Mul(waited, read), decay))
    assert kinds([], [x], [step]) == [
        ["host PyFunc"],
        ["ReadVariableOp", "Mul", "Mul", "Add", "AssignSubVariableOp"],
    ]


def test_reads_that_others_need_earlier_stay() -> None:
    x = placeholder()
    weights = variable()
    read = raw.ReadVariableOp(weights, dtype="float32")
    # what the host takes
    waited = raw.PyFunc([read], token="token", Tout=["float32"])[0]
    waited.set_shape([2])
    product = raw.Mul(waited, read)
    assert kinds([product], [x]) == [["ReadVariableOp"], ["host PyFunc"], ["Mul"]]
    # what overwrites the variable beforehand
    other = variable("other")
    early = raw.ReadVariableOp(other, dtype="float32")
    late = raw.PyFunc([x], token="token", Tout=["float32"])[0]
    late.set_shape([2])
    with get_default_graph().control_dependencies([early]):
        written = raw.AssignVariableOp(other, raw.Neg(x))
    assert kinds([raw.Mul(late, early)], [x], [written]) == [
        ["ReadVariableOp", "Neg", "AssignVariableOp"],
        ["host PyFunc"],
        ["Mul"],
    ]


def test_what_is_computed_of_fed_values_and_constants_joins_the_island_that_takes_it() -> None:
    x = placeholder()
    parsed = raw.StringToNumber(raw.AsString(x), out_type="float32")
    # too large to be computed beforehand
    ones = raw.Fill(np.array([1 << 20], np.int32), np.float32(1))
    both = raw.Mul(parsed, raw.Mul(raw.Exp(x), raw.Sum(raw.Exp(ones), [0])))
    strings, numbers, *rest = kinds([both], [x])
    assert (strings, numbers) == (["host AsString"], ["host StringToNumber"])
    assert [sorted(island) for island in rest] == [["Exp", "Exp", "Fill", "Mul", "Mul", "Sum"]]


def test_what_needs_no_variable_is_computed_while_others_wait() -> None:
    x = placeholder()
    queue = raw.FIFOQueueV2(component_types=["float32"], shapes=[[2]], shared_name="q")
    waited = raw.QueueDequeueV2(queue, component_types=["float32"])[0]
    product = raw.Mul(waited, raw.Exp(x))
    assert ["Exp"] in kinds([product], [x])


def test_what_is_fed_and_small_is_prepared_for_the_host_there() -> None:
    """A program of XLA's would take ten times as long."""

    def labels_of(size: int, passed: int = 1) -> list[list[str]]:
        x = placeholder([size, 1], "int32")
        labels = raw.Cast(x, DstT="int64")
        for _ in range(passed):
            labels = raw.Reshape(labels, [-1])
        drawn = raw.PyFunc([labels], token="token", Tout=["int64"])[0]
        drawn.set_shape([size])
        return kinds([raw.Mul(drawn, labels)], [x])

    assert labels_of(128) == [["host Cast"], ["host Reshape"], ["host PyFunc"], ["Mul"]]
    assert labels_of(1 << 16) == [["Cast", "Reshape"], ["host PyFunc"], ["Mul"]]
    assert len(labels_of(128, passed=4)) == 3
    # what no host operation takes stays compiled
    x = placeholder([4], "int32")
    assert kinds([raw.Cast(x, DstT="int64"), raw.AsString(x)], [x]) == [["Cast"], ["host AsString"]]


def test_a_variable_first_written_in_an_island_is_not_read_from_outside() -> None:
    handle = variable()
    write = raw.AssignVariableOp(handle, convert_to_tensor([1.0, 2.0]))
    with get_default_graph().control_dependencies([write]):
        read = raw.ReadVariableOp(handle, dtype="float32")
    plan = plan_step([read], [], [])
    assert plan.islands[0].reads == []
    with Session() as session:
        assert session.run(read).tolist() == [1, 2]


@given(st.data())
def test_random_graphs_keep_every_edge_and_give_the_same_values(data: Any) -> None:
    """Random mixtures of compiled and host operations: the plan respects all edges, and computes what NumPy does."""
    with Graph().as_default():
        x = placeholder((3,))
        tensors, values = [x], [np.array([0.5, -1.0, 2.0], np.float32)]
        for _ in range(data.draw(st.integers(1, 14))):
            i, j = (data.draw(st.integers(0, len(tensors) - 1)) for _ in range(2))
            kind = data.draw(st.sampled_from(["add", "mul", "neg", "host"]))
            if kind == "add":
                tensors.append(raw.AddV2(tensors[i], tensors[j]))
                values.append(values[i] + values[j])
            elif kind == "mul":
                tensors.append(raw.Mul(tensors[i], 0.5))
                values.append(values[i] * np.float32(0.5))
            elif kind == "neg":
                with get_default_graph().control_dependencies([tensors[j].op]):
                    tensors.append(raw.Neg(tensors[i]))
                values.append(-values[i])
            else:
                tensors.append(raw.ListDiff(tensors[i], convert_to_tensor(np.zeros(0, np.float32))).out)
                tensors[-1].set_shape([3])
                values.append(values[i])
        step = fold(prune(tensors, [], [x]))
        level: dict[Any, int] = {}
        for position, item in enumerate(group(step).items):
            for op in item.operations:
                level[op] = position
        for op in step.operations:
            for earlier in [*(t.op for t in op.inputs if t is not x), *op.control_inputs]:
                if earlier in level:
                    assert level[earlier] <= level[op]
        with Session() as session:
            for got, expected in zip(session.run(tensors, {x: values[0]}), values, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_check_of_what_is_changed_before_it_fails_and_nothing_changes() -> None:
    """The check holds for the old value, which is what is left where it fails."""
    state = raw.VarHandleOp(dtype="int32", shape=[2], shared_name="v")
    with Session() as session:
        session.run(raw.AssignVariableOp(state, np.array([6, 2], np.int32)))
        change = raw.AssignSubVariableOp(state, np.array([3, 2], np.int32))
        with get_default_graph().control_dependencies([change]):
            changed = raw.ReadVariableOp(state, "int32")
        offsets = raw.ConcatOffset(1, [np.array([6, 2], np.int32), changed])
        row = raw.GatherV2(np.zeros((2, 3), np.float32), raw.Sub(changed, 4), 0)
        for checked, message in ((offsets, "has shape \\[3 0\\]"), (row, "-1")):
            with pytest.raises(InvalidArgumentError, match=message):
                session.run([change, checked])
            assert session.run(raw.ReadVariableOp(state, "int32")).tolist() == [6, 2]


def test_what_stands_between_host_operations_and_is_little_runs_there() -> None:
    """Reads of small variables for the host, sizes of what the host has, and arithmetic on a few numbers."""
    x = placeholder((None,), "bool")
    positions = raw.Where(x)
    bias = raw.ReadVariableOp(variable("bias", (1,)), dtype="float32")
    numbers = raw.BiasAdd(raw.Cast(positions, DstT="float32"), bias)
    total = raw.Cast(raw.Prod(raw.Shape(numbers), [0]), DstT="float32")
    half = raw.Mul(raw.RealDiv(total, 2.0), raw.AddV2(total, 1.0))
    items = kinds([raw.Mul(numbers, half)], [x])
    assert [item for item in items if not item[0].startswith("host")] == []
    # what is read to be computed with on the device, or is large, stays there
    large = raw.ReadVariableOp(variable("large", (1 << 13,)), dtype="float32")
    waited = raw.Mul(raw.Cast(raw.StridedSlice(positions, [0, 0], [1, 1], [1, 1]), DstT="float32"), 2.0)
    assert [item for item in kinds([raw.Exp(large), waited], [x]) if "ReadVariableOp" in item or "Exp" in item] == [
        ["ReadVariableOp", "Exp"]
    ]


def test_places_of_distinct_values_are_as_many_as_the_values_were() -> None:
    """What is gathered by them has the size of what was fed: it is compiled, and its gradient's rows are not."""
    ids = placeholder((None,), "int32", "ids")
    distinct, places = raw.Unique(ids)
    rows = raw.ResourceGather(variable("table", (10, 2)), distinct, dtype="float32")
    spread = raw.Exp(raw.GatherV2(rows, places, 0))
    count = raw.StridedSlice(raw.Shape(rows), [0], [1], [1], shrink_axis_mask=1)
    summed = raw.UnsortedSegmentSum(spread, places, count)
    items = kinds([summed], [ids])
    assert ["Exp"] in items
    assert ["host UnsortedSegmentSum"] in items  # a program for each number of distinct ids
