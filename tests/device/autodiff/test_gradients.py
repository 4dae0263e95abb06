"""Symbolic gradients: fan-in, stops, seeds, sparse gradients, overrides, higher order, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.autodiff.custom import RegisterGradient, custom_gradient
from anabranch.autodiff.gradients import UnconnectedGradients, gradients, hessians
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def placeholder(shape: Any = (), name: str = "x") -> Any:
    return raw.Placeholder(dtype="float64", shape=shape, name=name)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        initializers = [v.initializer for v in get_default_graph().get_collection("variables")]
        session.run(initializers)
        return session.run(fetches, feeds)


def test_gradients_meet_and_are_summed() -> None:
    x = placeholder()
    y = raw.AddV2(raw.Mul(x, x), raw.AddV2(raw.Sin(x), x))
    assert run(gradients(y, x)[0], {x: 2.0}) == pytest.approx(2 * 2 + np.cos(2) + 1)


def test_several_ys_and_given_seeds() -> None:
    x = placeholder([2])
    ys = [raw.Mul(x, 3.0), raw.Square(x)]
    assert run(gradients(ys, x)[0], {x: [1, 2]}).tolist() == [5, 7]
    seeds = [np.array([1.0, 10.0]), None]
    assert run(gradients(ys, x, grad_ys=seeds)[0], {x: [1, 2]}).tolist() == [5, 34]
    with pytest.raises(ValueError, match="one gradient per y"):
        gradients(ys, x, grad_ys=[None])
    with pytest.raises(ValueError, match="has shape"):
        gradients(ys, x, grad_ys=[np.zeros(3), None])


def test_stop_gradients_counts_as_constant() -> None:
    x = placeholder()
    a = raw.Mul(x, 2.0)
    b = raw.Mul(a, x)
    assert run(gradients(b, x)[0], {x: 3.0}) == 12
    assert run(gradients(b, x, stop_gradients=[a])[0], {x: 3.0}) == 6
    assert gradients(raw.StopGradient(x), x) == [None]
    c = raw.Mul(x, 2.0)
    partial = gradients(raw.AddV2(x, c), [x, c], stop_gradients=[x, c])
    assert [run(g, {x: 3.0}) for g in partial] == [1, 1]


def test_unconnected() -> None:
    x, other = placeholder(), placeholder([2], "other")
    y = raw.Exp(x)
    assert gradients(y, [other]) == [None]
    zeros = gradients(y, [other], unconnected_gradients=UnconnectedGradients.ZERO)[0]
    assert run(zeros, {other: [1, 2]}).tolist() == [0, 0]
    assert gradients(y, [other], unconnected_gradients="none") == [None]


def test_third_order() -> None:
    x = placeholder()
    y = raw.Mul(raw.Mul(x, x), raw.Mul(x, x))
    first = gradients(y, x)[0]
    second = gradients(first, x)[0]
    third = gradients(second, x)[0]
    assert run([first, second, third], {x: 2.0}) == [32, 48, 48]


def test_hessian_of_a_quadratic() -> None:
    x = placeholder([2])
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    product = raw.MatMul(convert_to_tensor(matrix), raw.ExpandDims(x, 1))
    y = raw.Sum(raw.Mul(x, raw.Squeeze(product)), 0)
    np.testing.assert_allclose(run(hessians(y, x)[0], {x: [0.3, 0.7]}), matrix + matrix.T)


def test_gather_gradients_stay_sparse_and_concatenate() -> None:
    table = Variable(np.ones((100, 2), np.float64))
    one = raw.ResourceGather(table.handle, convert_to_tensor([1, 5]), dtype="float64")
    two = raw.ResourceGather(table.handle, convert_to_tensor([5]), dtype="float64")
    y = raw.AddV2(raw.Sum(one, [0, 1]), raw.Sum(raw.Mul(two, 3.0), [0, 1]))
    grad = gradients(y, table)[0]
    assert isinstance(grad, IndexedSlices)
    got = run(grad)
    assert sorted(got.indices.tolist()) == [1, 5, 5]
    dense = np.zeros((100, 2))
    np.add.at(dense, got.indices, got.values)
    assert dense[5].tolist() == [4, 4]


def test_dense_and_sparse_gradients_meet_as_a_tensor() -> None:
    table = Variable(np.ones((4, 2), np.float64))
    gathered = raw.ResourceGather(table.handle, convert_to_tensor([1]), dtype="float64")
    y = raw.AddV2(raw.Sum(gathered, [0, 1]), raw.Sum(table.value(), [0, 1]))
    assert run(gradients(y, table)[0]).tolist() == [[1, 1], [2, 2], [1, 1], [1, 1]]


def test_override_and_registration() -> None:
    @RegisterGradient("TestTriple")
    def _(op: Any, grad: Any) -> Any:
        return raw.Mul(grad, 3.0)

    x = placeholder()
    with get_default_graph().gradient_override_map({"Identity": "TestTriple"}):
        y = raw.Identity(x)
    assert run(gradients(y, x)[0], {x: 1.0}) == 3
    with pytest.raises(KeyError, match="already registered"):
        RegisterGradient("TestTriple")(lambda op, grad: grad)
    with pytest.raises(TypeError, match="must be a string"):
        RegisterGradient(3)  # type: ignore[arg-type]


def test_custom_gradient_with_variables() -> None:
    weight = Variable(np.float64(2.0))

    @custom_gradient
    def scaled(x: Any) -> Any:
        def grad(dy: Any, variables: Any = None) -> Any:
            assert variables == [weight]
            return raw.Mul(dy, 10.0), [raw.Mul(dy, 100.0)]

        return raw.Mul(x, weight.value()), grad

    x = placeholder()
    y = raw.Mul(scaled(x), 5.0)
    dx, dw = gradients(y, [x, weight])
    assert run([y, dx, dw], {x: 3.0}) == [30, 50, 500]


def test_a_variable_whose_handle_is_an_argument_is_no_other_variable() -> None:
    table = Variable(np.zeros(3))

    @custom_gradient
    def written(handle: Any, values: Any) -> Any:
        raw.AssignVariableOp(handle, values)

        def grad(dy: Any) -> Any:
            return dy, None

        return raw.ReadVariableOp(handle, dtype="float64"), grad

    assert gradients(written(table.handle, np.ones(3)), table.handle)[0] is not None


def test_a_missing_gradient_names_operation_and_line() -> None:
    x = placeholder([3])
    with get_default_graph().gradient_override_map({"Exp": "NobodyRegisteredThis"}):
        y = raw.Exp(x, name="mine")
    with pytest.raises(LookupError, match=r"'mine' \(op type: Exp\), created at .*test_gradients.py"):
        gradients(y, x)


def test_a_gradient_function_with_the_wrong_count_is_told() -> None:
    @RegisterGradient("TestWrongCount")
    def _(op: Any, grad: Any) -> Any:
        return grad, grad, grad

    x = placeholder()
    with get_default_graph().gradient_override_map({"Mul": "TestWrongCount"}):
        y = raw.Mul(x, 2.0)
    with pytest.raises(ValueError, match="do not match num inputs 2"):
        gradients(y, x)


def test_gradients_of_gradients_of_roots_depend_on_what_these_are() -> None:
    """TensorFlow computes the gradient of `SqrtGrad` from its result."""
    y, dy = placeholder(name="y"), placeholder(name="dy")
    z = raw.SqrtGrad(y, dy)
    first = gradients(z, [y, dy])
    second = gradients(first, [y, dy, z])
    third = gradients(gradients(first[0], z)[0], y)[0]
    feeds = {y: 2.0, dy: 3.0}
    # z = dy / (2 y); by y it is -z / y, by dy 1 / (2 y)
    assert run([*first, third], feeds) == pytest.approx([-3 / 8, 1 / 4, 1 / 4])
    assert run(second, feeds) == pytest.approx([3 / 8 - 1 / 8, -1 / 8, -1 / 2])
    assert run(gradients(first, z)[0], feeds | {dy: 0.0, z: 5.0}) == pytest.approx(-1 / 2)


def test_ys_without_gradient() -> None:
    x = placeholder()
    with pytest.raises(TypeError, match=r"y.dtype = tf.bool"):
        gradients(raw.Greater(x, 1.0), x)


@given(st.data())
def test_random_expressions_agree_with_finite_differences(data: Any) -> None:
    unary = {"Sin": np.sin, "Tanh": np.tanh, "Sigmoid": lambda v: 1 / (1 + np.exp(-v)), "Square": np.square}
    with Graph().as_default():
        x = placeholder([3])
        tensors, functions = [x], [lambda v: v]
        for _ in range(data.draw(st.integers(1, 8))):
            i, j = (data.draw(st.integers(0, len(tensors) - 1)) for _ in range(2))
            name = data.draw(st.sampled_from(["AddV2", "Mul", "Sub", *unary]))
            f, g = functions[i], functions[j]
            if name in unary:
                tensors.append(getattr(raw, name)(tensors[i]))
                functions.append(lambda v, f=f, h=unary[name]: h(f(v)))
            else:
                tensors.append(getattr(raw, name)(tensors[i], tensors[j]))
                combine = {"AddV2": np.add, "Mul": np.multiply, "Sub": np.subtract}[name]
                functions.append(lambda v, f=f, g=g, h=combine: h(f(v), g(v)))
        at = np.array([0.3, -0.5, 0.8])
        got = gradients(tensors[-1], x, unconnected_gradients="zero")[0]
        with Session() as session:
            value = session.run(got, {x: at})
        step = 1e-6
        numeric = (functions[-1](at + step) - functions[-1](at - step)) / (2 * step)
        np.testing.assert_allclose(value, numeric, rtol=1e-4, atol=1e-5)
