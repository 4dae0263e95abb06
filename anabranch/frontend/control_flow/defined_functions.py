"""Functions with gradients of their own, and functions over rows: Defun, recompute_grad, vectorized_map."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anabranch.autodiff.custom import custom_gradient
from anabranch.autodiff.gradients import gradients
from anabranch.core import nest
from anabranch.core.attrs import COMPUTED_AGAIN
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.control_flow.functional import map_fn
from anabranch.frontend.control_flow.functions import ConcreteFunction, PolymorphicFunction
from anabranch.frontend.variables.scope import get_variable_scope, variable_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.copied_functions import added_once
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class _CalledFunction(NamedTuple):
    """What a `python_grad_func` is told of the call."""

    inputs: list[Tensor]
    outputs: list[Tensor]


class DefinedFunction:
    """What `Defun` makes of a Python function.

    Attributes:
        name: of the function.
        declared_input_types: the dtypes of its arguments; empty: as they come.
    """

    def __init__(self, function: Callable[..., Any], types: Sequence[DTypeLike], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = options.get("func_name") or getattr(function, "__name__", "").strip("<>_") or "function"
        self.declared_input_types = [as_dtype(t) for t in types]
        self._traced = PolymorphicFunction(function)
        self._traced._name = self.name
        self._python_gradient = options.get("python_grad_func")
        self._gradient = options.get("grad_func")
        self._added: weakref.WeakKeyDictionary[Graph, str] = weakref.WeakKeyDictionary()

    def __call__(self, *args: TensorLike, **kwargs: PassedOn) -> Any:
        """Copies the function into the default graph.

        Returns:
            A tensor, or a list of several; the operation that runs everything where the function returned None.

        Raises:
            ValueError: another number of arguments than was declared.
            TypeError: an argument of another dtype.
        """
        types = self.declared_input_types
        if types and len(args) != len(types):
            raise ValueError(f"{self.name} takes {len(types)} arguments, got {len(args)}")
        values = [convert_to_tensor(a, types[i] if types else None) for i, a in enumerate(args)]
        with get_default_graph().name_scope(kwargs.pop("name", None) or self.name):
            if self._python_gradient is None and self._gradient is None:
                result = self._traced(*values)
            else:
                result = custom_gradient(self._with_gradient)(*values)
        return list(result) if isinstance(result, tuple) else result

    def add_to_graph(self, g: Graph | None = None) -> str:
        """Puts the function into the library of `g` (default: of the default graph), once; returns its name.

        Raises:
            TypeError: it takes arguments whose dtypes were not declared.
        """
        graph = g or get_default_graph()
        if graph not in self._added:
            body = FunctionGraph(self.name, graph)
            with body.as_default():
                parameters = [body.add_parameter(t, None, f"args_{i}") for i, t in enumerate(self.declared_input_types)]
            self._added[graph] = added_once(graph, ConcreteFunction(lambda: self._result_of(parameters), body).graph)
        return self._added[graph]

    def _result_of(self, parameters: Sequence[Tensor]) -> Any:
        result = self(*parameters)
        return None if isinstance(result, Operation) else result

    def _with_gradient(self, *inputs: Tensor) -> Any:
        result = self._traced(*inputs)
        outputs = nest.flatten(result)

        def gradient(*grads: Tensor) -> Any:
            if self._python_gradient is not None:
                return self._python_gradient(_CalledFunction(list(inputs), outputs), *grads)
            assert self._gradient is not None
            return self._gradient(*inputs, *grads)

        return result, gradient


class Defun:
    """Decorator that makes a function graph of a Python function.

    Args:
        input_types: the dtypes of the arguments; none: as they come.
        kwargs: `func_name`; `python_grad_func`, called with an object that has `inputs` and `outputs`, and with the
            gradients of the outputs; or `grad_func`, a `Defun` of the inputs and the gradients of the outputs. Each
            gives a gradient for each input. `out_names`, `shape_func`, `capture_by_value`, `noinline`,
            `compiled` and `separate_compiled_gradients` say nothing that is not known here.

    Raises:
        TypeError: an unknown keyword.

    Example:
        >>> @Defun(tf.float32)
        ... def double(x):
        ...     return x + x
        >>> sess.run(double(tf.constant(2.0)))
        np.float32(4.0)
    """

    _KNOWN = frozenset(
        (
            *("func_name", "grad_func", "python_grad_func", "out_names"),
            *("shape_func", "capture_by_value", "noinline", "compiled", "separate_compiled_gradients"),
        )
    )

    def __init__(self, *input_types: DTypeLike, **kwargs: PassedOn) -> None:
        unknown = sorted(set(kwargs) - self._KNOWN)
        if unknown:
            raise TypeError(f"Defun takes no keyword {unknown[0]!r}; it takes {', '.join(sorted(self._KNOWN))}")
        if kwargs.get("grad_func") is not None and kwargs.get("python_grad_func") is not None:
            raise ValueError("Defun takes grad_func or python_grad_func, not both")
        self._types, self._options = input_types, kwargs

    def __call__(self, func: Callable[..., Any]) -> DefinedFunction:
        return DefinedFunction(func, self._types, self._options)


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose inner values are not kept for the gradient, but computed again when it is wanted.

    Args:
        f: takes and returns tensors; may use variables.

    Returns:
        A function like `f`.

    Example:
        >>> x = tf.constant(2.0)
        >>> y = tf.recompute_grad(lambda x: tf.exp(x * x))(x)
        >>> tf.gradients(y, x)[0].shape
        TensorShape([])
    """

    def decorated(*args: TensorLike, **kwargs: PassedOn) -> Any:
        scope = get_variable_scope()

        @custom_gradient
        def forward(*xs: Tensor) -> Any:
            result = f(*xs, **kwargs)

            def gradient(*grads: Tensor, variables: Sequence[Any] = ()) -> Any:
                graph = get_default_graph()
                # what is computed again waits for the gradient: else it would be computed, and kept, before
                with graph.control_dependencies(list(grads)):
                    again = [raw.Identity(x) for x in xs]
                for x in again:
                    x.op._set_attr(COMPUTED_AGAIN, True)
                with variable_scope(scope, reuse=True), graph.control_dependencies(list(grads)):
                    ys = nest.flatten(f(*again, **kwargs))
                found = gradients(ys, [*again, *variables], list(grads))
                inputs = found[: len(xs)]
                return (inputs, found[len(xs) :]) if variables else inputs

            return result, gradient

        return forward(*args)

    return functools.wraps(f)(decorated)


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function with the values of `f` and the gradient of the identity.

    Args:
        f: gives a result for each argument, of its shape.

    Returns:
        A function like `f`.

    Example:
        >>> x = tf.constant([0.4, 1.6])
        >>> y = tf.grad_pass_through(tf.round)(x)
        >>> sess.run(tf.gradients(y, x)[0])
        array([1., 1.], dtype=float32)
    """

    @custom_gradient
    def decorated(*args: TensorLike, **kwargs: PassedOn) -> Any:
        def gradient(*grads: Tensor, variables: Sequence[Any] | None = None) -> Any:
            return grads if variables is None else (grads, [None] * len(variables))

        return f(*args, **kwargs), gradient

    return functools.wraps(f)(decorated)


def vectorized_map(fn: Callable[[Any], Any], elems: Structure) -> Structure:
    """Applies `fn` to each row of `elems`; rows do not wait for each other.

    Args:
        fn: takes one row (in the structure of `elems`) and returns a tensor or a structure of tensors, all of one
            shape for all rows.
        elems: a tensor of shape [n, ...], or a structure of tensors with one n.

    Returns:
        The results, stacked: shape [n, ...].

    Raises:
        ValueError: `elems` has no rows.

    Example:
        >>> sess.run(tf.vectorized_map(lambda row: tf.reduce_sum(row), tf.constant([[1, 2], [3, 4]])))
        array([3, 7], dtype=int32)
    """
    rows = nest.map_structure(convert_to_tensor, elems)
    body = FunctionGraph("vectorized_map", get_default_graph())

    def of_one_row() -> Any:
        parameters = [body.add_parameter(t.dtype, t.shape[1:], "row") for t in nest.flatten(rows)]
        return nest.map_structure(convert_to_tensor, fn(nest.pack_sequence_as(rows, parameters)))

    dtypes = nest.map_structure(lambda t: t.dtype, ConcreteFunction(of_one_row, body).structured_outputs)
    return map_fn(fn, rows, dtype=dtypes)
