"""Operations (the vertices of a graph) and tensors (its edges)  (§3.1, WP2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeAlias

import numpy as np

from anabranch.core.attrs import AttributeValue
from anabranch.core.colocation import COLOCATION_PREFIX, colocation_group
from anabranch.core.device import DeviceSpec, canonical_name
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.op_def import ArgDef, OpDef
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike, TensorValue
from anabranch.graph.creation_site import CreationSite
from anabranch.proto.attr_values import as_shown_to_programs, attr_from_proto
from anabranch.proto.graph_pb2 import AttrValue, NodeDef

if TYPE_CHECKING:
    from anabranch.graph.graph import Graph

#: Binary operators of `Tensor`; the front end fills `Tensor.OPERATORS` with a function for each.
BINARY_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "matmul", "and", "or", "xor"),
    *("lt", "le", "gt", "ge"),
)


#: what a step is fed: values by tensors, or by nested structures of them
FeedDict: TypeAlias = Mapping[Any, TensorLike]
#: what a tensor may be indexed with: numbers, slices, tensors, `...`, None, and tuples of these
TensorIndex: TypeAlias = "int | slice | EllipsisType | TensorLike | None"


class StepRunner(Protocol):
    """What runs steps: a session."""

    @property
    def graph(self) -> Graph:
        """The graph that its steps are of."""

    def run(self, fetches: Structure, feed_dict: FeedDict | None = None) -> Structure:
        """Runs a step that fetches something."""


class Tensor:
    """One output of an operation: a symbolic handle on a value that exists while a step runs.

    Tensors hash and compare by identity, so that they can be keys of feed dictionaries. Programs may hang attributes
    of their own on them, as on operations: those stand in a dictionary, which a tensor gets when it is first needed.

    Args:
        op: the operation that gives the tensor. Programs do not make tensors themselves: functions such as `constant`
            do.
        value_index: which of its outputs this is.
        dtype: of the elements.
        shape: what is known of the shape.

    Raises:
        nothing

    Example:
        >>> x = tf.constant([1.0, 2.0], name="x")
        >>> x.name, x.dtype, x.shape
        ('x:0', tf.float32, TensorShape([Dimension(2)]))
        >>> sess.run(2.0 * x + 1.0)
        array([3., 5.], dtype=float32)
    """

    __slots__ = (
        *("__dict__", "__weakref__", "_attributes", "_consumers", "_dtype", "_op", "_shape", "_value_index"),
        "_constant",
    )
    __array_priority__ = 100

    #: the methods behind operators, which libraries give to classes that act like tensors
    OVERLOADABLE_OPERATORS: ClassVar[set[str]] = {"__abs__", "__eq__", "__getitem__", "__invert__", "__ne__", "__neg__"}
    #: operator name -> function, filled in by `frontend.operators`
    OPERATORS: ClassVar[dict[str, Callable[..., Any]]] = {}
    #: functions of the session layer behind `eval`, filled in by `session`
    EVALUATE: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, op: Operation, value_index: int, dtype: DType, shape: TensorShape) -> None:
        self._op = op
        self._value_index = value_index
        self._dtype = dtype
        self._shape = shape
        self._consumers: list[Operation] = []
        self._attributes: dict[str, Any] | None = None
        #: its value where that follows from constants and shapes, once somebody has computed it
        self._constant: Any = None

    # ------------------------------------------------------------------ what it is
    @property
    def op(self) -> Operation:
        """The operation that produces this tensor."""
        return self._op

    @property
    def value_index(self) -> int:
        """Which output of its operation this tensor is."""
        return self._value_index

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def graph(self) -> Graph:
        return self._op.graph

    def _as_tf_output(self) -> Tensor:
        """What stands for the tensor in calls of TensorFlow's wrapped C library."""
        return self

    @property
    def name(self) -> str:
        """``<operation name>:<output index>``."""
        return f"{self._op.name}:{self._value_index}"

    @property
    def device(self) -> str:
        return self._op.device

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The value, in graphs whose tensors have values while they are built."""
        return None

    @property
    def shape(self) -> TensorShape:
        """The static shape: what is known of it before a step runs."""
        return self._shape

    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        """The static shape as Python's numbers, None where the rank is unknown; copies of TensorFlow's code ask."""
        return None if self._shape.ndims is None else tuple(self._shape.as_list())

    def get_shape(self) -> TensorShape:
        """The same as `shape`.

        Returns:
            A `TensorShape`.

        Raises:
            nothing

        Example:
            >>> tf.zeros([2, 3]).get_shape().as_list()
            [2, 3]
        """
        return self._shape

    def set_shape(self, shape: ShapeLike) -> None:
        """Adds what the caller knows of the shape.

        Args:
            shape: a list of sizes, None where one is not known; or a `TensorShape`.

        Raises:
            ValueError: it contradicts what is known already.

        Example:
            >>> x = tf.placeholder(tf.float32)
            >>> x.set_shape([None, 3])
            >>> x.shape.as_list()
            [None, 3]
        """
        try:
            self._shape = self._shape.merge_with(shape)
        except ValueError as error:
            raise ValueError(
                f"cannot set the shape of tensor {self.name} (created at {self._op.site}): its known shape "
                f"{self._shape} and the given shape {shape} contradict each other"
            ) from error

    def _shape_as_list(self) -> list[int | None] | None:
        return None if self._shape.dims_tuple is None else list(self._shape.dims_tuple)

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor as an input."""
        return list(self._consumers)

    @property
    def ref(self) -> Tensor:
        """Kept for programs that treat every tensor as hashable through `ref`."""
        return self

    def experimental_ref(self) -> Tensor:
        """A hashable stand-in for this tensor; tensors are hashable themselves."""
        return self

    def eval(self, feed_dict: FeedDict | None = None, session: StepRunner | None = None) -> TensorValue:
        """Runs a step in `session` (default: the default session) that fetches this tensor.

        Args:
            feed_dict: values for tensors.
            session: default: the default session.

        Returns:
            The tensor's value: an array of its shape, or a NumPy scalar.

        Raises:
            ValueError: there is no default session, or this tensor belongs to another graph.

        Example:
            >>> tf.constant([1.0, 2.0]).eval()
            array([1., 2.], dtype=float32)
        """
        return Tensor.EVALUATE["eval"](self, feed_dict, session)

    # ------------------------------------------------------------------ operators
    def __iter__(self) -> Iterator[Any]:
        if self._shape.dims_tuple is None or not self._shape.dims_tuple:
            raise TypeError(f"tensor {self.name} of shape {self._shape} cannot be iterated over; its rank must be >= 1")
        length = self._shape.dims_tuple[0]
        if length is None:
            raise TypeError(
                f"tensor {self.name} cannot be iterated over: its first dimension is not known; use tf.map_fn"
            )
        return (self[i] for i in range(length))

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"len() is not defined for the symbolic tensor {self.name}; call tf.shape(x) or x.shape instead"
        )

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the symbolic tensor {self.name} has no truth value while the graph is built; use `is not None` to test "
            "for presence, and tf.cond to depend on its value"
        )

    __nonzero__ = __bool__

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"the symbolic tensor {self.name} cannot be converted to a NumPy array; fetch it with session.run"
        )

    def __getitem__(self, item: TensorIndex) -> Tensor:
        result: Tensor = Tensor.OPERATORS["getitem"](self, item)
        return result

    def __neg__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["neg"](self)
        return result

    def __abs__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["abs"](self)
        return result

    def __invert__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["invert"](self)
        return result

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    if TYPE_CHECKING:
        # attached in a loop below, one pair for each of BINARY_OPERATORS
        def __add__(self, other: TensorLike) -> Tensor: ...
        def __radd__(self, other: TensorLike) -> Tensor: ...
        def __sub__(self, other: TensorLike) -> Tensor: ...
        def __rsub__(self, other: TensorLike) -> Tensor: ...
        def __mul__(self, other: TensorLike) -> Tensor: ...
        def __rmul__(self, other: TensorLike) -> Tensor: ...
        def __truediv__(self, other: TensorLike) -> Tensor: ...
        def __rtruediv__(self, other: TensorLike) -> Tensor: ...
        def __floordiv__(self, other: TensorLike) -> Tensor: ...
        def __mod__(self, other: TensorLike) -> Tensor: ...
        def __pow__(self, other: TensorLike) -> Tensor: ...
        def __rpow__(self, other: TensorLike) -> Tensor: ...
        def __matmul__(self, other: TensorLike) -> Tensor: ...
        def __and__(self, other: TensorLike) -> Tensor: ...
        def __or__(self, other: TensorLike) -> Tensor: ...
        def __rfloordiv__(self, other: TensorLike) -> Tensor: ...
        def __div__(self, other: TensorLike) -> Tensor: ...
        def __rdiv__(self, other: TensorLike) -> Tensor: ...
        def __rmod__(self, other: TensorLike) -> Tensor: ...
        def __rmatmul__(self, other: TensorLike) -> Tensor: ...
        def __rand__(self, other: TensorLike) -> Tensor: ...
        def __ror__(self, other: TensorLike) -> Tensor: ...
        def __xor__(self, other: TensorLike) -> Tensor: ...
        def __rxor__(self, other: TensorLike) -> Tensor: ...
        def __lt__(self, other: TensorLike) -> Tensor: ...
        def __le__(self, other: TensorLike) -> Tensor: ...
        def __gt__(self, other: TensorLike) -> Tensor: ...
        def __ge__(self, other: TensorLike) -> Tensor: ...

    # ------------------------------------------------------------------ attributes that the front end hangs on tensors
    def set_attribute(self, key: str, value: object) -> None:
        """Stores a fact of the front end about this tensor (never part of the graph's meaning)."""
        if self._attributes is None:
            self._attributes = {}
        self._attributes[key] = value

    def get_attribute(self, key: str, default: object = None) -> AttributeValue:
        """What `set_attribute` stored under `key`; `default` where it stored nothing."""
        return default if self._attributes is None else self._attributes.get(key, default)

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self._shape} dtype={self._dtype.name}>"

    def __str__(self) -> str:
        shape = "" if self._shape.dims_tuple is None else f", shape={self._shape}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self._dtype.name}{device})'


def _attach_operators() -> None:
    def forward(name: str) -> Callable[[Tensor, Any], Any]:
        def operator(self: Tensor, other: TensorLike) -> Any:
            return Tensor.OPERATORS[name](self, other)

        return operator

    def backward(name: str) -> Callable[[Tensor, Any], Any]:
        def operator(self: Tensor, other: TensorLike) -> Any:
            return Tensor.OPERATORS[name](other, self)

        return operator

    for name in BINARY_OPERATORS:
        setattr(Tensor, f"__{name}__", forward(name))
        Tensor.OVERLOADABLE_OPERATORS.add(f"__{name}__")
        if name not in {"lt", "le", "gt", "ge"}:
            setattr(Tensor, f"__r{name}__", backward(name))
            Tensor.OVERLOADABLE_OPERATORS.add(f"__r{name}__")


_attach_operators()


class Operation:
    """A vertex of a graph: an operation type applied to inputs, with attributes fixed at construction.

    Created by `Graph.create_op` only. `attrs` holds plain Python values (see `core.attrs`) in a dictionary that is
    replaced and never changed, for steps share it; those whose name begins
    with an underscore are annotations that any operation may carry.
    """

    __slots__ = (
        *("__dict__", "__weakref__", "_control_inputs", "_control_outputs", "_graph", "_id", "_inputs", "_name"),
        *("_outputs", "attrs", "device", "op_def", "site"),
    )

    #: the function behind `node_def`, filled in by `graphdef`
    EXPORT: ClassVar[dict[str, Callable[..., Any]]] = {}
    #: the functions behind changes of a graph that stands, filled in by `rewiring`
    EDIT: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(
        self,
        graph: Graph,
        op_id: int,
        op_def: OpDef,
        name: str,
        inputs: list[Tensor],
        control_inputs: list[Operation],
        attrs: dict[str, Any],
        device: str,
        site: CreationSite,
    ) -> None:
        self._graph = graph
        self._id = op_id
        self._name = name
        self.op_def = op_def
        self._inputs = inputs
        self._control_inputs = control_inputs
        self._control_outputs: list[Operation] = []
        self._outputs: list[Tensor] = []
        self.attrs = attrs
        self.device = device
        self.site = site
        for tensor in inputs:
            tensor._consumers.append(self)
        for op in control_inputs:
            op._control_outputs.append(self)

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def name(self) -> str:
        return self._name

    @property
    def type(self) -> str:
        return self.op_def.name

    @property
    def inputs(self) -> list[Tensor]:
        """The data inputs, flat: a variadic input contributes one tensor per element. Not to be changed."""
        return self._inputs

    @property
    def outputs(self) -> list[Tensor]:
        return self._outputs

    def values(self) -> tuple[Tensor, ...]:
        """The outputs."""
        return tuple(self._outputs)

    @property
    def control_inputs(self) -> list[Operation]:
        """The operations that must finish before this one starts, besides those that produce its inputs."""
        return list(self._control_inputs)

    @property
    def control_outputs(self) -> list[Operation]:
        return list(self._control_outputs)

    @property
    def node_def(self) -> NodeDef:
        """The operation as a NodeDef message."""
        result: NodeDef = Operation.EXPORT["node_def"](self)
        return result

    @property
    def creation_site(self) -> str:
        """``file:line`` of the user code that created this operation."""
        return str(self.site)

    @property
    def traceback(self) -> list[tuple[str, int, str, str | None]]:
        """The creating line, in the form of a one-frame stack summary."""
        return [(self.site.filename, self.site.line, self.site.function, None)]

    def get_attr(self, name: str) -> AttributeValue:
        """The value of an attribute.

        Returns:
            A number, bytes or a DType; a message where it is a tensor (TensorProto, see `tf.make_ndarray`), a shape
            (TensorShapeProto) or a function (NameAttrList); or a list of one of these.

        Raises:
            ValueError: the operation has no attribute of that name.
        """
        try:
            value = self.attrs[name]
        except KeyError:
            raise ValueError(
                f"Operation {self._name!r} has no attr named {name!r}. Its type is {self.type}, and it has "
                f"{sorted(self.attrs)}"
            ) from None
        definition = self.op_def.attrs.get(name)
        return as_shown_to_programs(value, None if definition is None else definition.kind)

    def colocation_groups(self) -> list[bytes]:
        """The names of the groups whose members must share a device (`loc:@<name>`)."""
        groups: list[bytes] = self.attrs.get("_class", [])
        return [g for g in groups if g.startswith(COLOCATION_PREFIX)] or [colocation_group(self._name)]

    def grouped_inputs(self) -> list[Any]:
        """The inputs by argument of the signature: a tensor, or a list of them for a variadic argument."""
        return group_by_argument(self.op_def.inputs, self.attrs, self._inputs)

    def run(self, feed_dict: FeedDict | None = None, session: StepRunner | None = None) -> None:
        """Runs a step in `session` (default: the default session) that has this operation as its target.

        Args:
            feed_dict: values for tensors.
            session: default: the default session.

        Raises:
            ValueError: there is no default session, or this operation belongs to another graph.

        Example:
            >>> v = tf.get_variable("v", initializer=1.0)
            >>> v.initializer.run()
            >>> v.eval()
            np.float32(1.0)
        """
        Tensor.EVALUATE["run"](self, feed_dict, session)

    # ------------------------------------------------------------------ changes
    def _add_control_input(self, op: Operation) -> None:
        self._add_control_inputs([op])

    def _add_control_inputs(self, ops: list[Operation]) -> None:
        """Waits for others as well; see `rewiring.add_control_inputs`."""
        Operation.EDIT["add_control_inputs"](self, ops)

    def _update_input(self, index: int, tensor: Tensor) -> None:
        """Takes another tensor as an input; see `rewiring.rewire`."""
        Operation.EDIT["update_input"](self, index, tensor)

    # the graph layer only: nothing is looked at but the two ends of an edge
    def _set_input(self, index: int, tensor: Tensor) -> None:
        """Rewires one input; used while a graph with cycles is put together."""
        self._graph._check_not_finalized()
        if tensor.graph is not self._graph:
            raise ValueError(f"tensor {tensor.name} is of another graph than operation {self._name}")
        self._inputs[index]._consumers.remove(self)
        self._inputs[index] = tensor
        tensor._consumers.append(self)
        if tensor._op._id >= self._id:
            self._graph._in_creation_order = False
        self._graph._changed()

    def _link_control_input(self, op: Operation) -> None:
        self._control_inputs.append(op)
        op._control_outputs.append(self)
        if op._id >= self._id:
            self._graph._in_creation_order = False

    def _unlink_control_input(self, op: Operation) -> None:
        self._control_inputs.remove(op)
        op._control_outputs.remove(self)

    def _set_attr(self, name: str, value: AttributeValue | AttrValue) -> None:
        """Sets an attribute to a plain value, or to that of a message, as programs for TensorFlow have it."""
        if isinstance(value, AttrValue):
            definition = self.op_def.attrs.get(name)
            value = attr_from_proto(value, None if definition is None else definition.kind)
        self.attrs = {**self.attrs, name: value}
        self._graph._changed()

    def _set_device(self, device: str | DeviceSpec | None) -> None:
        self.device = canonical_name(device)
        self._graph._changed()

    def __repr__(self) -> str:
        return f"<tf.Operation '{self._name}' type={self.type}>"

    def __str__(self) -> str:
        return str(self.node_def)


def group_by_argument(args: Iterable[ArgDef], attrs: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    """Regroups flat values by the arguments of a signature (`OpDef.inputs` or `.outputs`)."""
    grouped: list[Any] = []
    at = 0
    for arg in args:
        if arg.number_attr is not None:
            count = attrs[arg.number_attr]
        elif arg.type_list_attr is not None:
            count = len(attrs[arg.type_list_attr])
        else:
            grouped.append(values[at])
            at += 1
            continue
        grouped.append(values[at : at + count])
        at += count
    return grouped
