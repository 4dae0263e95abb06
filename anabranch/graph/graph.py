"""The graph: operations by name, collections, functions, and the creation of operations  (§3.1, WP2)."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from anabranch.core.dtypes import DType
from anabranch.core.op_def import ArgDef, OpDef
from anabranch.core.registry import find_op_def
from anabranch.graph.creation_site import CreationSite, user_frame
from anabranch.graph.free_names import free_name
from anabranch.graph.missing_names import MissingNameError
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.scopes import GraphScopes, ScopeState
from anabranch.graph.shape_inference import infer_shapes
from anabranch.proto.graph_pb2 import GraphDef, VersionDef

#: the version numbers that exported graphs carry
PRODUCER_VERSION = 134
MIN_CONSUMER_VERSION = 0
#: tensors that one argument of an operation may stand for: a graph file can say any number
_MAX_TENSORS: Final = 1 << 17


class Graph(GraphScopes):
    """A dataflow graph: operations, the tensors between them, collections, and a library of function graphs.

    Building only ever adds operations. Adding never changes what an existing operation computes, so a session sees new
    nodes without being told; what changes an operation that is there (`rewiring`) raises `structure_version`.

    Raises:
        nothing

    Example:
        >>> graph = tf.Graph()
        >>> with graph.as_default():
        ...     x = tf.constant(1.0, name="x")
        >>> x.graph is graph, [op.name for op in graph.get_operations()]
        (True, ['x'])
    """

    building_function = False
    #: whether its tensors have values while it is built
    computes_at_once = False
    #: what its tensors are
    tensor_class: ClassVar[type[Tensor]] = Tensor
    #: a function graph's enclosing graph
    outer_graph: Graph | None = None
    #: functions behind `as_graph_def` and `graph_def_versions`, filled in by `graphdef`
    EXPORT: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._operations: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self._names = {}
        self._scopes = ScopeState()
        self._collections: dict[str, list[Any]] = {}
        self._functions: dict[str, Graph] = {}
        self._kept: list[object] = []
        self._finalized = False
        self._seed: int | None = None
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation] = set()
        self.structure_version = 0
        #: whether every operation was made after all that it waits for
        self._in_creation_order = True

    # ------------------------------------------------------------------ creation
    def create_op(
        self,
        op_def: OpDef,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        name: str | None = None,
        *,
        site: CreationSite | None = None,
        control_inputs: list[Operation] | None = None,
    ) -> Operation:
        """Adds an operation.

        Args:
            op_def: its type.
            inputs: flat data inputs, all of this graph.
            attrs: every attribute of the type, as Python values; and annotations.
            name: made unique in the current scope; a trailing slash marks an absolute name. Default: the type's name.
            control_inputs: replaces the control dependencies of the open scopes when given.

        Raises:
            RuntimeError: the graph is finalized.
            ValueError: invalid or taken name, inputs of another graph, or shapes that the operation cannot take.
        """
        self._check_not_finalized()
        for tensor in inputs:
            if tensor._op._graph is not self:
                raise ValueError(
                    f"input {tensor.name} of a new {op_def.name} operation belongs to another graph (it was created at "
                    f"{tensor.op.site}); build both in one `with graph.as_default()` block"
                )
        site = site or user_frame()
        self._scope_annotations(op_def.name, attrs)
        dtypes = output_dtypes(op_def, attrs)
        with self._lock:
            full_name = self._operation_name(name or op_def.name)
            shapes = infer_shapes(op_def, attrs, inputs, full_name, site)
            controls = self._current_control_inputs(inputs) if control_inputs is None else control_inputs
            op = Operation(self, len(self._operations), op_def, full_name, inputs, controls, attrs, "", site)
            op._outputs = [
                self.tensor_class(op, i, dtype, shape)
                for i, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
            ]
            if self._scopes.devices or self._scopes.colocation:
                self._apply_device_functions(op)
            self._operations.append(op)
            self._by_name[full_name] = op
        if self._scopes.controls and control_inputs is None:  # else it does not wait, and who takes its results must
            self._record_in_control_scopes(op)
        return op

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this graph that stands for `tensor`; a function graph takes outer tensors in as inputs."""
        return tensor

    def finalize(self) -> None:
        """Makes the graph read-only."""
        self._finalized = True

    @property
    def finalized(self) -> bool:
        return self._finalized

    def _unsafe_unfinalize(self) -> None:
        self._finalized = False

    def _check_not_finalized(self) -> None:
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified; build everything before finalize()")

    def _changed(self) -> None:
        self.structure_version += 1

    @property
    def version(self) -> int:
        """A number that grows with every operation added."""
        return len(self._operations)

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Takes back every operation, name and function that was added inside if the block raises.

        Other threads cannot add operations meanwhile.
        """
        with self._lock:
            library = self._outermost()
            count, names, functions = len(self._operations), dict(self._names), dict(library._functions)
            try:
                yield
            except BaseException:
                self._remove_last(len(self._operations) - count)
                self._names, library._functions = names, functions
                raise

    def _remove_last(self, count: int) -> None:
        for _ in range(count):
            op = self._operations.pop()
            del self._by_name[op.name]
            for tensor in op.inputs:
                if op in tensor._consumers:
                    tensor._consumers.remove(op)
            for control in op._control_inputs:
                control._control_outputs.remove(op)
            for scope in self._scopes.controls:
                scope.seen.discard(op)
        if count:
            self._changed()

    # ------------------------------------------------------------------ exchange
    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> GraphDef:
        """The graph as a `GraphDef` message.

        Args:
            from_version: only operations added after that `version` of the graph.
            add_shapes: whether nodes carry the shapes of their outputs as an attribute.

        Returns:
            A `GraphDef`.

        Raises:
            nothing

        Example:
            >>> x = tf.constant(1.0, name="x")
            >>> [node.name for node in tf.get_default_graph().as_graph_def().node]
            ['x']
        """
        result: GraphDef = Graph.EXPORT["as_graph_def"](self, from_version, add_shapes)
        return result

    @property
    def graph_def_versions(self) -> VersionDef:
        """The VersionDef that exported graphs carry."""
        result: VersionDef = Graph.EXPORT["graph_def_versions"](self)
        return result

    # ------------------------------------------------------------------ look-up
    def get_operations(self) -> list[Operation]:
        """All operations, in the order of creation.

        Returns:
            A list of operations.

        Raises:
            nothing

        Example:
            >>> x = tf.constant(1.0, name="x") + 1.0
            >>> len(tf.get_default_graph().get_operations())
            3
        """
        return list(self._operations)

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of a name.

        Args:
            name: such as "x".

        Returns:
            The `Operation`.

        Raises:
            TypeError: `name` is no string.
            KeyError: there is no such operation.

        Example:
            >>> x = tf.constant([1.0, 2.0], name="x")
            >>> tf.get_default_graph().get_operation_by_name("x").type
            'Const'
        """
        if not isinstance(name, str):
            raise TypeError(f"operation names are strings, got {name!r}")
        element = self.as_graph_element(name, allow_tensor=False)
        assert isinstance(element, Operation)
        return element

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor of a name.

        Args:
            name: of its operation and the number of the output, such as "x:0".

        Returns:
            The `Tensor`.

        Raises:
            TypeError: `name` is no string.
            ValueError: it is not of that form.
            KeyError: there is no such operation or output.

        Example:
            >>> x = tf.constant([1.0, 2.0], name="x")
            >>> tf.get_default_graph().get_tensor_by_name("x:0") is x
            True
        """
        if not isinstance(name, str):
            raise TypeError(f"tensor names are strings, got {name!r}")
        element = self.as_graph_element(name, allow_operation=False)
        assert isinstance(element, Tensor)
        return element

    def as_graph_element(
        self, obj: object, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Tensor | Operation:
        """The tensor or operation that `obj` (a name, a tensor, an operation, a variable) stands for in this graph.

        Raises:
            TypeError: `obj` cannot stand for one.
            ValueError: it belongs to another graph, or its name is malformed.
            KeyError: nothing of that name is in this graph.
        """
        kinds = " or ".join(["Tensor"] * allow_tensor + ["Operation"] * allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        if (isinstance(obj, Tensor) and allow_tensor) or (isinstance(obj, Operation) and allow_operation):
            if obj.graph is not self:
                site = (obj.op if isinstance(obj, Tensor) else obj).site
                raise ValueError(
                    f"{type(obj).__name__} {obj.name} (created at {site}) is not an element of this graph; it belongs "
                    "to another. Build it inside `with graph.as_default()`, or open a session with its graph"
                )
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {kinds}.")

    def _element_by_name(self, name: str, allow_tensor: bool, allow_operation: bool) -> Tensor | Operation:
        if ":" in name:
            if not allow_tensor:
                raise ValueError(f"Name {name!r} appears to refer to a Tensor, not a Operation.")
            return self._tensor_by_name(name)
        if not allow_operation:
            if name in self._by_name:
                raise ValueError(
                    f"The name {name!r} refers to an Operation, not a Tensor. "
                    f'Tensor names must be of the form "<op_name>:<output_index>", such as {name + ":0"!r}.'
                )
            raise ValueError(
                f"The name {name!r} looks like an (invalid) Operation name, not a Tensor. "
                'Tensor names must be of the form "<op_name>:<output_index>".'
            )
        if name not in self._by_name:
            message = f"The name {name!r} refers to an Operation not in the graph."
            raise MissingNameError(message, name, self._by_name)
        return self._by_name[name]

    def _tensor_by_name(self, name: str) -> Tensor:
        op_name, _, index_text = name.rpartition(":")
        if not op_name or not index_text.isdigit():
            raise ValueError(
                f"The name {name!r} looks a like a Tensor name, but is not a valid one. "
                'Tensor names must be of the form "<op_name>:<output_index>".'
            )
        op = self._by_name.get(op_name)
        if op is None:
            message = (
                f"The name {name!r} refers to a Tensor which does not exist. "
                f"The operation, {op_name!r}, does not exist in the graph."
            )
            raise MissingNameError(message, op_name, self._by_name)
        if int(index_text) >= len(op.outputs):
            raise MissingNameError(
                f"The name {name!r} refers to a Tensor which does not exist. "
                f"The operation, {op_name!r}, exists but only has {len(op.outputs)} outputs."
            )
        return op.outputs[int(index_text)]

    def _operation_exists(self, name: str) -> bool:
        return name in self._by_name

    # ------------------------------------------------------------------ feeds and fetches
    def prevent_feeding(self, tensor: Tensor) -> None:
        """Marks a tensor as one that no step may feed."""
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        """Whether a step may feed the tensor; see `prevent_feeding`."""
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Operation) -> None:
        """Marks an operation as one that no step may fetch."""
        self._unfetchable.add(op)

    def is_fetchable(self, tensor_or_op: Tensor | Operation) -> bool:
        """Whether a step may fetch it; see `prevent_fetching`."""
        op = tensor_or_op.op if isinstance(tensor_or_op, Tensor) else tensor_or_op
        return op not in self._unfetchable

    # ------------------------------------------------------------------ collections
    def add_to_collection(self, name: str, value: object) -> None:
        """Appends `value` to the collection `name`, which is created with its first item.

        Raises:
            RuntimeError: the graph is finalized.
        """
        self._check_not_finalized()
        with self._lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: str | Iterable[str], value: object) -> None:
        """`names`: one name or several; a repeated name counts once."""
        for name in (names,) if isinstance(names, str) else dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: str) -> list[Any]:
        """The collection itself: changes to the list change the graph."""
        with self._lock:
            return self._collections.setdefault(name, [])

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """A copy of the collection; with `scope`, those items whose name matches that prefix (a regular expression)."""
        with self._lock:
            items = list(self._collections.get(name, []))
        if scope is None:
            return items
        matches = re.compile(scope).match
        return [item for item in items if hasattr(item, "name") and matches(item.name)]

    def get_all_collection_keys(self) -> list[str]:
        """The names of all collections that exist, as far as they are strings."""
        with self._lock:
            return [k for k in self._collections if isinstance(k, str)]

    @property
    def collections(self) -> list[str]:
        return self.get_all_collection_keys()

    def clear_collection(self, name: str) -> None:
        """Removes the collection `name`; nothing happens where there is none.

        Raises:
            RuntimeError: the graph is finalized.
        """
        self._check_not_finalized()
        with self._lock:
            self._collections.pop(name, None)

    # ------------------------------------------------------------------ functions
    def keep(self, value: object) -> None:
        """Keeps `value` as long as the outermost graph: operations name it in an attribute, and do not hold it."""
        self._outermost()._kept.append(value)

    @property
    def _c_graph(self) -> Graph:
        """What stands for the graph in calls of TensorFlow's wrapped C library."""
        return self

    def _get_control_flow_context(self) -> object:
        """The loop or conditional that is being built, for programs that ask: none, since its body is another graph."""
        return None

    def _outermost(self) -> Graph:
        graph = self
        while graph.outer_graph is not None:
            graph = graph.outer_graph
        return graph

    def add_function(self, name: str, body: Graph) -> str:
        """Puts a function graph into the library, under a name made unique; returns that name.

        A graph and the bodies of its functions share one library, that of the outermost graph.
        """
        library = self._outermost()
        with library._lock:
            free = free_name(name, library._functions)
            library._functions[free] = body
            return free

    def get_function(self, name: str) -> Graph:
        """The function graph of that name.

        Raises:
            KeyError: no such function.
        """
        functions = self._outermost()._functions
        if name not in functions:
            raise KeyError(f"the graph has no function {name!r}; it has {sorted(functions)[:10]}")
        return functions[name]

    @property
    def functions(self) -> dict[str, Graph]:
        """A copy of the library: name -> function graph."""
        return dict(self._outermost()._functions)

    # ------------------------------------------------------------------ defaults
    @property
    def seed(self) -> int | None:
        """The graph-level random seed."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Makes this the default graph of the current thread inside the block.

        Returns:
            A context manager, which gives the graph.

        Raises:
            nothing

        Example:
            >>> with tf.Graph().as_default() as graph:
            ...     x = tf.constant(1.0)
            >>> x.graph is graph
            True
        """
        with default_graphs.enter(self):
            yield self

    def switch_to_thread_local(self) -> None:
        """Scopes are always thread-local here; kept for programs that ask."""


def output_dtypes(op_def: OpDef, attrs: Mapping[str, Any]) -> list[DType]:
    """The dtypes of all outputs of an operation with these attributes, flat."""
    return arg_dtypes(op_def.outputs, attrs)


def arg_dtypes(args: Iterable[ArgDef], attrs: Mapping[str, Any]) -> list[DType]:
    """The dtypes of all tensors of some inputs or outputs of an operation with these attributes, flat.

    Raises:
        ValueError: an attribute says that an argument stands for more tensors than any operation has.
    """
    dtypes: list[DType] = []
    for arg in args:
        if arg.type_list_attr is not None:
            dtypes.extend(attrs[arg.type_list_attr])
            continue
        dtype: DType = attrs[arg.type_attr] if arg.type_attr is not None else arg.dtype  # type: ignore[assignment]
        count = 1 if arg.number_attr is None else attrs[arg.number_attr]
        if count > _MAX_TENSORS:
            raise ValueError(
                f"{arg.number_attr} = {count} tensors for {arg.name!r} are more than the {_MAX_TENSORS} that an "
                "operation may have; keep them in one tensor"
            )
        dtypes.extend([dtype] * count)
    return dtypes


class _DefaultGraphs(threading.local):
    """The stack of default graphs of a thread, above one global default graph that all threads share."""

    shared: Graph | None = None

    def __init__(self) -> None:
        self.stack: list[Graph] = []

    @contextlib.contextmanager
    def enter(self, graph: Graph) -> Iterator[None]:
        self.stack.append(graph)
        try:
            yield
        finally:
            if self.stack:  # else a `TestCase` has emptied it meanwhile
                if self.stack[-1] is not graph:
                    raise AssertionError("default graphs were left in another order than they were entered")
                self.stack.pop()

    def get(self) -> Graph:
        if self.stack:
            return self.stack[-1]
        if _DefaultGraphs.shared is None:
            _DefaultGraphs.shared = Graph()
        return _DefaultGraphs.shared

    def reset(self) -> None:
        if self.stack:
            raise AssertionError(
                "reset_default_graph() cannot be called inside `with graph.as_default()`; leave the block first"
            )
        _DefaultGraphs.shared = None


default_graphs = _DefaultGraphs()


def get_default_graph() -> Graph:
    """The graph that new operations go to in this thread.

    Returns:
        A `Graph`: that of the innermost ``with graph.as_default()``, or the one that all threads share.

    Raises:
        nothing

    Example:
        >>> tf.constant(1.0).graph is tf.get_default_graph()
        True
    """
    return default_graphs.get()


def reset_default_graph() -> None:
    """Replaces the shared default graph by an empty one.

    Raises:
        AssertionError: called inside a `with graph.as_default()` block.

    Example:
        >>> first = tf.constant(1.0, name="x")
        >>> tf.reset_default_graph()
        >>> tf.constant(1.0, name="x").name, first.graph is tf.get_default_graph()
        ('x:0', False)
    """
    default_graphs.reset()


def op_def_of(type_name: str) -> OpDef:
    """The registered operation type.

    Raises:
        ValueError: there is none.
    """
    op_def = find_op_def(type_name)
    if op_def is None:
        raise ValueError(f"operation type {type_name!r} is not registered")
    return op_def
