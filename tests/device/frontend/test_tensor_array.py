"""tf.TensorArray: every method, dense and of different shapes, and gradients through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.ops import raw
from anabranch.session import Session


def placeholder(shape: Any = (), dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


X = np.arange(6.0).reshape(3, 2)


def test_write_read_stack_gather_size() -> None:
    x = placeholder([2])
    array = TensorArray("float64", size=3).write(0, x).write(2, raw.Neg(x)).write(1, raw.Exp(x))
    got = run([array.read(2), array.stack(), array.gather([2, 0]), array.size(), array.identity().read(0)], {x: [1, 2]})
    np.testing.assert_array_equal(got[0], [-1, -2])
    np.testing.assert_allclose(got[1], [[1, 2], np.exp([1, 2]), [-1, -2]])
    np.testing.assert_array_equal(got[2], [[-1, -2], [1, 2]])
    assert got[3] == 3
    np.testing.assert_array_equal(got[4], [1, 2])
    assert array.stack().shape.as_list() == [3, 2]
    assert array.element_shape.as_list() == [2]


def test_unstack_scatter_split_concat() -> None:
    x = placeholder([3, 2])
    unstacked = TensorArray("float64", size=3).unstack(x)
    scattered = TensorArray("float64", size=4).scatter([3, 0, 1], x)
    pieces = TensorArray("float64", size=3, infer_shape=False).split(x, [1, 1, 1])
    got = run([unstacked.stack(), scattered.stack(), pieces.concat(), pieces.read(1)], {x: X})
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[1], [X[1], X[2], [0, 0], X[0]])
    np.testing.assert_array_equal(got[2], X)
    np.testing.assert_array_equal(got[3], X[1:2])


def test_pieces_of_different_lengths() -> None:
    x = placeholder([3, 2])
    pieces = TensorArray("float64", size=2, infer_shape=False).split(x, [1, 2])
    weighted = pieces.write(1, raw.Mul(pieces.read(1), np.float64(3.0)))
    joined = weighted.concat()
    got = run([joined, gradients(raw.Sum(raw.Square(joined), [0, 1]), x)[0], pieces.read(0)], {x: X})
    factor = np.array([[1.0], [3.0], [3.0]])
    np.testing.assert_array_equal(got[0], X * factor)
    np.testing.assert_allclose(got[1], 2 * X * factor**2)
    np.testing.assert_array_equal(got[2], X[:1])


def test_dynamic_size() -> None:
    n = placeholder(dtype="int32")
    array = TensorArray("int32", size=0, dynamic_size=True, element_shape=[])
    _, array = while_loop(
        lambda i, _: raw.Less(i, n), lambda i, a: (raw.AddV2(i, 1), a.write(i, raw.Mul(i, i))), (0, array)
    )
    assert run([array.stack(), array.size()], {n: 4})[0].tolist() == [0, 1, 4, 9]
    assert TensorArray("int32", size=0, dynamic_size=True).scatter([2], [7]).dynamic_size


def test_an_array_that_may_grow_grows_after_unstack_and_split() -> None:
    rows = TensorArray("float64", size=3, dynamic_size=True)
    for array in (rows.unstack([1.0, 2.0, 3.0]), rows.split([1.0, 2.0, 3.0], [1, 1, 1])):
        grown = array.write(3, array.read(0) * 4.0)
        values, size = run([grown.stack(), grown.size()])
        assert values.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
        assert size == 4


def test_size_that_is_fed() -> None:
    n = placeholder(dtype="int32")
    array = TensorArray("int32", size=n, element_shape=[])
    _, array = while_loop(
        lambda i, _: raw.Less(i, n), lambda i, a: (raw.AddV2(i, 1), a.write(i, raw.Mul(i, i))), (0, array)
    )
    for k in (0, 1, 5):
        assert run(array.stack(), {n: k}).tolist() == [i * i for i in range(k)]


def test_gradients_of_every_method() -> None:
    x = placeholder([3, 2])
    array = TensorArray("float64", size=3).unstack(x)
    changed = array.write(1, raw.Exp(array.read(0))).scatter([2], raw.Sin(array.gather([2])))
    loss = raw.Sum(raw.Square(changed.stack()), [0, 1])
    dx = gradients(loss, x)[0]
    second = gradients(dx, x)[0]
    got = run([dx, second], {x: X / 3})
    v = X / 3
    wanted = np.stack([2 * v[0] + 2 * np.exp(2 * v[0]), 0 * v[1], 2 * np.sin(v[2]) * np.cos(v[2])])
    np.testing.assert_allclose(got[0], wanted)
    np.testing.assert_allclose(got[1], np.stack([2 + 4 * np.exp(2 * v[0]), 0 * v[1], 2 * np.cos(2 * v[2])]), atol=1e-12)


@pytest.mark.parametrize("taken", [True, False])
def test_in_a_conditional(taken: bool) -> None:
    x, p = placeholder([2]), placeholder(dtype="bool", name="p")
    array = TensorArray("float64", size=2, element_shape=[2])
    flow = cond(p, lambda: array.write(0, raw.Sin(x)).flow, lambda: array.write(1, raw.Exp(x)).flow)
    total = raw.Sum(array.with_flow(flow).stack(), [0])
    got = run([total, gradients(total, x)[0]], {x: [0.1, 0.2], p: taken})
    at = np.array([0.1, 0.2])
    np.testing.assert_allclose(got, [np.sin(at), np.cos(at)] if taken else [np.exp(at)] * 2)


def test_text_elements() -> None:
    array = TensorArray("string", size=2).write(0, "a").write(1, "b")
    assert run(array.stack()).tolist() == [b"a", b"b"]


def test_arrays_and_numbers_take_over_the_dtype_of_the_elements() -> None:
    array = TensorArray("float32", size=3).unstack(np.arange(3.0)).write(0, np.float64(5.0)).write(1, 7)
    pieces = TensorArray("float32", size=2).split(np.arange(4), [2, 2])
    stacked = array.scatter([2], np.array([9.0])).stack()
    assert stacked.dtype.name == "float32"
    assert run(stacked).tolist() == [5.0, 7.0, 9.0]
    assert run(pieces.read(1)).tolist() == [2.0, 3.0]


def test_mistakes() -> None:
    x = placeholder([2])
    with pytest.raises(ValueError, match="Size must be declared"):
        TensorArray("float64")
    array = TensorArray("float64", size=2).write(0, x)
    with pytest.raises(ValueError, match="Inconsistent shapes"):
        array.write(1, np.zeros(3))
    with pytest.raises(TypeError, match="TensorArray dtype is float64"):
        array.write(1, raw.Cast(x, DstT="float32"))
    i = placeholder(dtype="int32", name="i")
    with pytest.raises(errors.InvalidArgumentError, match="read from index 2 but array size is: 2"):
        run(array.read(i), {x: [1, 2], i: 2})
    sums = TensorArray("float64", size=2, infer_shape=False).grad("grad").write(0, 1.0).write(0, [1.0])
    with pytest.raises(errors.InvalidArgumentError, match=r"existing shape is \[\] but the new input shape is \[1\]"):
        run(sums.read(0))


def test_elements_of_different_shapes_that_are_read_several_times() -> None:
    x, y = placeholder([1, 2]), placeholder([])
    array = TensorArray("float64", size=2, infer_shape=False).write(0, x).write(1, y)
    reads = [array.read(0), array.read(0), array.read(1)]
    seeds = [np.array([[2.0, 3.0]]), np.array([[1.0, -1.0]]), np.float64(-2.0)]
    got = run(gradients(reads, [x, y], seeds), {x: [[4, 5]], y: 3})
    assert got[0].tolist() == [[3, 2]]
    assert got[1] == -2


def test_an_array_in_which_gradients_are_summed() -> None:
    array = TensorArray("float64", size=3, infer_shape=False).write(0, [[4.0, 5.0]])
    sums = array.grad("grad").write(0, [[5.0, 6.0]]).write(2, 3.0).write(2, 4.0)
    rows = TensorArray("float64", size=3).unstack(X).grad("grad").scatter([0, 2, 0], X)
    got = run([array.read(0), sums.read(0), sums.read(2), sums.size(), rows.stack()])
    assert [np.asarray(v).tolist() for v in got] == [[[4, 5]], [[5, 6]], 7, 3, [[4, 6], [0, 0], [2, 3]]]


def test_what_cannot_be_an_element_is_refused_without_inference_too() -> None:
    array = TensorArray("float64", size=2, infer_shape=False, element_shape=[None, 2])
    with pytest.raises(ValueError, match="Inconsistent shapes"):
        array.write(0, np.ones([1, 3]))
