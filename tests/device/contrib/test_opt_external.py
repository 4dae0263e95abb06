"""Algorithms outside the graph: SciPy's minimization with bounds and constraints, and one of a program's own."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import anabranch as tf

scipy_optimize = pytest.importorskip("scipy.optimize")
opt = tf.contrib.opt


class Newton(opt.ExternalOptimizerInterface):  # type: ignore[misc]
    """One step from where it begins, of a quadratic function whose second derivative is 1."""

    def _minimize(self, initial_val: Any, loss_grad_func: Any, step_callback: Any, **others: Any) -> Any:
        self.seen = others
        step_callback(initial_val)
        return initial_val - loss_grad_func(initial_val)[1]


def rosenbrock(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(100 * tf.square(x[1:] - tf.square(x[:-1])) + tf.square(1 - x[:-1]))


def test_an_algorithm_of_a_programs_own() -> None:
    shapes: list[list[int]] = [[], [2], [2, 3]]
    starts = [np.ones(shape, np.float32) * (i + 2) for i, shape in enumerate(shapes)]
    variables = [tf.get_variable(f"v{i}", initializer=start) for i, start in enumerate(starts)]
    tf.get_variable("unused", initializer=[3.0])
    goal = tf.placeholder(tf.float32, [])
    loss = tf.add_n([tf.nn.l2_loss(v - goal) for v in variables])
    made = Newton(loss, equalities=[variables[0] - 1.0], var_to_bounds={variables[1]: (0, [None, 5])}, kind="exact")
    steps, losses = [], []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made.minimize(
            feed_dict={goal: 0.5},
            fetches=[loss, goal],
            step_callback=steps.append,
            loss_callback=lambda *values: losses.append(values),
        )
        found = session.run(tf.trainable_variables())
    for value, shape in zip(found, shapes, strict=False):
        np.testing.assert_allclose(value, np.full(shape, 0.5))
    assert found[3].tolist() == [3.0]
    expected = np.concatenate([start.ravel() for start in starts] + [[3.0]])
    np.testing.assert_allclose(steps, [expected])
    squares = ((expected[:-1] - 0.5) ** 2).sum() / 2
    np.testing.assert_allclose(losses, [(squares, 0.5)])
    assert made.seen["optimizer_kwargs"] == {"kind": "exact"}
    infinite = (-np.inf, np.inf)
    assert made.seen["packed_bounds"] == [infinite, (0.0, np.inf), (0.0, 5.0), *[infinite] * 7]


def test_functions_of_constraints_are_evaluated_at_vectors() -> None:
    x = tf.get_variable("x", initializer=np.array([1.0, 2.0]))
    made = Newton(tf.nn.l2_loss(x), equalities=[x[0] * x[1]], inequalities=[x[0] + 3.0])
    at = np.array([5.0, 7.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made.minimize(session)
        assert [f(at) for f in made.seen["equality_funcs"]] == [35.0]
        assert [f(at).tolist() for f in made.seen["equality_grad_funcs"]] == [[7.0, 5.0]]
        assert [f(at) for f in made.seen["inequality_funcs"]] == [8.0]
        assert [f(at).tolist() for f in made.seen["inequality_grad_funcs"]] == [[1.0, 0.0]]
        assert session.run(x).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", [None, "L-BFGS-B", "CG", "SLSQP"])
def test_a_curved_valley(dtype: Any, method: str | None) -> None:
    x = tf.get_variable("x", initializer=np.array([-1.0, 0.5, 1.5], dtype))
    method_given = {} if method is None else {"method": method}
    made = opt.ScipyOptimizerInterface(rosenbrock(x), options={"maxiter": 300}, **method_given)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made.minimize(session)
        found = session.run(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.ones(3), atol=0.05 if dtype == np.float32 else 1e-3)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (([1.0, 2.0], None), [1.0, 2.0]),
        ((None, np.inf), [0.0, 0.0]),
        (([None, 2.0], None), [0.0, 2.0]),
        ((-np.inf, -3), [-3.0, -3.0]),
    ],
)
def test_bounds(bounds: Any, expected: list[float]) -> None:
    x = tf.get_variable("x", initializer=[7.0, 7.0])
    made = opt.ScipyOptimizerInterface(tf.reduce_sum(tf.square(x)), var_to_bounds={x: bounds})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made.minimize(session)
        np.testing.assert_allclose(session.run(x), expected, atol=1e-4)


def test_constraints_beside_scipy_alone() -> None:
    """The largest rectangle under x² + 2 y² = 3, right of 1: the same as SciPy finds with formulas by hand."""
    x, y = (tf.get_variable(name, initializer=np.float64(start)) for name, start in (("x", 2.0), ("y", 0.3)))
    made = opt.ScipyOptimizerInterface(
        -x * y, equalities=[x**2 + 2 * y**2 - 3], inequalities=[x - 1.0], method="SLSQP", tol=1e-9
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made.minimize(session)
        found = session.run([x, y])
    alone = scipy_optimize.minimize(
        lambda v: -v[0] * v[1],
        [2.0, 0.3],
        method="SLSQP",
        tol=1e-9,
        constraints=[
            {"type": "eq", "fun": lambda v: v[0] ** 2 + 2 * v[1] ** 2 - 3},
            {"type": "ineq", "fun": lambda v: v[0] - 1.0},
        ],
    )
    np.testing.assert_allclose(found, alone.x, rtol=1e-5)
    np.testing.assert_allclose(found, [np.sqrt(1.5), np.sqrt(0.75)], rtol=1e-5)
    assert made.optimizer_kwargs["method"] == "SLSQP"


def test_bad_arguments() -> None:
    x = tf.get_variable("x", initializer=[1.0, 2.0])
    loss = tf.reduce_sum(tf.square(x))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ValueError, match="using the var_to_bounds argument"):
            opt.ScipyOptimizerInterface(loss, bounds=[(0, 1)]).minimize(session)
        with pytest.raises(ValueError, match="'jac' is set automatically"):
            opt.ScipyOptimizerInterface(loss, jac=False).minimize(session)
        with pytest.raises(NotImplementedError, match="implement the _minimize"):
            opt.ExternalOptimizerInterface(loss).minimize(session)
    with pytest.raises(ValueError, match="give session"):
        opt.ScipyOptimizerInterface(loss).minimize()
    with pytest.raises(ValueError, match="not among the variables"):
        opt.ScipyOptimizerInterface(loss, [x], var_to_bounds={tf.get_variable("y", [2]): (0, 1)})
    with pytest.raises(ValueError, match="No variables to optimize"):
        opt.ScipyOptimizerInterface(loss, [])
    with pytest.raises(ValueError, match="broadcast"):
        opt.ScipyOptimizerInterface(loss, var_to_bounds={x: ([1, 2, 3], None)})


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.get_variable("x", initializer=[1.0, 2.0])
    made = opt.ScipyOptimizerInterface(tf.reduce_sum(tf.square(x)))
    known = importlib.import_module

    def refused(name: str, package: str | None = None) -> Any:
        if name.startswith("scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return known(name, package)

    monkeypatch.setattr(importlib, "import_module", refused)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ImportError, match="pip install scipy"):
            made.minimize(session)
