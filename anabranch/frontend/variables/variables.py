"""Variables: mutable tensors that outlive steps  (§3.1; design D5)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

from anabranch.core.colocation import colocation_group
from anabranch.core.compat import as_text
from anabranch.core.dtypes import DType, DTypeLike, as_dtype, resource
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.trackables import VARIABLE_VALUE_KEY, Trackable
from anabranch.core.values import PassedOn, TensorLike, TensorValue
from anabranch.frontend.arguments import DeviceLike
from anabranch.frontend.framework import init_scope
from anabranch.frontend.variables.initial_value import initial_or_current, with_initialized_inputs
from anabranch.frontend.variables.policy import (
    VariableAggregation,
    VariableSynchronization,
    checked_policy,
    create_through_hooks,
)
from anabranch.frontend.variables.updates import VariableUpdates
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor, register_tensor_conversion_function
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.ops import raw
from anabranch.proto import training_pb2
from anabranch.proto.training_pb2 import VariableDef


class SaveSliceInfo:
    """Which part of a larger, partitioned variable a variable holds.

    Args:
        full_name: name of the whole.
        full_shape: its shape.
        var_offset: where the part begins, per dimension.
        var_shape: shape of the part.
        save_slice_info_def: a `SaveSliceInfoDef` message to read instead of the other arguments.
        import_scope: prefix for the name read from the message.
    """

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Sequence[int] | None = None,
        var_offset: Sequence[int] | None = None,
        var_shape: Sequence[int] | None = None,
        save_slice_info_def: training_pb2.SaveSliceInfoDef | None = None,
        import_scope: str | None = None,
    ) -> None:
        if save_slice_info_def is not None:
            self.full_name: str | None = _with_scope(save_slice_info_def.full_name, import_scope)
            self.full_shape: Any = list(save_slice_info_def.full_shape)
            self.var_offset: Any = list(save_slice_info_def.var_offset)
            self.var_shape: Any = list(save_slice_info_def.var_shape)
        else:
            self.full_name = full_name
            self.full_shape = full_shape
            self.var_offset = var_offset
            self.var_shape = var_shape

    @property
    def spec(self) -> str:
        """``"<full shape> <offset>,<length>:..."``: the form in which save and restore operations name a part."""
        full = " ".join(str(d) for d in self.full_shape)
        parts = ":".join(f"{o},{s}" for o, s in zip(self.var_offset, self.var_shape, strict=True))
        return f"{full} {parts}"

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The `SaveSliceInfoDef` message; None for a variable outside `export_scope`."""
        assert self.full_name is not None
        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        return training_pb2.SaveSliceInfoDef(
            full_name=_without_scope(self.full_name, export_scope),
            full_shape=list(self.full_shape),
            var_offset=list(self.var_offset),
            var_shape=list(self.var_shape),
        )


_SliceInfo: TypeAlias = SaveSliceInfo


class _VariableType(type):
    """Creating a `Variable` goes through the open `variable_creator_scope` blocks."""

    def __call__(cls, *args: PassedOn, **kwargs: PassedOn) -> Any:
        if cls is not Variable or kwargs.get("variable_def") is not None:
            return super().__call__(*args, **kwargs)
        bound = dict(zip(_PARAMETERS, args, strict=False))
        if len(args) > len(_PARAMETERS) or bound.keys() & kwargs.keys():
            return super().__call__(*args, **kwargs)  # raises the usual TypeError
        make: Callable[..., Any] = super().__call__
        return create_through_hooks(make, {**bound, **kwargs})


_PARAMETERS = (
    *("initial_value", "trainable", "collections", "validate_shape", "caching_device", "name", "variable_def", "dtype"),
    *("expected_shape", "import_scope", "constraint", "use_resource", "synchronization", "aggregation", "shape"),
)


class Variable(VariableUpdates, Trackable, metaclass=_VariableType):
    """A tensor that steps can read and change, and that keeps its value between steps.

    A variable is a handle (`VarHandleOp`) and an initializer; it must be initialized before it is read, usually by
    running `tf.global_variables_initializer()`. Wherever a tensor is expected a variable can be given: it is read then,
    after the control dependencies that are open at that place. Variables hash and compare by identity.

    Args:
        initial_value: anything that converts to a tensor, or a function without arguments that returns such a thing.
        trainable: whether to add it to the collection that optimizers look at; default True.
        collections: names of collections to add it to; default `GraphKeys.GLOBAL_VARIABLES`.
        validate_shape: False lets the initial value's shape be unknown, and later values have other shapes.
        caching_device: device (or device function) that keeps a copy for its readers.
        name: name of the handle's operation, made unique; default "Variable".
        variable_def: a `VariableDef` message whose nodes are in the graph already; then only `import_scope` counts.
        dtype: default: that of the initial value.
        expected_shape: the shape that the initial value must be compatible with.
        import_scope: prefix of the names in `variable_def`.
        constraint: function from the new value to an allowed one, applied by optimizers after an update.
        use_resource: every variable is a resource; with False, the default, reads of its value are named for it
            (``w/read``), as programs expect of reference variables, and with True ``ReadVariableOp``.
        synchronization, aggregation: how replicas of the variable are kept together.
        shape: default: the initial value's; may be less specific.

    Raises:
        ValueError: no initial value, an initial value of unknown shape with `validate_shape`, or settings that
            contradict each other.
        TypeError: the initial value cannot be a tensor of `dtype`.

    Example:
        >>> v = tf.Variable([1.0, 2.0], name="v")
        >>> sess.run(v.initializer)
        >>> sess.run(v + 1.0)
        array([2., 3.], dtype=float32)
    """

    #: the class of `_save_slice_info`, where programs of TensorFlow's time look for it
    SaveSliceInfo: ClassVar[type[Any]] = SaveSliceInfo

    _initial_value: Tensor | None
    _initializer_op: Operation | None
    _name: str | None = None
    #: the strategy of `tf.distribute` that holds it: none
    _distribute_strategy: ClassVar[None] = None
    #: how operations that read the value are named, in the scope of what takes it; None: for their type
    _name_of_reads: str | None = None

    def __init__(
        self,
        initial_value: TensorLike | Callable[[], TensorLike] | None = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        caching_device: DeviceLike | None = None,
        name: str | None = None,
        variable_def: VariableDef | None = None,
        dtype: DTypeLike | None = None,
        expected_shape: ShapeLike | None = None,
        import_scope: str | None = None,
        constraint: Callable[[Tensor], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        shape: ShapeLike | None = None,
    ) -> None:
        self._save_slice_info: _SliceInfo | None = None
        self._cached_value: Tensor | None = None
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are alternatives; give one of them")
            self._init_from_proto(variable_def, import_scope)
            return
        if initial_value is None:
            raise ValueError(f"initial_value must be specified for the variable {name or 'Variable'!r}")
        if constraint is not None and not callable(constraint):
            raise ValueError(f"variable {name!r}: the `constraint` argument must be callable, got {constraint!r}")
        if isinstance(initial_value, Tensor) and initial_value.graph.building_function:
            raise ValueError(
                f"variable {name or 'Variable'!r}: the initial value {initial_value.name} lies inside a function, or "
                "inside a control-flow construct such as a loop or conditional, but variables are created outside; "
                "pass an initializer, a function that returns the initial value"
            )
        self._constraint = constraint
        self._synchronization, self._aggregation, self._trainable = checked_policy(
            synchronization, aggregation, trainable, name
        )
        with init_scope():
            # of a variable that asks to be a resource, TensorFlow takes any shape: `validate_shape` is nothing to it
            self._build(initial_value, name, dtype, shape, expected_shape, validate_shape, caching_device, use_resource)
            if not use_resource:
                self._name_of_reads = f"{self._handle.op.name.rpartition('/')[2]}/read"
                # see `control_flow.loop_invariants`
                self._handle.set_attribute("is_reference", True)
            self.graph.add_to_collections(self._collections(collections), self)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """Its value."""
        return {VARIABLE_VALUE_KEY: self}

    # ------------------------------------------------------------------ construction
    def _collections(self, given: Iterable[str] | None) -> list[str]:
        names = [GraphKeys.GLOBAL_VARIABLES] if given is None else given
        if not isinstance(names, list | tuple | set):
            raise ValueError(f"variable {self.name}: collections must be a list, tuple or set of names, got {given!r}")
        extra = (
            [GraphKeys.TRAINABLE_VARIABLES] if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in names else []
        )
        return [*names, *extra]

    def _build(
        self,
        initial_value: TensorLike | Callable[[], TensorLike],
        name: str | None,
        dtype: DTypeLike | None,
        shape: ShapeLike,
        expected_shape: ShapeLike,
        validate_shape: bool,
        caching_device: DeviceLike | None,
        any_shape: bool | None,
    ) -> None:
        graph = get_default_graph()
        wanted = None if dtype is None else as_dtype(dtype).base_dtype
        with graph.name_scope(name or "Variable") as scope:
            op_name = scope.rstrip("/")
            # the initial value and the handle share a device, whatever scopes are open
            with graph._attr_scope({"_class": [colocation_group(op_name)]}):
                with graph.device(None):
                    value = _initial_tensor(initial_value, wanted, graph)
                self._shape = _variable_shape(value, shape, expected_shape, validate_shape, any_shape, op_name)
                self._dtype = value.dtype.base_dtype
                self._handle: Tensor = raw.VarHandleOp(
                    dtype=self._dtype,
                    shape=self._shape,
                    shared_name=op_name,
                    container=graph.current_container,
                    name=scope,
                )
            self._initial_value = value
            with graph.name_scope("IsInitialized"):
                self._is_initialized_op: Tensor = raw.VarIsInitializedOp(self._handle)
            with (
                graph.colocate_with(None, ignore_existing=True),
                graph.device(None),
                graph.device(self._handle.device or None),
            ):
                self._initializer_op = raw.AssignVariableOp(
                    self._handle, with_initialized_inputs(op_name, value), validate_shape=validate_shape, name="Assign"
                )
            with graph.name_scope("Read"):
                self._graph_element = self._read()
            if caching_device is not None:  # the copy is there, whatever scopes are open
                with (
                    graph.colocate_with(None, ignore_existing=True),
                    graph.device(None),
                    graph.device(caching_device),
                ):
                    self._cached_value = raw.Identity(self._graph_element)

    def _init_from_proto(self, variable_def: VariableDef, import_scope: str | None) -> None:
        graph = get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(_with_scope(name, import_scope))

        handle = element(variable_def.variable_name)
        if isinstance(handle, Operation):
            handle = handle.outputs[0]
        if handle.op.type == "ReadVariableOp":
            # a reference variable of an old graph: its name now means its value, read from a resource
            self._name = handle.name
            handle = handle.op.inputs[0]
        if handle.dtype is not resource:
            raise ValueError(
                f"{variable_def.variable_name!r} is not a resource variable but a {handle.op.type} of "
                f"{handle.dtype.name}"
            )
        self._handle = handle
        self._shape = handle.op.attrs.get("shape", TensorShape(None))
        self._dtype = handle.op.attrs["dtype"]
        initializer = element(variable_def.initializer_name)
        if initializer.type == "ReadVariableOp":  # what stands for the Assign of a reference variable
            initializer = next(op for op in initializer.control_inputs if op.type == "AssignVariableOp")
        self._initializer_op = initializer
        self._initial_value = element(variable_def.initial_value_name) if variable_def.initial_value_name else None
        self._synchronization, self._aggregation, _ = checked_policy(
            VariableSynchronization(variable_def.synchronization),
            VariableAggregation(variable_def.aggregation),
            variable_def.trainable,
            variable_def.variable_name,
        )
        self._trainable = variable_def.trainable
        self._constraint = None
        if variable_def.HasField("save_slice_info_def"):
            info = variable_def.save_slice_info_def
            self._save_slice_info = SaveSliceInfo(save_slice_info_def=info, import_scope=import_scope)
        if variable_def.snapshot_name:
            self._graph_element = element(variable_def.snapshot_name)
            if self._graph_element.op.type != "ReadVariableOp":
                self._cached_value = self._graph_element
        else:
            self._graph_element = self._read()
        self._is_initialized_op = raw.VarIsInitializedOp(self._handle)

    # ------------------------------------------------------------------ what it is
    @property
    def handle(self) -> Tensor:
        """The resource tensor that names this variable."""
        return self._handle

    @property
    def op(self) -> Operation:
        """The operation that makes the handle."""
        return self._handle.op

    @property
    def name(self) -> str:
        return self._name or self._handle.name

    @property
    def _shared_name(self) -> str:
        """The name that checkpoints use."""
        return self.name.rpartition(":")[0]

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    @property
    def device(self) -> str:
        return self._handle.device

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self._shape

    def get_shape(self) -> TensorShape:
        """The same as `shape`."""
        return self._shape

    def _shape_as_list(self) -> list[int | None] | None:
        return None if self._shape.ndims is None else self._shape.as_list()

    def set_shape(self, shape: ShapeLike) -> None:
        """Adds what the caller knows of the shape; raises ValueError where that contradicts what is known."""
        try:
            self._shape = self._shape.merge_with(shape)
        except ValueError as error:
            raise ValueError(
                f"cannot set the shape of variable {self.name}: its known shape {self._shape} and {shape} contradict"
            ) from error
        self._handle.op._set_attr("shape", self._shape)
        self._graph_element.set_shape(self._shape)

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def constraint(self) -> Callable[[Tensor], Any] | None:
        """The function that optimizers apply to a new value, or None."""
        return self._constraint

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def create(self) -> Operation:
        """The same as `initializer`."""
        return self.initializer

    @property
    def initializer(self) -> Operation:
        """The operation that assigns the initial value."""
        assert self._initializer_op is not None
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor:
        """The tensor that `initializer` assigns; None for a variable that was read from an old graph file."""
        return self._initial_value  # type: ignore[return-value]

    def experimental_ref(self) -> Variable:
        """A hashable stand-in for this variable; variables are hashable themselves."""
        return self

    # ------------------------------------------------------------------ reading
    def value(self) -> Tensor:
        """The variable's value when the read runs: after the open control dependencies (or the cached copy)."""
        if self._cached_value is not None:
            return self._cached_value
        with self._reading_graph().colocate_with(None, ignore_existing=True):
            return self._read(self._name_of_reads)

    def read_value(self) -> Tensor:
        """A fresh read, also where `value` would give a cached copy.

        Returns:
            A tensor of the variable's dtype and shape, read after the open control dependencies.

        Raises (in the step):
            FailedPreconditionError: the variable is not initialized.

        Example:
            >>> v = tf.get_variable("v", initializer=1.0)
            >>> with tf.control_dependencies([v.assign_add(2.0)]):
            ...     after = v.read_value()
            >>> sess.run(v.initializer)
            >>> sess.run(after)
            np.float32(3.0)
        """
        with self._reading_graph().name_scope("Read"):
            value = self._read()
        tensor: Tensor = raw.Identity(value)
        return tensor

    def _reading_graph(self) -> Graph:
        """The graph of new reads: the function body that is being built, else the variable's graph."""
        default = get_default_graph()
        return default if default.building_function else self.graph

    def _read(self, name: str | None = None) -> Tensor:
        device = self._handle.device
        with contextlib.ExitStack() as stack:
            if device:
                graph = self._reading_graph()
                stack.enter_context(graph.device(None))
                stack.enter_context(graph.device(device))
            tensor: Tensor = raw.ReadVariableOp(self._handle, dtype=self._dtype, name=name)
        return tensor

    def initialized_value(self) -> Tensor:
        """The value if the variable is initialized when the step runs, else its initial value."""
        return initial_or_current(self)

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether the variable has a value: bool, shape []."""
        tensor: Tensor = raw.VarIsInitializedOp(self._handle, name=name)
        return tensor

    def _as_graph_element(self) -> Tensor:
        """What fetching or feeding this variable means: the read that was made with it."""
        return self._graph_element

    def _ref(self) -> Tensor:
        """The tensor that stands for the variable, where a reference variable has one: what fetching it means."""
        return self._graph_element

    def eval(self, session: StepRunner | None = None) -> TensorValue:
        """The value in `session` (default: the default session), as a NumPy array."""
        return self._graph_element.eval(session=session)

    def load(self, value: TensorLike, session: StepRunner | None = None) -> None:
        """Sets the value in `session` (default: the default session) without adding to the graph.

        Args:
            value: array of the variable's shape.
            session: default: the default session.

        Raises:
            ValueError: there is no session, or `value` has another shape.

        Example:
            >>> v = tf.get_variable("v", [2])
            >>> v.load([1.0, 2.0], sess)
            >>> sess.run(v)
            array([1., 2.], dtype=float32)
        """
        self.initializer.run({self.initializer.inputs[1]: value}, session)

    # ------------------------------------------------------------------ files
    def _set_save_slice_info(self, save_slice_info: _SliceInfo) -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> _SliceInfo | None:
        return self._save_slice_info

    def to_proto(self, export_scope: str | None = None) -> VariableDef | None:
        """The `VariableDef` message; None for a variable outside `export_scope`."""
        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        snapshot = self._graph_element if self._cached_value is None else self._cached_value
        message = training_pb2.VariableDef(
            variable_name=_without_scope(self.name, export_scope),
            initializer_name=_without_scope(self.initializer.name, export_scope),
            snapshot_name=_without_scope(snapshot.name, export_scope),
            is_resource=True,
            trainable=self._trainable,
        )
        message.synchronization = self._synchronization.value  # type: ignore[assignment]
        message.aggregation = self._aggregation.value  # type: ignore[assignment]
        if self._initial_value is not None:
            message.initial_value_name = _without_scope(self._initial_value.name, export_scope)
        info = self._save_slice_info.to_proto(export_scope) if self._save_slice_info is not None else None
        if info is not None:
            message.save_slice_info_def.CopyFrom(info)
        return message

    @staticmethod
    def from_proto(variable_def: VariableDef, import_scope: str | None = None) -> Variable:
        """The variable whose nodes `variable_def` names in the default graph.

        Raises:
            KeyError: a node is not in the graph.
        """
        variable: Variable = Variable(variable_def=variable_def, import_scope=import_scope)
        return variable

    def __deepcopy__(self, memo: dict[int, object]) -> NoReturn:
        raise NotImplementedError(
            f"variable {self.name} cannot be copied: it is a part of its graph; make another one of its "
            "initialized_value()"
        )

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"


# ---------------------------------------------------------------------- helpers
def _initial_tensor(initial_value: TensorLike | Callable[[], TensorLike], dtype: DType | None, graph: Graph) -> Tensor:
    if not callable(initial_value):
        return convert_to_tensor(initial_value, dtype, name="initial_value")
    with graph.name_scope("Initializer"):
        return convert_to_tensor(initial_value(), dtype, name="initial_value")


def _variable_shape(
    value: Tensor, shape: ShapeLike, expected: ShapeLike, validate: bool, any_shape: bool | None, name: str
) -> TensorShape:
    """The static shape of a variable with this initial value."""
    if expected is not None and not value.shape.is_compatible_with(expected):
        raise ValueError(f"variable {name!r}: the initial value has shape {value.shape}, expected {expected}")
    if shape is not None:
        given = TensorShape(shape)
        if not given.is_compatible_with(value.shape):
            raise ValueError(
                f"variable {name!r}: the initial value's shape {value.shape} is not compatible with {given}"
            )
        return given
    if not validate:
        return TensorShape(None)
    if not any_shape and not value.shape.is_fully_defined():
        raise ValueError(
            f"variable {name!r}: the initial value {value.name} must have a fully known shape, it has {value.shape}; "
            "pass validate_shape=False to allow any shape"
        )
    return value.shape


def _with_scope(name: str, scope: str | None) -> str:
    return f"{scope.rstrip('/')}/{as_text(name)}" if scope else as_text(name)


def _without_scope(name: str, scope: str | None) -> str:
    return name.removeprefix(scope.rstrip("/") + "/") if scope else name


def _to_tensor(variable: Variable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False) -> Any:
    if dtype is not None and not dtype.is_compatible_with(variable.dtype):
        raise ValueError(
            f"variable {variable.name} has dtype {variable.dtype.name}, but {dtype.name} is needed here; use tf.cast"
        )
    return variable.value()


register_tensor_conversion_function(Variable, _to_tensor)
