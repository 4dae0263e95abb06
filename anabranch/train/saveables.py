"""What a saver saves: variables, parts of partitioned variables, and objects that say themselves how  (§4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.trackables import values_of
from anabranch.core.values import PassedOn
from anabranch.frontend.resources.mutable_tables import (
    MutableLookupInterface,
)
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.growing_parts import GrowingPart, GrowingVariable

#: what is saved: variables, partitioned variables and saveable objects, or a mapping from names to these
VariablesToSave: TypeAlias = Iterable[Any] | Mapping[Any, Any]


class SaveSpec:
    """One tensor of a checkpoint.

    Args:
        tensor: the value to save, or a function that makes the tensor.
        slice_spec: which part of the stored tensor it is, as `SaveSliceInfo.spec`; "" for the whole.
        name: its name in the checkpoint.
        dtype, device: default: those of the tensor.
    """

    def __init__(
        self,
        tensor: Tensor | Callable[[], Tensor],
        slice_spec: str,
        name: str,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> None:
        self._tensor = tensor
        like: Any = tensor
        self.slice_spec = slice_spec
        self.name = name
        if callable(tensor) and (dtype is None or device is None):
            raise AssertionError(f"the save spec {name!r} has a function for its tensor; give dtype and device too")
        self.dtype: DType = as_dtype(like.dtype if dtype is None else dtype).base_dtype
        self.device: str = like.device if device is None else device

    @property
    def tensor(self) -> Tensor:
        """The value to save."""
        made: Tensor = self._tensor() if callable(self._tensor) else self._tensor
        return made


class SaveableObject:
    """Something that is saved as one or several tensors. Subclass it to save what is no variable.

    Args:
        op: the object or tensor behind it.
        specs: the tensors.
        name: the name under which a saver knows it.
    """

    #: whether it is read before anything else of a checkpoint, which has to have what this says
    is_read_first: ClassVar[bool] = False

    def __init__(self, op: PassedOn, specs: list[SaveSpec], name: str) -> None:
        self.op = op
        self.specs = specs
        self.name = name

    @property
    def device(self) -> str:
        """The device of the first tensor."""
        return self.specs[0].device

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        """An operation that puts restored tensors in place.

        Args:
            restored_tensors: one for each of `specs`.
            restored_shapes: the shapes to give them first; None to take them as they are.

        Raises:
            ValueError: always, here: a subclass says how.
        """
        raise ValueError("Calling an abstract method.")


class VariableSaveable(SaveableObject):
    """A variable, or a part of a partitioned one."""

    def __init__(self, variable: Variable, name: str) -> None:
        info = variable._get_save_slice_info()
        self.variable = variable
        spec = SaveSpec(self._read, "" if info is None else info.spec, name, variable.dtype, variable.device)
        super().__init__(variable, [spec], name)

    def _read(self) -> Tensor:
        """The value; of a variable with a device, on a processor of its task, which writes it."""
        variable = self.variable
        if not variable.device:
            tensor: Tensor = raw.ReadVariableOp(variable.handle, dtype=variable.dtype)
            return tensor
        graph = variable.graph
        with graph.device(None), graph.device(variable.device):
            value = raw.ReadVariableOp(variable.handle, dtype=variable.dtype)
            with graph.device("/device:CPU:0"):
                on_processor: Tensor = raw.Identity(value)
                return on_processor

    @property
    def full_name(self) -> str:
        """The variable's own name, that of the whole for a part; `name` may be another."""
        info = self.variable._get_save_slice_info()
        return str((info.full_name if info is not None else None) or self.variable._shared_name)

    @property
    def shape(self) -> TensorShape:
        """The variable's static shape."""
        shape: TensorShape = self.variable.shape
        return shape

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = raw.Reshape(value, restored_shapes[0])
        assigned: Operation = raw.AssignVariableOp(self.variable.handle, value, name="Assign")
        return assigned


class TableSaveable(SaveableObject):
    """A lookup table that steps change: its keys and its values."""

    def __init__(self, table: MutableLookupInterface, name: str) -> None:
        self.table = table
        keys, values = table.export()
        specs = [SaveSpec(keys, "", f"{name}-keys"), SaveSpec(values, "", f"{name}-values")]
        super().__init__(table, specs, name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        keys, values = restored_tensors
        restored: Operation = self.table.restore_from(keys, values)
        return restored


class GrowingPartSaveable(SaveableObject):
    """A part of a growing table: its keys, rows and slots, in buckets, of which other numbers of parts can be made."""

    def __init__(self, part: GrowingPart) -> None:
        self._part = part
        with get_default_graph().colocate_with(part.variable):
            buckets = [(bucket, part.saved(bucket)) for bucket in part.numbers]
        self._names = [*buckets[0][1]]
        specs = [
            SaveSpec(tensor, "", f"{part.table}/bucket_{bucket}/{name}")
            for bucket, tensors in buckets
            for name, tensor in tensors.items()
        ]
        super().__init__(part, specs, part.name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        count = len(self._names)
        buckets = [restored_tensors[at : at + count] for at in range(0, len(restored_tensors), count)]
        return self._part.restored([dict(zip(self._names, bucket, strict=True)) for bucket in buckets])


# ---------------------------------------------------------------------- from var_list
def all_saveable_objects(scope: str | None = None) -> list[Any]:
    """The variables and other things of the default graph that a saver saves by default."""
    graph = get_default_graph()
    # the parts of growing tables are among the others: they save their variables themselves
    variables = [v for v in graph.get_collection("variables", scope) if not isinstance(v, GrowingVariable)]
    return variables + graph.get_collection("saveable_objects", scope)


def named_saveables(var_list: VariablesToSave) -> dict[str, Any]:
    """The things to save by their names in a checkpoint.

    Args:
        var_list: variables, partitioned variables and saveable objects, which go by their own names; or a mapping from
            names to these, or to lists of the parts of a partitioned variable.

    Raises:
        ValueError: two of them have the same name.
        TypeError: something given cannot be saved.
    """
    if isinstance(var_list, Mapping):
        return {str(name): _checked(str(name), value) for name, value in var_list.items()}
    if not isinstance(var_list, Iterable) or isinstance(var_list, str):
        raise TypeError(f"Variables to save should be passed in a dict or a list: {var_list!r}")
    named: dict[str, Any] = {}
    for item in sorted(var_list, key=lambda v: str(getattr(v, "name", v))):
        if isinstance(item, PartitionedVariable):
            _add(named, item.name, list(item))
        elif isinstance(item, Variable) and (info := item._get_save_slice_info()) is not None:
            full_name = info.full_name or item._shared_name
            parts = named.setdefault(full_name, [])
            if not isinstance(parts, list):
                raise ValueError(f"Mixing slices and non-slices with the same name: {full_name}")
            parts.append(item)
        elif isinstance(item, GrowingVariable):
            raise TypeError(f"{item.name} belongs to a growing table, which is saved as a whole: leave it out")
        elif isinstance(item, Variable):
            _add(named, item._shared_name, item)
        else:
            _add(named, getattr(item, "name", str(item)), _checked(str(getattr(item, "name", item)), item))
    return named


def _add(named: dict[str, Any], name: str, item: object) -> None:
    if name in named:
        raise ValueError(f"At least two variables have the same name: {name}")
    named[name] = item


def _checked(name: str, item: object) -> Any:
    if isinstance(item, PartitionedVariable):
        return list(item)
    if isinstance(item, list | tuple) and item and all(isinstance(part, Variable) for part in item):
        missing = [part.name for part in item if part._get_save_slice_info() is None]
        if missing:
            raise ValueError(
                f"Slices must all be slices of one variable: {missing} say nothing of what they are part of"
            )
        return list(item)
    if isinstance(item, MutableLookupInterface):
        return TableSaveable(item, name)
    if isinstance(item, GrowingPart):
        return GrowingPartSaveable(item)
    if isinstance(item, Variable | SaveableObject):
        return item
    made = _of_trackable(name, item)
    if made is not None:
        return made
    raise TypeError(
        f"names_to_saveables must be a dict mapping string names to variables. Not a variable: {name}: {item!r}"
    )


def _of_trackable(name: str, item: object) -> SaveableObject | None:
    """What an object of another class has as its only value; None if it has none, or several."""
    values = list(values_of(item).values())
    if len(values) != 1 or not callable(values[0]):
        return None
    made = values[0](name=name)
    return made if isinstance(made, SaveableObject) else None


def saveable_objects(named: Mapping[str, Any]) -> list[SaveableObject]:
    """One object for each variable, part, or object, sorted by name.

    Raises:
        ValueError: something is named twice.
    """
    saveables: list[SaveableObject] = []
    seen: dict[Any, str] = {}
    for name, item in sorted(named.items()):
        for part in item if isinstance(item, list) else [item]:
            underlying = part.op if isinstance(part, SaveableObject) else part
            if underlying in seen:
                raise ValueError(
                    "The same saveable will be restored with two names: "
                    f"{seen[underlying]} and {name}; give each variable once"
                )
            seen[underlying] = name
            saveables.append(part if isinstance(part, SaveableObject) else VariableSaveable(part, name))
    return saveables
