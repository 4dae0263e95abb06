"""The parts of a growing table: a variable with the rows, and the directory that says whose they are  (§4.2).

Slots of optimizers are made beside the rows and grow with them. See `train.growing_tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import int64
from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class GrowingVariable(Variable):
    """A variable whose first dimension grows: the rows of a part of a table, or a slot beside them.

    Attributes:
        part: the part.
    """

    part: GrowingPart


class GrowingPart:
    """One part of a table.

    Args:
        name: of the variable.
        number, parts: which part it is, and of how many.
        initial: the rows that belong to no key, [FIRST_ROW, ...]; the dtype and shape of all rows are theirs.
        initializer: makes rows: (shape, dtype) -> tensor.
        buckets: of the table.
        settings: the attributes of the directory.

    Attributes:
        variable: the rows.
        slots: the variables beside it, by their names in checkpoints.
    """

    def __init__(
        self,
        table: str,
        number: int,
        parts: int,
        initial: np.ndarray[Any, Any],
        initializer: Callable[..., Tensor],
        buckets: int,
        **settings: PassedOn,
    ) -> None:
        self.table, self.buckets = table, buckets
        self.numbers = range(number, buckets, parts)
        self._row_shape, self._initializer = initial.shape[1:], initializer
        self.slots: dict[str, GrowingVariable] = {}
        self.variable = variable = self._made(initial, True, f"{table}/part_{number}")
        self.name = variable.op.name
        graph = variable.graph
        with graph.colocate_with(variable), graph.control_dependencies(None):
            with graph.name_scope(f"{self.name}/directory"):
                self.directory: Tensor = raw._RowDirectory(shared_name=self.name, **settings)
                self.size: Tensor = raw._CountRows(self.directory)
            self._fresh = self._fresh_rows()
            # who gives the variable its first value anew has no keys any more
            no_keys = [np.zeros(0, np.int64), np.zeros(0, np.float64), np.zeros([0, 2], np.int64)]
            with graph.control_dependencies([raw._ImportRows(self.directory, *no_keys).op]):
                variable._initializer_op = group(variable.initializer, name=f"{self.name}/begin")

    def _made(self, initial_value: PassedOn, trainable: bool, name: str) -> GrowingVariable:
        shape = TensorShape([None, *self._row_shape])
        made = GrowingVariable(initial_value, trainable=trainable, name=name, validate_shape=False, shape=shape)
        made.part = self
        return made

    def _fresh_rows(self) -> FuncAttr:
        graph = get_default_graph()
        body = FunctionGraph(self.name.replace("/", "_") + "_rows", graph)
        with body.as_default():
            count = body.add_parameter(int64, TensorShape([]), "count")
            body.outputs = [self.fresh(count)]
        if body.captures:
            raise ValueError(
                f"the initializer of the growing table {self.table!r} uses {body.captures[0].name!r}, which is outside "
                "of it: rows are made when keys come, and no step may be needed for that"
            )
        return FuncAttr(graph.add_function(body.name, body))

    def fresh(self, count: Tensor) -> Tensor:
        """So many new rows."""
        shape = raw.ConcatV2([raw.Reshape(count, [1]), np.array(self._row_shape, np.int64)], 0)
        rows = convert_to_tensor(self._initializer(shape, dtype=self.variable.dtype))
        rows.set_shape([None, *self._row_shape])
        return rows

    # ------------------------------------------------------------------ in steps
    def rows(self, keys: Tensor, now: Tensor, counts: bool) -> Tensor:
        """The rows of keys.

        Args:
            keys: int64.
            now: the time, float64.
            counts: whether the keys are seen by this.
        """
        rows, targets, _ = raw._FindRows(self.directory, self.variable.handle, keys, now, counts=counts, f=self._fresh)
        values: Tensor = raw._GatherFoundRows(self.variable.handle, rows, targets, dtype=self.variable.dtype)
        return values

    def evict(self, unseen_for: Tensor, now: Tensor) -> Tensor:
        """Evicts keys; how many they were."""
        evicted: Tensor = raw._EvictRows(self.directory, self.variable.handle, unseen_for, now, f=self._fresh)
        return evicted

    def slot(self, initial_value: PassedOn, name: str) -> GrowingVariable:
        """A variable beside the rows.

        Args:
            initial_value: of the rows that belong to no key, or what makes it; all rows begin with the first.
            name: of the variable.
        """
        slot = self._made(initial_value, False, name)
        self.slots[slot.op.name.removeprefix(f"{self.name}/")] = slot
        return slot

    def attached(self) -> list[Operation]:
        """Operations after which all slots are as long as the rows, and stay so."""
        return [
            raw._AttachSlot(self.directory, self.variable.handle, slot.handle, self._first(slot), f=self._fresh)
            for slot in self.slots.values()
        ]

    @staticmethod
    def _first(slot: GrowingVariable) -> Tensor:
        first: Tensor = raw.StridedSlice(slot.initial_value, [0], [1], [1], shrink_axis_mask=1)
        return first

    # ------------------------------------------------------------------ in checkpoints
    def saved(self, bucket: int) -> dict[str, Tensor]:
        """What is saved of a bucket, by names."""
        keys, seen, rows, counted, _ = raw._ExportRows(self.directory, bucket=bucket, buckets=self.buckets)
        values = {
            name: raw.ResourceGather(variable.handle, rows, dtype=variable.dtype)
            for name, variable in (("rows", self.variable), *self.slots.items())
        }
        return {"keys": keys, "seen": seen, "counted": counted, **values}

    def restored(self, buckets: list[dict[str, Tensor]]) -> Operation:
        """An operation that replaces all that the part has; `buckets` as `saved` gives them, one or more."""
        all_of = {name: _joined([bucket[name] for bucket in buckets]) for name in buckets[0]}
        graph = get_default_graph()
        with graph.colocate_with(self.variable):
            free = raw._ImportRows(self.directory, all_of["keys"], all_of["seen"], all_of["counted"])
            with graph.control_dependencies([free.op]):
                assigned = [self._assigned(self.variable, all_of["rows"], self.fresh(free))]
                for name, slot in self.slots.items():
                    more = raw.ConcatV2([raw.Reshape(free, [1]), np.array(self._row_shape, np.int64)], 0)
                    assigned.append(self._assigned(slot, all_of[name], raw.BroadcastTo(self._first(slot), more)))
            return group(*assigned)

    @staticmethod
    def _assigned(variable: GrowingVariable, values: Tensor, fresh: Tensor) -> Operation:
        whole = raw.ConcatV2([variable.initial_value, values, fresh], 0)
        assigned: Operation = raw.AssignVariableOp(variable.handle, whole)
        return assigned


def _joined(tensors: list[Tensor]) -> Tensor:
    joined: Tensor = raw.ConcatV2(tensors, 0) if len(tensors) > 1 else tensors[0]
    return joined
