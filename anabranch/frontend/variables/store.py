"""The variables that `get_variable` made, by name: sharing, checks, default initializers, partitions."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32, string
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn
from anabranch.frontend.arguments import DeviceLike, InitializerLike, Partitioner
from anabranch.frontend.framework import init_scope
from anabranch.frontend.variables.initializers import glorot_uniform_initializer, zeros_initializer
from anabranch.frontend.variables.partitioned import PartitionedVariable, PartitionInfo, partition_slices
from anabranch.frontend.variables.policy import VariableAggregation, VariableSynchronization, checked_policy
from anabranch.frontend.variables.variables import SaveSliceInfo, Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class _ReuseMode(enum.Enum):
    """How `get_variable` treats names that exist."""

    #: returned if they exist, created if not
    AUTO_REUSE = 1


AUTO_REUSE = _ReuseMode.AUTO_REUSE
#: whether variables must exist (True), may exist (`AUTO_REUSE`), or must not; None is what the enclosing scope says
Reuse: TypeAlias = bool | _ReuseMode | None


class VariableStore:
    """The variables of one graph that were made by `get_variable`, by full name."""

    def __init__(self) -> None:
        self._variables: dict[str, Variable] = {}
        self._partitioned: dict[str, PartitionedVariable] = {}

    def get_variable(self, name: str, *, custom_getter: Callable[..., Any] | None = None, **arguments: PassedOn) -> Any:
        """The variable of that full name: an existing or a new one, as `reuse` says.

        Args:
            custom_getter: called in place of `get`, with `get` as its first argument. It is told whether the variable
                is to be trained even where the caller did not say.
            arguments: those of `get`.

        Raises:
            ValueError: `custom_getter` cannot be called, or see `get`.
        """
        if custom_getter is None:
            return self.get(name, **arguments)
        if not callable(custom_getter):
            raise ValueError(f"custom_getter of the variable {name!r} must be callable, got {custom_getter!r}")
        synchronization, aggregation, trainable = checked_policy(
            arguments.get("synchronization"), arguments.get("aggregation"), arguments.get("trainable"), name
        )
        arguments |= {"synchronization": synchronization, "aggregation": aggregation, "trainable": trainable}
        if not _accepts(custom_getter, "constraint"):
            arguments.pop("constraint", None)
        return custom_getter(getter=self.get, name=name, **arguments)

    def get(
        self,
        name: str,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = float32,
        initializer: InitializerLike | None = None,
        regularizer: Callable[..., Any] | None = None,
        reuse: Reuse = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        caching_device: DeviceLike | None = None,
        partitioner: Callable[..., Any] | None = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization | None = None,
        aggregation: VariableAggregation | None = None,
    ) -> Any:
        """What custom getters call: the variable `name` is shared or made, without any further getter.

        Raises:
            ValueError: it exists and may not be reused, does not exist and may not be made, or exists with another
                shape or dtype; or the arguments do not tell its shape or initial value.
        """
        options = {
            "trainable": trainable,
            "collections": collections,
            "caching_device": caching_device,
            "validate_shape": validate_shape,
            "use_resource": use_resource,
            "constraint": constraint,
            "synchronization": synchronization,
            "aggregation": aggregation,
        }
        options = {k: v for k, v in options.items() if v is not None}
        dtype = as_dtype(dtype).base_dtype
        has_partitions = reuse is True and partitioner is None and name in self._partitioned
        if (partitioner is not None and not _is_scalar(shape)) or has_partitions:
            with get_default_graph().name_scope(None):
                return self._get_partitioned(name, shape, dtype, initializer, regularizer, reuse, partitioner, options)
        if f"{name}/part_0" in self._variables:
            raise ValueError(
                f"the variable {name!r} exists in partitions ({name}/part_0, ...), but no partitioner was given; pass "
                "the same partitioner"
            )
        return self._get_single(name, shape, dtype, initializer, regularizer, reuse, None, options)

    # ------------------------------------------------------------------ one variable
    def _get_single(
        self,
        name: str,
        shape: ShapeLike,
        dtype: DType,
        initializer: InitializerLike | None,
        regularizer: Callable[..., Any] | None,
        reuse: Reuse,
        partition_info: PartitionInfo | None,
        options: dict[str, Any],
    ) -> Variable:
        from_value = initializer is not None and not callable(initializer)
        if from_value and shape is not None:
            raise ValueError(f"variable {name!r}: the initializer is a value and tells the shape; do not give a shape")
        wanted = TensorShape(shape) if shape is not None else TensorShape(None)
        if name in self._variables:
            return _shared(self._variables[name], name, wanted, dtype, reuse)
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, or was not created with tf.get_variable(). Did you mean to set "
                "reuse=tf.AUTO_REUSE in VarScope?"
            )
        if initializer is None:
            initializer = default_initializer(name, dtype)
        with init_scope():
            initial_value, variable_dtype = _initial_value(name, wanted, dtype, initializer, partition_info)
            variable: Variable = Variable(initial_value=initial_value, name=name, dtype=variable_dtype, **options)
        self._variables[name] = variable
        if regularizer:  # libraries give an empty dictionary for none
            regularize(variable, name, regularizer)
        return variable

    # ------------------------------------------------------------------ partitions
    def _get_partitioned(
        self,
        name: str,
        shape: ShapeLike,
        dtype: DType,
        initializer: InitializerLike | None,
        regularizer: Callable[..., Any] | None,
        reuse: Reuse,
        partitioner: Callable[..., Any] | None,
        options: dict[str, Any],
    ) -> PartitionedVariable:
        value: Tensor | None = None
        if initializer is not None and not callable(initializer):
            value = convert_to_tensor(initializer)
            dtype = value.dtype.base_dtype  # as of a variable in one piece
        wanted = TensorShape(shape) if value is None else TensorShape(shape).merge_with(value.shape)
        if name in self._partitioned:
            return self._shared_partitions(name, wanted, dtype, reuse, partitioner)
        if reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). Did you mean "
                "to set reuse=False or reuse=tf.AUTO_REUSE in VarScope?"
            )
        if name in self._variables:
            raise ValueError(
                f"a variable {name!r} without partitions exists already; give no partitioner, or another name"
            )
        partitions = _partitions(name, wanted, dtype, partitioner)
        if initializer is None:
            initializer = default_initializer(name, dtype)
        parts = []
        for i, (offset, part_shape) in enumerate(partition_slices(wanted.as_list(), partitions)):
            part_name = f"{name}/part_{i}"
            info = PartitionInfo(wanted.as_list(), offset)
            given_shape, part_initializer = part_shape if value is None else None, initializer
            if value is not None:
                with get_default_graph().name_scope(part_name + "/PartitionedInitializer/"):
                    part_initializer = raw.Slice(value, offset, part_shape)
            part = self._get_single(part_name, given_shape, dtype, part_initializer, regularizer, reuse, info, options)
            part._set_save_slice_info(SaveSliceInfo(name, list(wanted.sizes()), offset, part_shape))
            parts.append(part)
        self._partitioned[name] = PartitionedVariable(name, wanted, dtype, parts, partitions)
        return self._partitioned[name]

    def _shared_partitions(
        self, name: str, shape: TensorShape, dtype: DType, reuse: Reuse, partitioner: Callable[..., Any] | None
    ) -> PartitionedVariable:
        shared = self._partitioned[name]
        if reuse is False:
            raise ValueError(
                f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or "
                "reuse=tf.AUTO_REUSE in VarScope?"
            )
        _check_same(shared, name, shape, dtype)
        if partitioner is not None:
            partitions = _partitions(name, shared.shape, dtype, partitioner)
            if list(partitions) != list(shared._get_partitions()):
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified partitions {list(partitions)} and "
                    f"found partitions {list(shared._get_partitions())}."
                )
        return shared


# ---------------------------------------------------------------------- helpers
def default_initializer(name: str, dtype: DType) -> Any:
    """The initializer of variables that name none: Glorot's uniform one for floating dtypes, zeros (or empty strings)
    for the others.

    Raises:
        ValueError: there is none for `dtype`.
    """
    if dtype.is_floating:
        return glorot_uniform_initializer()
    if dtype.is_integer or dtype.is_unsigned or dtype.is_bool or dtype is string:
        return zeros_initializer()
    raise ValueError(f"An initializer for variable {name} of {dtype.name} is required; pass initializer=...")


def _is_scalar(shape: ShapeLike) -> bool:
    return shape is not None and TensorShape(shape).ndims == 0


def _accepts(function: Callable[..., Any], argument: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _names(function: Callable[..., Any], argument: str) -> bool:
    try:
        return argument in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _needs_arguments(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _shared(variable: Variable, name: str, shape: TensorShape, dtype: DType, reuse: Reuse) -> Variable:
    if reuse is False:
        raise ValueError(
            f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
            f"VarScope? Originally defined at: {variable.op.site}"
        )
    _check_same(variable, name, shape, dtype)
    return variable


def _check_same(existing: Variable | PartitionedVariable, name: str, shape: TensorShape, dtype: DType) -> None:
    if not shape.is_compatible_with(existing.shape):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {shape} and found shape {existing.shape}. "
            f"{_way_out(existing)}"
        )
    if not dtype.is_compatible_with(existing.dtype):
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype {existing.dtype.name}. "
            f"{_way_out(existing)}"
        )


def _way_out(existing: Variable | PartitionedVariable) -> str:
    first = existing if isinstance(existing, Variable) else next(iter(existing))
    return f"It was created at {first.op.site}: ask for the same here, or for another name or scope."


def _initial_value(
    name: str,
    shape: TensorShape,
    dtype: DType,
    initializer: InitializerLike | None,
    partition_info: PartitionInfo | None,
) -> tuple[Any, DType | None]:
    """What `Variable` is given: a value or a function that returns one, and the dtype to insist on."""
    if not callable(initializer):
        return initializer, None
    make: Any = initializer() if inspect.isclass(initializer) else initializer
    if shape.is_fully_defined():
        keywords: dict[str, Any] = {"dtype": dtype}
        # functions that name it are given it, None for a variable that is whole: many have no default for it
        if _names(make, "partition_info") or (partition_info is not None and _accepts(make, "partition_info")):
            keywords["partition_info"] = partition_info
        return lambda: make(shape.as_list(), **keywords), dtype
    if not _needs_arguments(make):
        return make, None
    raise ValueError(
        f"variable {name!r}: the initializer {make!r} needs a fully defined shape, got {shape}; give the shape, "
        "or an initial value, or a function without arguments that returns one"
    )


def regularize(variable: Variable, name: str, regularizer: Callable[..., Any]) -> None:
    """Adds the loss of a variable's regularizer, in a scope of that name."""
    graph = variable.graph
    with init_scope(), graph.colocate_with(variable.op), graph.name_scope(name + "/Regularizer/"):
        loss = regularizer(variable)
    if loss is not None:
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _partitions(name: str, shape: TensorShape, dtype: DType, partitioner: Partitioner | None) -> list[int]:
    """How many parts there are along each dimension."""
    if not callable(partitioner):
        raise ValueError(f"variable {name!r}: the partitioner must be callable, got {partitioner!r}")
    if not shape.is_fully_defined():
        raise ValueError(
            f"Shape of a new partitioned variable ({name}) must be fully defined, but instead was {shape}."
        )
    if not shape.ndims:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {shape}")
    partitions = partitioner(shape=shape, dtype=dtype)
    if not isinstance(partitions, list | tuple):
        raise ValueError(f"variable {name!r}: Partitioner must return a sequence, but saw: {partitions}")
    if len(partitions) != shape.ndims:
        raise ValueError(
            f"variable {name!r}: Partitioner returned a partition list that does not match the Variable's rank: "
            f"{partitions} vs. {shape}"
        )
    if any(p < 1 for p in partitions):
        raise ValueError(f"variable {name!r}: Partitioner returned zero partitions for some axes: {partitions}")
    return [int(p) for p in partitions]
