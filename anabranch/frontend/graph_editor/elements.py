"""Operations and tensors of a graph as lists, structures of them, and the names of placeholders that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, SupportsIndex, TypeAlias, TypeVar, overload

from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import PassedOn
from anabranch.frontend.arrays.constants import placeholder
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor

_Item = TypeVar("_Item")
Element: TypeAlias = Operation | Tensor
#: what stands for operations: one, several, or all of a graph
OperationsLike: TypeAlias = Operation | Graph | Iterable[Element]
#: what stands for tensors
TensorsLike: TypeAlias = Tensor | Graph | Iterable[Element]

_PREFIX: Final = "geph"


class ListView(Sequence[_Item], Generic[_Item]):
    """A list that cannot be changed through this view.

    Args:
        list_: the list.

    Raises:
        TypeError: it is no list.
    """

    def __init__(self, list_: list[_Item]) -> None:
        if not isinstance(list_, list):
            raise TypeError(f"Expected a list, got: {type(list_)}.")
        self._list = list_

    def __len__(self) -> int:
        return len(self._list)

    @overload
    def __getitem__(self, index: SupportsIndex) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Item]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> _Item | list[_Item]:
        return self._list[index]

    def __add__(self, other: Iterable[_Item]) -> list[_Item]:
        return [*self._list, *other]

    def __repr__(self) -> str:
        return f"ListView({self._list!r})"


# ---------------------------------------------------------------------- lists
def concatenate_unique(la: list[_Item], lb: Iterable[_Item]) -> list[_Item]:
    """Appends to a list what of another is not in it yet, in order; returns the first."""
    present = set(la)
    for item in lb:
        if item not in present:
            present.add(item)
            la.append(item)
    return la


def is_iterable(obj: object) -> bool:
    """Whether something can be iterated over. A tensor counts as one thing."""
    if isinstance(obj, Tensor | Operation):
        return False
    try:
        iter(obj)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def get_unique_graph(
    tops: Graph | Iterable[Element],
    check_types: type[Any] | Iterable[type[Any]] | None = None,
    none_if_empty: bool = False,
) -> Graph | None:
    """The graph to which all of some operations and tensors belong.

    Args:
        check_types: the classes that they may be of; default: both.
        none_if_empty: whether there may be none at all, which gives None.

    Raises:
        TypeError: one is of another class, or `tops` is no list.
        ValueError: they belong to several graphs, or there are none.
    """
    if isinstance(tops, Graph):
        return tops
    if not is_iterable(tops):
        raise TypeError(f"{type(tops)} is not iterable")
    if check_types is None:
        allowed: tuple[type[Any], ...] = (Operation, Tensor)
    else:
        allowed = (check_types,) if isinstance(check_types, type) else tuple(check_types)
    graph: Graph | None = None
    for top in tops:
        if not isinstance(top, allowed):
            names = ", ".join(one.__name__ for one in allowed)
            raise TypeError(f"Expected a type in ({names}), got: {type(top)}")
        if graph is not None and top.graph is not graph:
            raise ValueError(f"{top.name} does not belong to the graph of the others")
        graph = top.graph
    if graph is None and not none_if_empty:
        raise ValueError("Can't find the unique graph of an empty list")
    return graph


def check_graphs(*args: PassedOn) -> None:
    """Checks that tensors, operations or views are of one graph; a view without operations is of any.

    Raises:
        ValueError: they are not.
    """
    graph = None
    for number, arg in enumerate(args):
        if arg.graph is None:
            continue
        if graph is not None and arg.graph is not graph:
            raise ValueError(f"Argument[{number}]: Wrong graph!")
        graph = arg.graph


def make_list_of_op(
    ops: OperationsLike, check_graph: bool = True, allow_graph: bool = True, ignore_ts: bool = False
) -> list[Operation]:
    """Operations as a new list.

    Args:
        ops: an operation, several, or a graph.
        check_graph: whether they must be of one graph.
        allow_graph: whether a graph may stand for all that it has.
        ignore_ts: whether tensors among them are left out, instead of being refused.

    Raises:
        TypeError: something else is among them.
        ValueError: they are of several graphs.
    """
    return _listed(ops, Operation, check_graph, allow_graph, ignore_ts, Graph.get_operations)


def make_list_of_t(
    ts: TensorsLike, check_graph: bool = True, allow_graph: bool = True, ignore_ops: bool = False
) -> list[Tensor]:
    """Tensors as a new list.

    Args:
        ts: a tensor, several, or a graph.
        check_graph: whether they must be of one graph.
        allow_graph: whether a graph may stand for all that it has.
        ignore_ops: whether operations among them are left out, instead of being refused.

    Raises:
        TypeError: something else is among them.
        ValueError: they are of several graphs.
    """
    return _listed(ts, Tensor, check_graph, allow_graph, ignore_ops, get_tensors)


def _listed(
    elements: Element | Graph | Iterable[Element],
    kind: type[_Item],
    check_graph: bool,
    allow_graph: bool,
    ignore_others: bool,
    all_of: Callable[[Graph], list[_Item]],
) -> list[_Item]:
    if isinstance(elements, Graph):
        if not allow_graph:
            raise TypeError("allow_graph is False: cannot convert a tf.Graph.")
        return all_of(elements)
    listed: list[Any] = (
        [elements] if isinstance(elements, Operation | Tensor) or not is_iterable(elements) else list(elements)
    )
    if check_graph:
        get_unique_graph(listed, None if ignore_others else kind, none_if_empty=True)
    return [element for element in listed if isinstance(element, kind)]


def get_tensors(graph: Graph) -> list[Tensor]:
    """All tensors of a graph, in the order of their operations.

    Raises:
        TypeError: it is no graph.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"Expected a graph, got: {type(graph)}")
    return [tensor for op in graph.get_operations() for tensor in op.outputs]


def get_generating_ops(ts: TensorsLike) -> list[Operation]:
    """The operations that compute tensors, one for each."""
    return [tensor.op for tensor in make_list_of_t(ts, allow_graph=False)]


def get_consuming_ops(ts: TensorsLike) -> list[Operation]:
    """The operations that take any of some tensors, each once."""
    return list(dict.fromkeys(op for tensor in make_list_of_t(ts, allow_graph=False) for op in tensor.consumers()))


class ControlOutputs:
    """Which operations wait for which by control edges.

    Args:
        graph: the graph.

    Raises:
        TypeError: it is no graph.
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
        self._graph = graph
        self._control_outputs: dict[Operation, list[Operation]] = {}
        self._version: tuple[int, int] | None = None
        self.update()

    def update(self) -> ControlOutputs:
        """Looks at the graph again if it has changed; returns this object."""
        version = (self._graph.version, self._graph.structure_version)
        if version != self._version:
            waiting = {op: op.control_outputs for op in self._graph.get_operations()}
            self._control_outputs = {op: after for op, after in waiting.items() if after}
            self._version = version
        return self

    def get_all(self) -> dict[Operation, list[Operation]]:
        """For each operation that others wait for, these."""
        return self._control_outputs

    def get(self, op: Operation) -> Sequence[Operation]:
        """The operations that wait for one."""
        return self._control_outputs.get(op, ())

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph


# ---------------------------------------------------------------------- structures
def _leaves(tree: Structure) -> Iterator[Any]:
    if not is_iterable(tree):
        yield tree
        return
    for child in tree.values() if isinstance(tree, Mapping) else tree:
        yield from _leaves(child)


def flatten_tree(tree: Structure, leaves: list[Any] | None = None) -> list[Any]:
    """The leaves of nested lists, tuples and dictionaries, appended to `leaves` where that is given."""
    found = [] if leaves is None else leaves
    found.extend(_leaves(tree))
    return found


def transform_tree(tree: Structure, fn: Callable[[Any], Any], iterable_type: type[Any] = tuple) -> Structure:
    """A structure like another, with a function of each leaf.

    Args:
        iterable_type: what becomes of what is neither a list, a tuple nor a dictionary, such as a generator.
    """
    if not is_iterable(tree):
        return fn(tree)
    if isinstance(tree, dict):
        made = tree.copy()
        made.update((key, transform_tree(child, fn, iterable_type)) for key, child in tree.items())
        return made
    children = [transform_tree(child, fn, iterable_type) for child in tree]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*children)
    return type(tree)(children) if isinstance(tree, list | tuple) else iterable_type(children)


# ---------------------------------------------------------------------- names
def scope_finalize(scope: str) -> str:
    """A scope with a slash at its end; "" is the outermost."""
    return f"{scope}/" if scope and not scope.endswith("/") else scope


def scope_dirname(scope: str) -> str:
    """A name up to its last slash, which is included."""
    return scope[: scope.rfind("/") + 1]


def scope_basename(scope: str) -> str:
    """A name from its last slash on."""
    return scope[scope.rfind("/") + 1 :]


def placeholder_name(t: Tensor | None = None, scope: str | None = None, prefix: str = _PREFIX) -> str:
    """The name of a placeholder that stands for a tensor.

    Args:
        t: the tensor; None: the placeholder is for none.
        scope: where it is to be; default: where the tensor is. "" is the outermost scope.
        prefix: what the name begins with.

    Raises:
        TypeError: `t` is no tensor.

    Example:
        >>> tf.contrib.graph_editor.placeholder_name(tf.constant(1.0, name="a/b"))
        'a/geph__b_0'
    """
    within = None if scope is None else scope_finalize(scope)
    if t is None:
        return (within or "") + prefix
    if not isinstance(t, Tensor):
        raise TypeError(f"Expected a tf.Tensor, got: {type(t)}")
    if within is None:
        within = scope_dirname(t.op.name)
    base = scope_basename(t.op.name)
    return within + (base if base.startswith(f"{prefix}__") else f"{prefix}__{base}_{t.value_index}")


def make_placeholder_from_tensor(t: Tensor, scope: str | None = None, prefix: str = _PREFIX) -> Tensor:
    """A placeholder of a tensor's type and shape, in the default graph; its name is `placeholder_name`.

    Raises:
        TypeError: `t` is no tensor.
    """
    return placeholder(t.dtype, t.shape, placeholder_name(t, scope, prefix))


def make_placeholder_from_dtype_and_shape(
    dtype: DTypeLike, shape: ShapeLike | None = None, scope: str | None = None, prefix: str = _PREFIX
) -> Tensor:
    """A placeholder that stands for no tensor yet, in the default graph; its name is `placeholder_name`."""
    return placeholder(dtype, shape, placeholder_name(scope=scope, prefix=prefix))


def get_predefined_collection_names() -> list[str]:
    """The names of the collections of `tf.GraphKeys`."""
    return [value for key, value in vars(GraphKeys).items() if not key.startswith("_") and isinstance(value, str)]


def find_corresponding_elem(target: Element, dst_graph: Graph, dst_scope: str = "", src_scope: str = "") -> Element:
    """The tensor or operation of another graph, or of another scope, that has the same name.

    Args:
        dst_graph: where it is.
        dst_scope: what its name has in front.
        src_scope: what the name of `target` has in front instead.

    Raises:
        TypeError: `target` is neither a tensor nor an operation.
        ValueError: its name does not begin with `src_scope`.
        KeyError: there is no such name.
    """
    if not isinstance(target, Tensor | Operation):
        raise TypeError(f"Expected tf.Tensor or tf.Operation, got: {type(target)}")
    within = scope_finalize(src_scope)
    if not target.name.startswith(within):
        raise ValueError(f"{target.name} does not start with {within}")
    name = scope_finalize(dst_scope) + target.name[len(within) :]
    if isinstance(target, Tensor):
        return dst_graph.get_tensor_by_name(name)
    return dst_graph.get_operation_by_name(name)


def find_corresponding(targets: Structure, dst_graph: Graph, dst_scope: str = "", src_scope: str = "") -> Structure:
    """`find_corresponding_elem` for every leaf of a structure."""
    return transform_tree(targets, lambda one: find_corresponding_elem(one, dst_graph, dst_scope, src_scope))
