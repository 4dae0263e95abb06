"""Variable scopes: names, sharing and defaults for `get_variable`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from anabranch.core import nest
from anabranch.core.dtypes import DTypeLike, as_dtype, float32
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import DeviceLike, InitializerLike, Partitioner
from anabranch.frontend.variables.policy import VariableAggregation, VariableSynchronization
from anabranch.frontend.variables.store import AUTO_REUSE, Reuse, VariableStore
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor

Regularizer = Callable[[Any], Tensor | None]


class VariableScope:
    """A prefix for the names of `get_variable`, whether variables are shared, and defaults for its arguments.

    Opened by `variable_scope`, which yields it. What is left out of a call of `get_variable` is taken from here.

    Attributes:
        name: the prefix, without a trailing slash.
        original_name_scope: the name scope that was opened together with the scope when it was made.
        reuse: True: variables must exist; False or None: they must not; `AUTO_REUSE`: made where they do not exist.
    """

    def __init__(
        self,
        reuse: Reuse,
        name: str = "",
        initializer: InitializerLike | None = None,
        regularizer: Regularizer | None = None,
        caching_device: DeviceLike | None = None,
        partitioner: Partitioner | None = None,
        custom_getter: Callable[..., Any] | None = None,
        name_scope: str = "",
        dtype: DTypeLike = float32,
        use_resource: bool | None = None,
        constraint: Callable[..., Any] | None = None,
    ) -> None:
        self._name = name
        self._initializer = initializer
        self._regularizer = regularizer
        self._reuse: Reuse = reuse
        self._caching_device = caching_device
        self._partitioner: Callable[..., Any] | None = partitioner
        self._custom_getter = custom_getter
        self._name_scope = name_scope
        self._dtype = dtype
        self._use_resource = use_resource
        self._constraint = constraint

    # ------------------------------------------------------------------ settings
    @property
    def name(self) -> str:
        return self._name

    @property
    def original_name_scope(self) -> str:
        return self._name_scope

    @property
    def reuse(self) -> Reuse:
        return self._reuse

    @property
    def initializer(self) -> object:
        return self._initializer

    @property
    def dtype(self) -> DTypeLike:
        return self._dtype

    @property
    def use_resource(self) -> bool | None:
        return self._use_resource

    @property
    def regularizer(self) -> Regularizer | None:
        return self._regularizer

    @property
    def caching_device(self) -> object:
        return self._caching_device

    @property
    def partitioner(self) -> Callable[..., Any] | None:
        return self._partitioner

    @property
    def custom_getter(self) -> Callable[..., Any] | None:
        return self._custom_getter

    @property
    def constraint(self) -> Callable[..., Any] | None:
        return self._constraint

    def reuse_variables(self) -> None:
        """Makes this scope return existing variables only, from here on."""
        self._reuse = True

    def set_initializer(self, initializer: InitializerLike | None) -> None:
        """The initializer of variables that are made from here on."""
        self._initializer = initializer

    def set_dtype(self, dtype: DTypeLike) -> None:
        """The dtype of variables that are made from here on."""
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Accepted: all variables are resources."""
        self._use_resource = use_resource

    def set_regularizer(self, regularizer: Regularizer | None) -> None:
        """The regularizer of variables that are made from here on."""
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: DeviceLike | None) -> None:
        """The caching device of variables that are made from here on."""
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Partitioner | None) -> None:
        """The partitioner of variables that are made from here on."""
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Callable[..., Any] | None) -> None:
        """The custom getter of variables that are made from here on."""
        self._custom_getter = custom_getter

    # ------------------------------------------------------------------ its variables
    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection of the default graph whose names begin with this scope."""
        return get_default_graph().get_collection(name, self._name + "/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        """The trainable variables whose names begin with this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """The global variables whose names begin with this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """The local variables whose names begin with this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        var_store: VariableStore,
        name: str | None,
        shape: ShapeLike | None = None,
        dtype: DTypeLike | None = None,
        initializer: InitializerLike | None = None,
        regularizer: Regularizer | None = None,
        reuse: Reuse = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        caching_device: DeviceLike | None = None,
        partitioner: Partitioner | None = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Callable[..., Any] | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> Variable:
        """The variable `name` of this scope; the arguments are those of the function `get_variable`.

        Where `name` is None, a partitioned variable has the name of the scope.

        Raises:
            ValueError: as the function; or a variable that is only brought together when it is read is to be trained.
        """
        if trainable and synchronization is VariableSynchronization.ON_READ:
            raise ValueError(
                f"variable {name!r}: synchronization ON_READ is for variables that are not trainable; pass "
                "trainable=False"
            )
        within = f"{self._name}/" if self._name else ""
        full_name = self._name if name is None else f"{within}{name}"
        # a variable's name follows from variable scopes alone, so name scopes are left for its creation
        with get_default_graph().name_scope(None):
            _check_initializer_dtype(full_name, dtype, initializer)
            result: Variable = var_store.get_variable(
                full_name,
                shape=shape,
                dtype=_first(dtype, self._dtype),
                initializer=_first(initializer, self._initializer),
                regularizer=_first(regularizer, self._regularizer),
                reuse=_first(reuse, self._reuse),
                trainable=trainable,
                collections=collections,
                caching_device=_first(caching_device, self._caching_device),
                partitioner=_first(partitioner, self._partitioner),
                validate_shape=validate_shape,
                use_resource=_first(use_resource, self._use_resource),
                custom_getter=_first(custom_getter, self._custom_getter),
                constraint=_first(constraint, self._constraint),
                synchronization=synchronization,
                aggregation=aggregation,
            )
            return result


def _first(given: PassedOn, default: PassedOn) -> Any:
    return default if given is None else given


def _check_initializer_dtype(name: str, dtype: DTypeLike | None, initializer: InitializerLike | None) -> None:
    if dtype is None or initializer is None or callable(initializer):
        return
    actual = convert_to_tensor(initializer).dtype.base_dtype
    if actual is not as_dtype(dtype).base_dtype:
        raise ValueError(
            f"variable {name!r}: Initializer type '{actual.name}' and explicit dtype '{as_dtype(dtype).name}' "
            "don't match."
        )


# ---------------------------------------------------------------------- state of a graph
class _ScopeState(threading.local):
    """The scope that is open in this thread, and how often each scope name was opened (for default names)."""

    def __init__(self) -> None:
        self.current = VariableScope(False)
        self.counts: Counter[str] = Counter()

    def opened(self, name: str) -> None:
        self.counts[name] += 1

    def close_subscopes(self, name: str) -> None:
        """Scopes inside `name` are counted anew when it is opened again."""
        prefix = name + "/" if name else ""
        for known in self.counts:
            if known.startswith(prefix):
                self.counts[known] = 0


class _GraphVariables:
    """What variable scopes keep for a graph."""

    def __init__(self) -> None:
        self.store = VariableStore()
        self.scopes = _ScopeState()


#: A key that is not a string: never exported, and shared with function graphs as all collections are.
_KEY: Any = ("variable scopes",)


def _of_graph(graph: Graph | None = None) -> _GraphVariables:
    held = (graph or get_default_graph()).get_collection_ref(_KEY)
    if not held:
        held.append(_GraphVariables())
    variables: _GraphVariables = held[0]
    return variables


def get_variable_scope() -> VariableScope:
    """The open variable scope of the default graph.

    Returns:
        A `VariableScope`, whose `name` is "" where none was opened.

    Raises:
        nothing

    Example:
        >>> with tf.variable_scope("layer"):
        ...     name = tf.get_variable_scope().name
        >>> name
        'layer'
    """
    return _of_graph().scopes.current


def default_variable_store() -> VariableStore:
    """The variables of the default graph that `get_variable` made."""
    return _of_graph().store


def get_variable(
    name: str,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    initializer: InitializerLike | None = None,
    regularizer: Regularizer | None = None,
    trainable: bool | None = None,
    collections: Iterable[str] | None = None,
    caching_device: DeviceLike | None = None,
    partitioner: Partitioner | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[..., Any] | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """A variable of the open variable scope: an existing one or a new one, as the scope's `reuse` says.

    Args:
        name: its name within the scope.
        shape: fully defined, unless the initializer is a value or a function without arguments.
        dtype: default: the scope's, float32.
        initializer: an `Initializer`, a function of shape and dtype, a function without arguments, or a value. Default:
            the scope's, else Glorot's uniform one (zeros for integers and bools).
        regularizer: function from the variable to a loss, which is added to `GraphKeys.REGULARIZATION_LOSSES`.
        trainable, collections, caching_device, validate_shape, constraint, synchronization, aggregation, use_resource:
            see `Variable`.
        partitioner: function from shape and dtype to the number of parts along each dimension; gives a
            `PartitionedVariable`.
        custom_getter: called in place of this function's last stage, with that stage as first argument `getter`.

    Returns:
        A variable of shape `shape`.

    Raises:
        ValueError: the variable exists and may not be shared, does not exist and may not be made, or exists with
            another shape or dtype; or shape and initializer do not go together.

    Example:
        >>> with tf.variable_scope("layer"):
        ...     weights = tf.get_variable("weights", [2, 3], initializer=tf.ones_initializer())
        >>> weights.name, weights.shape
        ('layer/weights:0', TensorShape([Dimension(2), Dimension(3)]))
    """
    return get_variable_scope().get_variable(
        default_variable_store(),
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def get_local_variable(
    name: str,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    initializer: InitializerLike | None = None,
    regularizer: Regularizer | None = None,
    trainable: bool = False,
    collections: Iterable[str] | None = None,
    caching_device: DeviceLike | None = None,
    partitioner: Partitioner | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[..., Any] | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Like `get_variable`, for a variable in `GraphKeys.LOCAL_VARIABLES` that is never trained."""
    return get_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=False,
        collections=[*(collections or []), GraphKeys.LOCAL_VARIABLES],
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def no_regularizer(_: Tensor) -> None:
    """Regularizer for variables of a scope that has one, but that shall have none."""
    return


# ---------------------------------------------------------------------- opening scopes
class variable_scope:
    """Opens a variable scope and a name scope of the same name; yields the `VariableScope`.

    Args:
        name_or_scope: a name, which goes below the open scope; or a `VariableScope`, which is opened again as it was
            (its own name and settings; the name scope gets a new suffix).
        default_name: used, made unique, where `name_or_scope` is None.
        values: tensors; their graph becomes the default graph inside.
        initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource, constraint: defaults
            for `get_variable` inside; where None, those of the enclosing scope (or of the scope opened again) hold.
            Custom getters nest: the inner one calls the outer one.
        reuse: True, `AUTO_REUSE`, or None (or False) to inherit. True is inherited by all scopes inside.
        auxiliary_name_scope: False opens no name scope.

    Raises:
        TypeError: neither a name nor a default name, or `name_or_scope` is of another type.
        ValueError: `reuse` is none of the above, or True with a default name.

    Example:
        >>> with tf.variable_scope("layer"):
        ...     v = tf.get_variable("weights", [2])
        >>> with tf.variable_scope("layer", reuse=True):
        ...     same = tf.get_variable("weights", [2])
        >>> v.name, same is v
        ('layer/weights:0', True)
    """

    def __init__(
        self,
        name_or_scope: str | VariableScope | None,
        default_name: str | None = None,
        values: Iterable[TensorLike] | None = None,
        initializer: InitializerLike | None = None,
        regularizer: Regularizer | None = None,
        caching_device: DeviceLike | None = None,
        partitioner: Partitioner | None = None,
        custom_getter: Callable[..., Any] | None = None,
        reuse: Reuse = None,
        dtype: DTypeLike | None = None,
        use_resource: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if name_or_scope is None and default_name is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if name_or_scope is not None and not isinstance(name_or_scope, str | VariableScope):
            raise TypeError(f"VariableScope: name_or_scope must be a string or VariableScope, got {name_or_scope!r}")
        if reuse not in (None, True, False, AUTO_REUSE):
            raise ValueError(f"reuse must be True, False, None or tf.AUTO_REUSE, got {reuse!r}")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(f"The auxiliary_name_scope must be `True` or `False`, got {auxiliary_name_scope!r}")
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._values = values
        self._reuse = reuse or None
        self._custom_getter = custom_getter
        self._auxiliary_name_scope = auxiliary_name_scope
        self._settings = {
            "initializer": initializer,
            "regularizer": regularizer,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "dtype": dtype,
            "use_resource": use_resource,
            "constraint": constraint,
        }
        self._entered: list[tuple[contextlib.ExitStack, VariableScope]] = []

    def __enter__(self) -> VariableScope:
        with contextlib.ExitStack() as stack:
            graph = _graph_of(self._values)
            if graph is not get_default_graph():
                stack.enter_context(graph.as_default())
            name = self._name_or_scope
            if name is None:
                scope = self._enter_default(stack, graph)
            else:
                leaf = name if isinstance(name, str) else name.name.rsplit("/", 1)[-1]
                name_scope = self._enter_name_scope(stack, graph, leaf) if leaf else _current_name_scope(graph)
                scope = stack.enter_context(self._opened(graph, name, name_scope))
            self._entered.append((stack.pop_all(), scope))
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, scope = self._entered[-1]
        if kind is None and (current := get_variable_scope()) is not scope:
            raise RuntimeError(
                f"Improper nesting of variable_scope: {scope.name!r} is left while {current.name!r} is open, which was "
                "entered inside it; leave that one first"
            )
        self._entered.pop()
        stack.__exit__(kind, error, trace)

    def _enter_default(self, stack: contextlib.ExitStack, graph: Graph) -> VariableScope:
        assert self._default_name is not None
        if self._reuse:
            raise ValueError(f"reuse=True cannot be used without a name_or_scope (default name {self._default_name!r})")
        name_scope = self._enter_name_scope(stack, graph, self._default_name)
        return stack.enter_context(self._opened(graph, _unused_name(graph, self._default_name), name_scope))

    def _enter_name_scope(self, stack: contextlib.ExitStack, graph: Graph, name: str) -> str:
        if self._auxiliary_name_scope:
            return stack.enter_context(graph.name_scope(name))
        return _current_name_scope(graph)

    @contextlib.contextmanager
    def _opened(self, graph: Graph, name: str | VariableScope, name_scope: str) -> Iterator[VariableScope]:
        state = _of_graph(graph).scopes
        old = state.current
        scope = self._reopened(name) if isinstance(name, VariableScope) else self._nested(name, old, name_scope)
        state.opened(scope.name)
        counts_before = Counter(state.counts)
        state.current = scope
        try:
            yield scope
        finally:
            state.close_subscopes(scope.name)
            if isinstance(name, VariableScope):
                # what is opened inside a scope that is opened again leaves no trace in default names
                state.counts = counts_before
            state.current = old

    def _reopened(self, scope: VariableScope) -> VariableScope:
        reuse = scope.reuse if self._reuse is None else self._reuse
        return self._derived(scope, scope.name, reuse, scope.original_name_scope)

    def _nested(self, name: str, outer: VariableScope, name_scope: str) -> VariableScope:
        full_name = f"{outer.name}/{name}" if outer.name else name
        return self._derived(outer, full_name, self._reuse or outer.reuse, name_scope)

    def _derived(self, base: VariableScope, name: str, reuse: Reuse, name_scope: str) -> VariableScope:
        inherited = {key: getattr(base, key) for key in self._settings}
        given = {key: value for key, value in self._settings.items() if value is not None}
        getter = _nested_getter(self._custom_getter, base.custom_getter)
        return VariableScope(reuse, name, custom_getter=getter, name_scope=name_scope, **{**inherited, **given})


def _current_name_scope(graph: Graph) -> str:
    current = graph.get_name_scope()
    return current + "/" if current else ""


def _nested_getter(inner: Callable[..., Any] | None, outer: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if inner is None or outer is None:
        return inner or outer

    def getter(getter: Callable[..., Any], *args: PassedOn, **kwargs: PassedOn) -> Any:
        return inner(functools.partial(outer, getter), *args, **kwargs)

    return getter


def _unused_name(graph: Graph, prefix: str) -> str:
    """`prefix`, with a number appended where a scope of that name was opened in the current one before."""
    state = _of_graph(graph).scopes
    base = f"{state.current.name}/{prefix}" if state.current.name else prefix
    if not state.counts[base]:
        return prefix
    number = 1
    while state.counts[f"{base}_{number}"]:
        number += 1
    return f"{prefix}_{number}"


def _graph_of(values: Iterable[TensorLike] | None) -> Graph:
    default = get_default_graph()
    if values is None or default.building_function:
        return default
    graphs = (getattr(v, "graph", None) for v in nest.flatten(values))
    return next((g for g in graphs if isinstance(g, Graph)), default)
