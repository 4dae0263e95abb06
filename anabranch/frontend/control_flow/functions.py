"""tf.function and Defun: Python functions that become function graphs, copied in wherever they are called.

A function is called once for each kind of arguments (dtypes and shapes of tensors, values of everything else), in a
function graph of its own. A call copies this graph into the one that is being built, where all passes and gradients
meet nothing but ordinary operations. What has effects runs in the order in which the function made it, and before the
results are there (docs/decisions/0055).
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, overload

import numpy as np

from anabranch.core import nest
from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.autograph.calls import converted_call
from anabranch.frontend.autograph.settings import ConversionOptions, Feature, features_of
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.specs import TensorSpec
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.copied_functions import added_once, copied_into
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_SYMBOLIC = (Tensor, SparseTensor, IndexedSlices, RaggedTensor)


#: holds one element while calls of functions run their Python code in the graph that is open
_EAGERLY: list[bool] = []


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Whether a call of what `tf.function` made calls the Python function itself.

    Its operations then stand in the graph that is open, one by one, and nothing is traced beside it: for debugging.

    Args:
        run_eagerly: default of a process: False.

    Example:
        >>> tf.config.experimental_run_functions_eagerly(True)
        >>> seen = []
        >>> function = tf.function(lambda x: seen.append(x.graph is tf.get_default_graph()) or x)
        >>> _ = function(tf.constant(1.0))
        >>> seen
        [True]
        >>> tf.config.experimental_run_functions_eagerly(False)
    """
    _EAGERLY[:] = [True] if run_eagerly else []


class ConcreteFunction:
    """A Python function as a function graph, for one kind of arguments.

    Attributes:
        graph: the function graph.
        structured_outputs: what the Python function returned, of tensors of that graph.
    """

    def __init__(self, function: Callable[[], Any], graph: FunctionGraph) -> None:
        self.graph = graph
        with graph.as_default():
            self.structured_outputs = function()
            self._flat = [] if self.structured_outputs is None else nest.flatten(self.structured_outputs)
            self._parts = [[graph.capture(t) for t in self._components(item)] for item in self._flat]
        graph.outputs = [t for parts in self._parts for t in parts]

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def inputs(self) -> list[Tensor]:
        """The parameters, captured ones last."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list[Tensor]:
        return list(self.graph.outputs)

    @property
    def captured_inputs(self) -> list[Tensor]:
        return list(self.graph.captures)

    def __call__(self, *args: TensorLike) -> Any:
        """Copies the function into the default graph.

        Args:
            args: one tensor for each parameter that is not captured.

        Returns:
            What the Python function returned, of tensors of the default graph; the operation that runs everything
            where it returned None.

        Raises:
            TypeError: too few or too many arguments, or one of another dtype.
        """
        wanted = [t for t in self.graph.inputs if self.graph.captured_from(t) is None]
        if len(args) != len(wanted):
            raise TypeError(f"{self.name} takes {len(wanted)} tensors, got {len(args)}")
        values = [convert_to_tensor(a, parameter.dtype) for a, parameter in zip(args, wanted, strict=True)]
        given = dict(zip(wanted, values, strict=True))
        given.update(zip(self.graph.captured_parameters, self.graph.captures, strict=True))
        graph = get_default_graph()
        with graph.name_scope(self.name):
            copied, effects = copied_into(self.graph, graph, given)
            done = [raw.Identity(copied[t]) for t in self.graph.outputs] if not effects else None
            if done is None:
                with graph.control_dependencies(effects):
                    done = [raw.Identity(copied[t]) for t in self.graph.outputs]
                    finished = raw.NoOp()
            else:
                finished = raw.NoOp() if not done else None
        if not done:
            return finished
        return self._packed(done)

    def add_to_graph(self, g: Graph | None = None) -> str:
        """Puts the function graph into the library of `g` (default: of the default graph), once; returns its name."""
        return added_once(g or get_default_graph(), self.graph)

    def _components(self, item: TensorLike) -> list[Tensor]:
        if isinstance(item, Operation):
            raise TypeError(
                f"{self.name} returned the operation {item.name!r}; a function returns tensors, or None: its "
                "operations with effects run whenever it is called"
            )
        return components(item)

    def _packed(self, tensors: list[Tensor]) -> Any:
        rest = iter(tensors)
        items = [
            rebuilt(item, [next(rest) for _ in parts]) for item, parts in zip(self._flat, self._parts, strict=True)
        ]
        return nest.pack_sequence_as(self.structured_outputs, items)


class PolymorphicFunction:
    """What `tf.function` makes of a Python function.

    Attributes:
        python_function: the function that was wrapped.
        input_signature: what its arguments must be; None: anything.
    """

    def __init__(
        self,
        python_function: Callable[..., Any],
        input_signature: Sequence[Any] | None = None,
        conversion: ConversionOptions | None = None,
    ) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self._conversion = conversion
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._name = getattr(python_function, "__name__", type(python_function).__name__).strip("<>_") or "function"
        self._signature = inspect.signature(python_function)
        self._traced: weakref.WeakKeyDictionary[Graph, dict[Hashable, ConcreteFunction]] = weakref.WeakKeyDictionary()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The function of a method, one for each object."""
        if instance is None:
            return self
        held = vars(instance).setdefault("_functions_of_methods", {})
        if self._name not in held:
            held[self._name] = PolymorphicFunction(
                functools.partial(self.python_function, instance), self.input_signature, self._conversion
            )
            held[self._name]._name = self._name
        return held[self._name]

    def __call__(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Copies the function into the default graph, tracing it first for a new kind of arguments.

        Returns:
            As `ConcreteFunction`.

        Raises:
            TypeError: the arguments do not fit the function, or it returned what no tensor can be.
            ValueError: the arguments do not fit `input_signature`.
        """
        if _EAGERLY:
            return self.python_function(*args, **kwargs)
        arguments = self._bound(args, kwargs)
        concrete = self._concrete(arguments)
        return concrete(*(t for item in arguments.tensors for t in components(item)))

    def get_concrete_function(self, *args: PassedOn, **kwargs: PassedOn) -> ConcreteFunction:
        """The function graph for a kind of arguments: tensors or `TensorSpec`, and other values."""
        return self._concrete(self._bound(args or self.input_signature or (), kwargs))

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> _CallArguments:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self.input_signature is not None:
            bound = self._signed(bound)
        return _CallArguments(bound)

    def _signed(self, bound: inspect.BoundArguments) -> inspect.BoundArguments:
        """The arguments as tensors that the signature of inputs allows."""
        specs = list(self.input_signature or ())
        names = list(bound.arguments)
        if len(names) < len(specs):
            raise ValueError(f"{self._name} has {len(names)} arguments, its input_signature {len(specs)}")
        for name, spec in zip(names, specs, strict=False):
            value = bound.arguments[name]
            if isinstance(spec, TensorSpec) and not isinstance(value, TensorSpec):
                value = convert_to_tensor(value, spec.dtype)
                if not spec.shape.is_compatible_with(value.shape):
                    raise ValueError(f"{self._name}: the argument {name!r} has shape {value.shape}, not {spec.shape}")
                value = _Signed(value, spec.shape)
            bound.arguments[name] = value
        return bound

    def _concrete(self, arguments: _CallArguments) -> ConcreteFunction:
        graph = get_default_graph()
        traced = self._traced.setdefault(graph, {})
        concrete = traced.get(arguments.key)
        if concrete is None:
            body = FunctionGraph(self._name, graph)
            concrete = ConcreteFunction(lambda: self._call(arguments.args(body), arguments.kwargs), body)
            traced[arguments.key] = concrete
        return concrete

    def _call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls the Python function, converted if it is to be."""
        if self._conversion is None:
            return self.python_function(*args, **kwargs)
        return converted_call(self.python_function, args, kwargs, options=self._conversion)


class _Signed:
    """A tensor that is traced with a shape of a signature."""

    def __init__(self, tensor: Tensor, shape: TensorShape) -> None:
        self.tensor, self.shape = tensor, shape


class _CallArguments:
    """The arguments of a call: tensors, and what is part of the kind of the call.

    Attributes:
        tensors: what is passed to the function graph.
        key: two calls with equal keys share a function graph.
    """

    def __init__(self, bound: inspect.BoundArguments) -> None:
        self._bound = bound
        self._structure = (bound.args, bound.kwargs)
        self._flat = nest.flatten(self._structure)
        self.tensors: list[Any] = []
        keys: list[Hashable] = []
        for i, item in enumerate(self._flat):
            if isinstance(item, np.ndarray | np.generic):
                self._flat[i] = item = convert_to_tensor(item)
            if isinstance(item, _Signed):
                self.tensors.append(item.tensor)
                keys.append((item.tensor.dtype, item.shape.dims_tuple))
            elif isinstance(item, _SYMBOLIC):
                self.tensors.append(item)
                keys.append((type(item), *((t.dtype, t.shape.dims_tuple) for t in components(item))))
            elif isinstance(item, TensorSpec):
                keys.append((Tensor, (item.dtype, item.shape.dims_tuple)))
            else:
                keys.append((type(item), item if isinstance(item, Hashable) else id(item)))
        self.key = (*keys, repr(nest.map_structure(lambda _: 0, self._structure)))

    def args(self, body: FunctionGraph) -> Sequence[Any]:
        """The positional arguments, with parameters of `body` for tensors; `kwargs` are those by name."""
        flat = [self._parameter(item, body, i) for i, item in enumerate(self._flat)]
        args, self.kwargs = nest.pack_sequence_as(self._structure, flat)
        return args  # type: ignore[no-any-return]

    kwargs: dict[str, Any] = {}

    def _parameter(self, item: object, body: FunctionGraph, number: int) -> Any:
        if isinstance(item, _Signed):
            return body.add_parameter(item.tensor.dtype, item.shape, f"args_{number}")
        if isinstance(item, TensorSpec):
            return body.add_parameter(item.dtype, item.shape, item.name or f"args_{number}")
        if isinstance(item, _SYMBOLIC):
            parts = [body.add_parameter(t.dtype, t.shape, f"args_{number}") for t in components(item)]
            return rebuilt(item, parts)
        return item


@overload
def function(
    func: None = ...,
    input_signature: Sequence[Any] | None = ...,
    autograph: bool = ...,
    experimental_autograph_options: Feature | Sequence[Feature] | None = ...,
    experimental_relax_shapes: bool = ...,
    experimental_compile: bool | None = ...,
) -> Callable[[Callable[..., Any]], PolymorphicFunction]: ...
@overload
def function(
    func: Callable[..., Any],
    input_signature: Sequence[Any] | None = ...,
    autograph: bool = ...,
    experimental_autograph_options: Feature | Sequence[Feature] | None = ...,
    experimental_relax_shapes: bool = ...,
    experimental_compile: bool | None = ...,
) -> PolymorphicFunction: ...
def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    experimental_autograph_options: Feature | Sequence[Feature] | None = None,
    experimental_relax_shapes: bool = False,
    experimental_compile: bool | None = None,
) -> PolymorphicFunction | Callable[[Callable[..., Any]], PolymorphicFunction]:
    """Makes a function graph of a Python function, for each kind of arguments that it is called with.

    Calls copy the graph into the one that is being built. Operations with effects run in the order in which the
    function makes them, whether or not a result depends on them.

    Python's `if`, `while` and `for` over tensors become `tf.cond` and `tf.while_loop` (`tf.autograph.to_graph` says
    how); over everything else they run while the function is traced. A function whose source is not to be had runs as
    it is.

    Args:
        func: default: returns a decorator.
        input_signature: a `tf.TensorSpec` for each argument; then there is one function graph.
        autograph: whether statements over tensors are converted, in `func` and in the functions that it calls.
        experimental_autograph_options: a `tf.autograph.experimental.Feature`, or several: what is converted beside.
        experimental_compile: nothing depends on it.
        experimental_relax_shapes: nothing depends on it: shapes are inferred anew in each copy.

    Returns:
        A callable with `get_concrete_function`, `python_function`, `input_signature`.

    Raises:
        TypeError: `func` cannot be called.

    Example:
        >>> @tf.function
        ... def norm(x):
        ...     return tf.sqrt(tf.reduce_sum(x * x))
        >>> sess.run(norm(tf.constant([3.0, 4.0])))
        np.float32(5.0)
        >>> @tf.function
        ... def halvings(x):
        ...     count = 0
        ...     while x > 1.0:
        ...         x /= 2.0
        ...         count += 1
        ...     return count
        >>> sess.run(halvings(tf.constant(1000.0)))
        np.int32(10)
    """
    features = features_of(experimental_autograph_options)
    conversion = ConversionOptions(user_requested=True, optional_features=features) if autograph else None

    def decorate(python_function: Callable[..., Any]) -> PolymorphicFunction:
        if not callable(python_function):
            raise TypeError(f"tf.function takes a function, got {python_function!r}")
        return PolymorphicFunction(python_function, input_signature, conversion)

    return decorate if func is None else decorate(func)
