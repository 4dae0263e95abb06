"""Algorithms outside the graph that minimize a loss: they see NumPy vectors, and run sessions to evaluate them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

#: all variables one behind the other, and other vectors
Vector: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class ExternalOptimizerInterface:
    """Base class of what lets an algorithm outside minimize a loss: a subclass implements `_minimize`.

    Args:
        loss: a scalar tensor.
        var_list: the variables to change; None: the trainable ones.
        equalities: scalar tensors that are to be zero; None: there are none.
        inequalities: scalar tensors that are not to be negative; None: there are none.
        var_to_bounds: variables -> (lowest, highest) values, each a number or what broadcasts to the variable's shape;
            None, also for single elements: there is no bound.
        **optimizer_kwargs: what the subclass takes besides.

    Raises:
        ValueError: a variable has no known shape, or bounds do not broadcast to it.
    """

    def __init__(
        self,
        loss: tf.Tensor,
        var_list: Iterable[tf.Variable] | None = None,
        equalities: Sequence[tf.Tensor] | None = None,
        inequalities: Sequence[tf.Tensor] | None = None,
        var_to_bounds: Mapping[tf.Variable, tuple[Any, Any]] | None = None,
        **optimizer_kwargs: PassedOn,
    ) -> None:
        self._loss = loss
        self._equalities = list(equalities or [])
        self._inequalities = list(inequalities or [])
        self._vars = list(tf.trainable_variables() if var_list is None else var_list)
        if not self._vars:
            raise ValueError("No variables to optimize: var_list, or else the graph's trainable variables, are none.")
        self._shapes = [_shape_of(var) for var in self._vars]
        self._packed_bounds = None if var_to_bounds is None else self._bounds(var_to_bounds)
        self.optimizer_kwargs = optimizer_kwargs
        self._update_placeholders = [tf.placeholder(var.dtype.base_dtype) for var in self._vars]
        self._var_updates = [
            var.assign(tf.reshape(value, shape))
            for var, value, shape in zip(self._vars, self._update_placeholders, self._shapes, strict=True)
        ]
        self._packed_var = _packed([var.read_value() for var in self._vars])
        self._packed_loss_grad = self._gradient(loss)
        self._packed_equality_grads = [self._gradient(value) for value in self._equalities]
        self._packed_inequality_grads = [self._gradient(value) for value in self._inequalities]

    def _bounds(self, var_to_bounds: Mapping[tf.Variable, tuple[Any, Any]]) -> list[tuple[float, float]]:
        strange = [getattr(var, "name", var) for var in var_to_bounds if all(var is not known for known in self._vars)]
        if strange:
            raise ValueError(f"var_to_bounds has {strange}, which are not among the variables that are optimized")
        sides: list[list[float]] = [[], []]
        for var, shape in zip(self._vars, self._shapes, strict=True):
            for side, bound, none in zip(sides, var_to_bounds.get(var, (None, None)), (-np.inf, np.inf), strict=True):
                given = np.asarray(bound, dtype=object)
                for element in np.broadcast_to(given, shape).ravel().tolist():
                    side.append(none if element is None else float(element))
        return list(zip(*sides, strict=True))

    def _gradient(self, value: tf.Tensor) -> tf.Tensor:
        """The gradient of a scalar with respect to all variables, one behind the other."""
        gradients = tf.gradients(value, self._vars)
        return _packed(
            [tf.zeros_like(var) if grad is None else grad for var, grad in zip(self._vars, gradients, strict=True)]
        )

    def minimize(
        self,
        session: tf.Session | None = None,
        feed_dict: Mapping[Any, TensorLike] | None = None,
        fetches: Sequence[Any] | None = None,
        step_callback: Callable[[Vector], object] | None = None,
        loss_callback: Callable[..., object] | None = None,
        **run_kwargs: PassedOn,
    ) -> None:
        """Minimizes the loss now, and then gives the variables their values: this is no operation.

        Args:
            session: runs the graph; None: the default session.
            feed_dict: is fed whenever something is evaluated.
            fetches: tensors whose values `loss_callback` is given.
            step_callback: is called with all variables, one behind the other, in each step of the algorithm.
            loss_callback: is called with the values of `fetches` whenever the loss and its gradient are computed.
            **run_kwargs: of the `session.run` that assigns the variables.

        Raises:
            ValueError: there is no session.
        """
        runner: Any = session or tf.get_default_session()
        if runner is None:
            raise ValueError("minimize runs the graph: give session, or call it within `with session.as_default()`")
        feeds, fetched = dict(feed_dict or {}), list(fetches or [])

        def functions(tensors: list[tf.Tensor]) -> list[Callable[[Vector], Any]]:
            return [_first_of(self._evaluator([tensor], runner, feeds, [], None)) for tensor in tensors]

        result = self._minimize(
            initial_val=runner.run(self._packed_var),
            loss_grad_func=self._evaluator([self._loss, self._packed_loss_grad], runner, feeds, fetched, loss_callback),
            equality_funcs=functions(self._equalities),
            equality_grad_funcs=functions(self._packed_equality_grads),
            inequality_funcs=functions(self._inequalities),
            inequality_grad_funcs=functions(self._packed_inequality_grads),
            packed_bounds=self._packed_bounds,
            step_callback=step_callback or (lambda values: None),
            optimizer_kwargs=self.optimizer_kwargs,
        )
        values = dict(zip(self._update_placeholders, self._unpacked(result), strict=True))
        runner.run(self._var_updates, feed_dict=values, **run_kwargs)

    def _minimize(
        self,
        initial_val: Vector,
        loss_grad_func: Callable[[Vector], list[Any]],
        equality_funcs: list[Callable[[Vector], Any]],
        equality_grad_funcs: list[Callable[[Vector], Any]],
        inequality_funcs: list[Callable[[Vector], Any]],
        inequality_grad_funcs: list[Callable[[Vector], Any]],
        packed_bounds: list[tuple[float, float]] | None,
        step_callback: Callable[[Vector], object],
        optimizer_kwargs: Mapping[str, Any],
    ) -> Vector:
        """The algorithm; one that cannot keep to constraints or bounds should refuse them.

        Args:
            initial_val: all variables, one behind the other.
            loss_grad_func: gives the loss and its gradient for such a vector.
            equality_funcs: give what is to be zero.
            equality_grad_funcs: give its gradients.
            inequality_funcs: give what is not to be negative.
            inequality_grad_funcs: give its gradients.
            packed_bounds: (lowest, highest) for each element, or None.
            step_callback: to be called in each step with the vector.
            optimizer_kwargs: what the constructor was given besides.

        Returns:
            The best vector.

        Raises:
            NotImplementedError: always, here: a subclass implements it.
        """
        raise NotImplementedError(
            "To use ExternalOptimizerInterface, subclass from it and implement the _minimize() method."
        )

    def _unpacked(self, vector: Vector) -> list[Vector]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(np.asarray(vector), ends[:-1])
        dtypes = [var.dtype.base_dtype.as_numpy_dtype for var in self._vars]
        return [
            part.reshape(shape).astype(dtype) for part, shape, dtype in zip(parts, self._shapes, dtypes, strict=True)
        ]

    def _evaluator(
        self,
        tensors: list[tf.Tensor],
        session: tf.Session,
        feeds: Mapping[Any, TensorLike],
        fetches: list[Any],
        callback: Callable[..., object] | None,
    ) -> Callable[[Vector], list[Any]]:
        """A function that gives the values of `tensors` where the variables have those of a vector."""

        def evaluate(vector: Vector) -> list[Any]:
            values = dict(zip(self._vars, self._unpacked(vector), strict=True))
            found = session.run([*tensors, *fetches], feed_dict={**values, **feeds})
            if callback is not None:
                callback(*found[len(tensors) :])
            return list(found[: len(tensors)])

        return evaluate


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Lets `scipy.optimize.minimize` minimize a loss.

    Args:
        loss: see `ExternalOptimizerInterface`, as for all up to `var_to_bounds`.
        var_list: the variables to change.
        equalities: scalar tensors that are to be zero: only some methods, such as "SLSQP", take them.
        inequalities: scalar tensors that are not to be negative; likewise.
        var_to_bounds: variables -> (lowest, highest) values.
        **optimizer_kwargs: `method`, by default "L-BFGS-B", `options`, `tol` and so on: arguments of
            `scipy.optimize.minimize`.

    Raises:
        ValueError: see `ExternalOptimizerInterface`.

    Example:
        >>> w = tf.get_variable("w", initializer=[7.0, 7.0])
        >>> opt = tf.contrib.opt.ScipyOptimizerInterface(tf.nn.l2_loss(w), var_to_bounds={w: ([1.0, 2.0], None)})
        >>> sess.run(tf.global_variables_initializer())
        >>> opt.minimize(sess)
        >>> sess.run(w)
        array([1., 2.], dtype=float32)
    """

    _DEFAULT_METHOD = "L-BFGS-B"

    def _minimize(
        self,
        initial_val: Vector,
        loss_grad_func: Callable[[Vector], list[Any]],
        equality_funcs: list[Callable[[Vector], Any]],
        equality_grad_funcs: list[Callable[[Vector], Any]],
        inequality_funcs: list[Callable[[Vector], Any]],
        inequality_grad_funcs: list[Callable[[Vector], Any]],
        packed_bounds: list[tuple[float, float]] | None,
        step_callback: Callable[[Vector], object],
        optimizer_kwargs: Mapping[str, Any],
    ) -> Vector:
        def loss_and_gradient(vector: Vector) -> tuple[Any, Vector]:
            loss, gradient = loss_grad_func(vector)
            return float(loss), np.asarray(gradient, np.float64)

        constraints = [
            *_constraints("eq", equality_funcs, equality_grad_funcs),
            *_constraints("ineq", inequality_funcs, inequality_grad_funcs),
        ]
        settings = {
            "jac": True,
            "callback": step_callback,
            "method": self._DEFAULT_METHOD,
            "constraints": constraints,
            "bounds": packed_bounds,
        }
        for name in settings.keys() & optimizer_kwargs.keys() - {"method"}:
            if name == "bounds":
                raise ValueError("Bounds must be set using the var_to_bounds argument")
            raise ValueError(f"Optimizer keyword arg {name!r} is set automatically and cannot be injected manually")
        start = np.asarray(initial_val, np.float64)  # SciPy's compiled parts take nothing else
        found = _scipy_optimize().minimize(loss_and_gradient, start, **{**settings, **optimizer_kwargs})
        lines = [
            "Optimization terminated with:",
            f"  Message: {found.message}",
            f"  Objective function value: {float(found.fun):f}",
        ]
        for name, said in (("nit", "Number of iterations"), ("nfev", "Number of functions evaluations")):
            if hasattr(found, name):  # not every method counts
                lines.append(f"  {said}: {getattr(found, name)}")
        tf.logging.info("\n".join(lines))
        best: Vector = found["x"]
        return best


def _shape_of(var: tf.Variable) -> tuple[int, ...]:
    if not var.shape.is_fully_defined():
        raise ValueError(f"the shape of {var.name} must be known to pack variables into one vector, got {var.shape}")
    return tuple(int(size or 0) for size in var.shape.as_list())


def _packed(tensors: list[tf.Tensor]) -> tf.Tensor:
    flat: tf.Tensor = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
    return flat


def _first_of(function: Callable[[Vector], list[Any]]) -> Callable[[Vector], Any]:
    return lambda vector: function(vector)[0]


def _constraints(
    kind: str, functions: list[Callable[[Vector], Any]], gradients: list[Callable[[Vector], Any]]
) -> list[dict[str, Any]]:
    return [
        {"type": kind, "fun": _in_float64(function), "jac": _in_float64(gradient)}
        for function, gradient in zip(functions, gradients, strict=True)
    ]


def _in_float64(function: Callable[[Vector], Any]) -> Callable[[Vector], Vector]:
    return lambda vector: np.asarray(function(vector), np.float64)


def _scipy_optimize() -> ModuleType:
    """The module, which is needed here only."""
    try:
        return importlib.import_module("scipy.optimize")
    except ImportError as error:
        raise ImportError(
            f"ScipyOptimizerInterface needs SciPy ({error}): install it with `pip install scipy`"
        ) from error
