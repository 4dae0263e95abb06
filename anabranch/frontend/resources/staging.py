"""Staging areas and critical sections as users see them  (WP4.6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.core import nest
from anabranch.core.dtypes import DType, int32, int64
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import DTypes
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.frontend.resources.components import as_name_list, as_type_list, in_order
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: which components of an element: their numbers, or their names where the area has names
StagedAt: TypeAlias = "int | str | Sequence[int] | Sequence[str] | TensorLike"


class BaseStagingArea:
    """A buffer between steps: what one step puts is there when the next one begins. Use a subclass.

    Args:
        dtypes: one per component.
        shapes: one per component, or None.
        names: one per component, or None: with names, elements are dictionaries.
        shared_name: of the area in the task; default: one of its own.
        capacity: how many elements it holds; 0: any number.
        memory_limit: how many bytes it holds; 0: any number.

    Raises:
        ValueError: the lists have different lengths, or a limit is negative.
    """

    _numbers = 0
    _lock = threading.Lock()

    def __init__(
        self,
        dtypes: DTypes,
        shapes: Sequence[ShapeLike] | None = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        if shared_name is None:
            with BaseStagingArea._lock:
                BaseStagingArea._numbers += 1
                number = BaseStagingArea._numbers
            shared_name = get_default_graph().unique_name(f"{type(self).__name__}_{number}")
        if not isinstance(shared_name, str):
            raise ValueError(f"shared_name must be a string, got {shared_name!r}")
        self._name = shared_name
        self._dtypes = as_type_list(dtypes)
        if shapes is not None and len(shapes) != len(self._dtypes):
            raise ValueError("StagingArea shapes must be the same length as dtypes")
        self._shapes = [TensorShape(s) for s in shapes or [None] * len(self._dtypes)]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError("StagingArea names must be the same length as dtypes")
        self._names = as_name_list(names, self._dtypes)
        if capacity < 0 or memory_limit < 0:
            raise ValueError(f"capacity and memory_limit must be >= 0, got {capacity} and {memory_limit}")
        self._capacity = capacity
        self._memory_limit = memory_limit
        with name_scope(f"{self._name}_root"):
            self._coloc_op = raw.NoOp()

    @property
    def name(self) -> str:
        """The name of the area in the task."""
        return self._name

    @property
    def dtypes(self) -> list[DType]:
        """One per component."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """One per component."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """One per component, or None."""
        return self._names

    @property
    def capacity(self) -> int:
        """How many elements it holds; 0: any number."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """How many bytes it holds; 0: any number."""
        return self._memory_limit

    def _attrs(self, types: Sequence[DType] | None = None) -> dict[str, Any]:
        return {
            "dtypes": list(self._dtypes if types is None else types),
            "shared_name": self._name,
            "capacity": self._capacity,
            "memory_limit": self._memory_limit,
        }

    def _checked(self, values: Sequence[Any], places: Sequence[int]) -> list[Tensor]:
        tensors = []
        for place, value in zip(places, values, strict=True):
            tensor = convert_to_tensor(value, self._dtypes[place])
            if not tensor.shape.is_compatible_with(self._shapes[place]):
                raise ValueError(
                    f"component {place} of staging area {self._name!r} has shape {self._shapes[place]}, got "
                    f"{tensor.shape}"
                )
            tensors.append(tensor)
        return tensors

    def _returned(self, tensors: Sequence[Tensor], places: Sequence[int]) -> Any:
        with get_default_graph().control_dependencies(None):
            for tensor, place in zip(tensors, places, strict=True):
                tensor.set_shape(self._shapes[place])
        if self._names:
            return {self._names[p]: t for p, t in zip(places, tensors, strict=True)}
        return list(tensors)


class StagingArea(BaseStagingArea):
    """A line of elements. Arguments: see `BaseStagingArea`."""

    def put(self, values: Structure, name: str | None = None) -> Operation:
        """An operation that adds an element; waits for room.

        Raises:
            ValueError: the number or a shape of components is wrong.
        """
        parts = in_order(values, self._names, "StagingArea")
        if len(parts) != len(self._dtypes):
            raise ValueError(f"Unexpected number of inputs {len(parts)} vs {len(self._dtypes)}")
        with name_scope(name, f"{self._name}_put", parts) as scope:
            tensors = self._checked(parts, range(len(parts)))
            attrs = self._attrs()
            result: Operation = raw.Stage(tensors, name=scope, **attrs)
            return result

    def get(self, name: str | None = None) -> nest.Structure:
        """The oldest element, taken out: a list, or a dictionary by name; waits for one."""
        components = raw.Unstage(name=name or f"{self._name}_get", **self._attrs())
        return self._returned(components, range(len(self._dtypes)))

    def peek(self, index: TensorLike, name: str | None = None) -> nest.Structure:
        """The element at a position, which stays where it is; waits for it."""
        components = raw.StagePeek(convert_to_tensor(index, int32), name=name or f"{self._name}_peek", **self._attrs())
        return self._returned(components, range(len(self._dtypes)))

    def size(self, name: str | None = None) -> Tensor:
        """How many elements are in it, an int32."""
        result: Tensor = raw.StageSize(name=name or f"{self._name}_size", **self._attrs())
        return result

    def clear(self, name: str | None = None) -> Operation:
        """An operation that forgets all elements."""
        result: Operation = raw.StageClear(name=name or f"{self._name}_clear", **self._attrs())
        return result


class MapStagingArea(BaseStagingArea):
    """Elements by number, put and taken whole or component by component.

    Args:
        ordered: whether `get` without a number takes the smallest first.
        others: see `BaseStagingArea`.
    """

    def __init__(
        self,
        dtypes: DTypes,
        shapes: Sequence[ShapeLike] | None = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        ordered: bool = False,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._prefix = "OrderedMap" if ordered else "Map"

    def _op(self, name: str) -> Any:
        return getattr(raw, self._prefix + name)

    def _places(self, indices: StagedAt | None) -> list[int]:
        if indices is None:
            return list(range(len(self._dtypes)))
        given: list[Any] = list(indices) if isinstance(indices, list | tuple) else [indices]
        if all(isinstance(i, str) for i in given):
            if self._names is None:
                raise ValueError(f"String indices provided {given}, but this Staging Area was not created with names.")
            return [self._names.index(i) for i in given]
        return [int(i) for i in given]

    def put(
        self, key: TensorLike, vals: Structure, indices: StagedAt | None = None, name: str | None = None
    ) -> Operation:
        """An operation that gives components of the element `key`; waits for room.

        Args:
            vals: a list, or a dictionary by name, which may have some components only.
            indices: which components, if `vals` is a list.

        Raises:
            ValueError: the components are not those of the area.
        """
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            unknown = sorted(set(vals) - set(self._names))
            if unknown:
                raise ValueError(f"Keys in dictionary to put do not match names of staging area: {unknown}")
            chosen = [n for n in self._names if n in vals]
            values, places = [vals[n] for n in chosen], self._places(chosen)
        else:
            if self._names:
                raise ValueError("You must enqueue a dictionary in a staging area with names")
            values = list(vals) if isinstance(vals, list | tuple) else [vals]
            if indices is None and len(values) != len(self._dtypes):
                raise ValueError("Indices must be supplied when inserting a list of tensors that is not complete")
            places = self._places(indices)
        if len(values) != len(places):
            raise ValueError(f"Number of indices '{len(places)}' doesn't match number of values '{len(values)}'")
        with name_scope(name, f"{self._name}_put", values) as scope:
            tensors = self._checked(values, places)
            result: Operation = self._op("Stage")(
                convert_to_tensor(key, int64), convert_to_tensor(places, int32), tensors, name=scope, **self._attrs()
            )
            return result

    def peek(self, key: TensorLike, indices: StagedAt | None = None, name: str | None = None) -> nest.Structure:
        """The element `key`, or some of its components; waits until it is complete."""
        return self._taken("Peek", key, indices, name or f"{self._name}_pop")

    def get(
        self, key: TensorLike | None = None, indices: StagedAt | None = None, name: str | None = None
    ) -> tuple[Tensor, nest.Structure]:
        """The element `key`, or some of its components, taken out; waits until it is complete.

        Args:
            key: its number; None: some complete element.

        Returns:
            A pair: the number, and the components as a list, or as a dictionary by name.
        """
        if key is not None:
            number = convert_to_tensor(key, int64)
            return number, self._taken("Unstage", number, indices, name or f"{self._name}_get")
        places = self._places(indices)
        types = [self._dtypes[p] for p in places]
        taken = self._op("UnstageNoKey")(
            convert_to_tensor(places, int32), name=name or f"{self._name}_get_nokey", **self._attrs(types)
        )
        return taken[0], self._returned(taken[1], places)

    def _taken(self, what: str, key: TensorLike, indices: StagedAt | None, name: str) -> Any:
        places = self._places(indices)
        types = [self._dtypes[p] for p in places]
        number, chosen = convert_to_tensor(key, int64), convert_to_tensor(places, int32)
        components = self._op(what)(number, chosen, name=name, **self._attrs(types))
        return self._returned(components, places)

    def size(self, name: str | None = None) -> Tensor:
        """How many elements are complete, an int32."""
        result: Tensor = self._op("Size")(name=name or f"{self._name}_size", **self._attrs())
        return result

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """How many elements lack components, an int32."""
        result: Tensor = self._op("IncompleteSize")(name=name or f"{self._name}_incomplete_size", **self._attrs())
        return result

    def clear(self, name: str | None = None) -> Operation:
        """An operation that forgets all elements."""
        result: Operation = self._op("Clear")(name=name or f"{self._name}_clear", **self._attrs())
        return result


# ---------------------------------------------------------------------- critical sections
#: collections of a graph: its critical sections, and what is executed in them
CRITICAL_SECTIONS = "critical_sections"
CRITICAL_SECTION_EXECUTIONS = "critical_section_executions"


@dataclass(frozen=True, slots=True)
class Execution:
    """Something executed in a critical section.

    Attributes:
        op: takes the lock.
        handle: of the lock.
        resources: handles of the variables that it uses.
        exclusive_resource_access: whether no other section may use them.
    """

    op: Operation
    handle: Tensor
    resources: frozenset[Tensor]
    exclusive_resource_access: bool


class CriticalSection:
    """A lock: what is executed in it runs in one step at a time.

    Args:
        name: of the operation.
        shared_name: of the lock in the task; default: the name.
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: object = None,
        import_scope: str | None = None,
    ) -> None:
        if critical_section_def is not None:
            raise ValueError("critical sections cannot be made from a definition; import the graph instead")
        with name_scope(name, "CriticalSection", []) as scope, control_dependencies(None):
            lock_name = shared_name if shared_name is not None else scope.rstrip("/")
            self._handle: Tensor = raw.MutexV2(shared_name=lock_name, name=name or "CriticalSection")
        get_default_graph().add_to_collection(CRITICAL_SECTIONS, self)

    @property
    def name(self) -> str:
        """The name of the operation that makes the lock."""
        return self._handle.op.name

    def execute(
        self, fn: Callable[..., Any], exclusive_resource_access: bool = True, name: str | None = None
    ) -> nest.Structure:
        """What `fn` returns, computed while no other step executes anything in this section.

        Args:
            fn: a function without arguments that adds operations.
            exclusive_resource_access: whether the variables used here may be used in no other section.

        Returns:
            Tensors in the structure of what `fn` returns.

        Raises:
            ValueError: `fn` executes something in this section itself, which would wait for ever, or uses a variable
                that another section has for itself.
        """
        with name_scope(name, "critical_section_execute", []):
            graph = get_default_graph()
            lock = raw.MutexLock(self._handle)
            first = len(graph.get_operations())
            with control_dependencies([lock]):
                result = fn()
            made = graph.get_operations()[first:]
            self._check(graph, lock.op, made, exclusive_resource_access)
            _wait_for_arguments(lock.op, made)
            for op in made:  # what was added without regard to control dependencies runs under the lock as well
                if op.type not in {"Const", "MutexLock"} and not op.control_inputs and not op.inputs:
                    op._link_control_input(lock.op)
            flat = [x if isinstance(x, Operation) else convert_to_tensor(x) for x in nest.flatten(result)]
            with control_dependencies([*made, *(x if isinstance(x, Operation) else x.op for x in flat)]):
                released = raw.ConsumeMutexLock(lock)
            with control_dependencies([released]):
                done = [raw.NoOp() if isinstance(x, Operation) else identity(x) for x in flat]
            return nest.pack_sequence_as(result, done)

    def _check(self, graph: Graph, lock: Operation, made: Sequence[Operation], exclusive: bool) -> None:
        used = {t for op in made for t in op.inputs if t.dtype.name == "resource"}
        if any(self._is_mine(handle) for handle in used):
            raise ValueError(
                f"fn attempts to directly access the CriticalSection in which it would be running ({self.name}).  "
                "This is illegal and would cause deadlocks."
            )
        resources = frozenset(t for t in used if t.op.type == "VarHandleOp")
        for other in graph.get_collection(CRITICAL_SECTION_EXECUTIONS):
            both = resources & other.resources
            if both and not self._is_mine(other.handle) and (exclusive or other.exclusive_resource_access):
                raise ValueError(
                    f"This execution would access resources: {[t.name for t in both]}. Either this lock "
                    f"({self.name}) or lock {other.handle.op.name!r} requested exclusive resource access of this "
                    "resource; use one section for both"
                )
        graph.add_to_collection(CRITICAL_SECTION_EXECUTIONS, Execution(lock, self._handle, resources, exclusive))

    def _is_mine(self, handle: Tensor) -> bool:
        if handle is self._handle:
            return True
        return handle.op.type == "MutexV2" and handle.op.attrs["shared_name"] == self._handle.op.attrs["shared_name"]


def _wait_for_arguments(lock: Operation, made: Sequence[Operation]) -> None:
    """Lets a lock be taken after what its section uses is there: that may need the same lock before."""
    inside = {lock, *made, *lock.control_inputs, *(tensor.op for tensor in lock.inputs)}
    used = [tensor.op for op in made for tensor in op.inputs]
    used += [before for op in made for before in op.control_inputs]
    for op in dict.fromkeys(used):
        if op not in inside:
            lock._link_control_input(op)
