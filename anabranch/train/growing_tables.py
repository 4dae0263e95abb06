"""Tables of vectors that get a row for each key when it comes, and lose those that come no more  (§4.2).

A part of a table is a variable with rows, and a directory that says which row is whose (`state.row_directory`). A
look-up sends keys to the part that has them, and each distinct row back; gradients stay sparse, and optimizers update
the rows as those of any variable. What the machine of the directory does stands at the top of its module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.embedding import is_elsewhere
from anabranch.frontend.variables.initializers import random_normal_initializer
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.state.row_directory import FIRST_ROW
from anabranch.train.growing_parts import GrowingPart, GrowingVariable

#: for how long a tombstone takes late gradients, unless a program says otherwise
_GRACE: Final = 60.0


class GrowingTable:
    """Vectors by integer key, for more keys than are known beforehand.

    A key gets a row, with initial values, when `admission` look-ups have named it; before that it reads `default`, and
    has no gradient. Rows are trained like those of a variable; slots of optimizers grow beside them. `evict` takes the
    rows of keys that were not seen for long, never one that a running step has looked up. Savers save all of it, and
    restore it to any number of parts up to `buckets`. Workers that build it under one name share it.

    Time is in seconds, by the clock of the task that has a part, or is what `clock` says, such as the global step.

    Args:
        name: of the table; the name scope counts.
        dim: the length of a row.
        dtype: of the rows.
        initializer: (shape, dtype) -> rows; default: normal with a standard deviation of 1 / sqrt(dim).
        default: what keys without a row read, [dim]; default: zeros.
        admission: how many look-ups must have named a key before it gets a row, >= 1.
        parts: how many there are; under a `replica_device_setter` each goes to the next parameter server.
        clock: a scalar tensor or variable that says the time.
        grace: for how long the row of an evicted key takes late gradients before another key may have it, in units of
            the clock: longer than a gradient can be under way outside of its step, in an accumulator for instance.
        buckets: what checkpoints are made of; >= `parts`.

    Attributes:
        name: as it became unique.
        variables: the rows of each part, of shape [None, dim].

    Raises:
        ValueError: a number is out of range, `default` has another shape, or the initializer uses a tensor from outside
            or needs to know the number of rows.

    Example:
        >>> table = tf.train.GrowingTable("words", 2, initializer=tf.ones_initializer())
        >>> step = tf.train.AdagradOptimizer(1.0).minimize(tf.reduce_sum(table.lookup([7, -3, 7])))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run([table.size(), table.lookup([7, 4], training=False)])
        [np.int64(2), array([[0.01227039, 0.01227039],
               [0.        , 0.        ]], dtype=float32)]
    """

    def __init__(
        self,
        name: str,
        dim: int,
        dtype: DTypeLike = np.float32,
        initializer: Callable[..., Any] | None = None,
        default: Sequence[float] | None = None,
        admission: int = 1,
        parts: int = 1,
        clock: TensorLike | None = None,
        grace: float = _GRACE,
        buckets: int = 16,
    ) -> None:
        if min(dim, admission, parts) < 1 or grace < 0 or buckets < parts:
            raise ValueError(
                f"growing table {name!r}: dim ({dim}), admission ({admission}) and parts ({parts}) must be 1 or more, "
                f"grace ({grace}) 0 or more, and buckets ({buckets}) as many as parts"
            )
        kind = as_dtype(dtype).as_numpy_dtype
        row = np.zeros(dim, kind) if default is None else np.asarray(default, kind)
        if row.shape != (dim,):
            raise ValueError(f"growing table {name!r}: default must have shape [{dim}], got {[*row.shape]}")
        if initializer is None:
            initializer = random_normal_initializer(stddev=dim**-0.5)
        graph = get_default_graph()
        with graph.name_scope(name) as scope:
            self.name = scope.rstrip("/")
        self._clock, self._buckets, self._dim = clock, buckets, dim
        initial = np.zeros((FIRST_ROW, dim), kind)
        initial[:] = row
        with graph.name_scope(None), graph.control_dependencies(None):
            self._parts = [
                GrowingPart(
                    self.name, number, parts, initial, initializer, buckets, admission=admission, grace=float(grace)
                )
                for number in range(parts)
            ]
        self.variables: list[GrowingVariable] = [part.variable for part in self._parts]
        for part in self._parts:
            graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, part)

    def lookup(self, keys: TensorLike, training: bool = True, name: str | None = None) -> Tensor:
        """The rows of keys.

        Args:
            keys: int64 or int32, of any shape.
            training: whether the keys are seen by this, and may get rows: False to evaluate or to serve.
            name: of the operation.

        Returns:
            keys.shape + [dim].
        """
        with name_scope(name, f"{self.name}_lookup", [keys]):
            wanted = convert_to_tensor(keys, name="keys")
            if wanted.dtype.name == "int32":
                wanted = raw.Cast(wanted, DstT=np.int64)
            if len(self._parts) == 1 and not is_elsewhere(self.variables, wanted):
                with get_default_graph().colocate_with(self.variables[0]):
                    return self._parts[0].rows(wanted, self._now(), training)
            # each distinct row travels once
            split, places = raw._SplitKeys(wanted, parts=len(self._parts), buckets=self._buckets)
            rows = []
            for part, its_keys in zip(self._parts, split, strict=True):
                with get_default_graph().colocate_with(part.variable):
                    rows.append(part.rows(its_keys, self._now(), training))
            result: Tensor = raw.GatherV2(raw.ConcatV2(rows, 0) if len(rows) > 1 else rows[0], places, 0)
            return result

    def _now(self) -> Tensor:
        now: Tensor
        if self._clock is None:
            now = raw.Timestamp()
            return now
        now = convert_to_tensor(self._clock)
        return now if now.dtype.name == "float64" else raw.Cast(now, DstT=np.float64)

    def evict(self, unseen_for: TensorLike, name: str | None = None) -> Tensor:
        """Evicts the keys that were not seen for longer than that; one task of a cluster should do so now and then.

        It takes time in proportion to the table, which grows no smaller: the rows are used for new keys.

        Args:
            unseen_for: seconds, or in units of the clock.
            name: of the operation.

        Returns:
            How many keys were evicted, int64 [].
        """
        with name_scope(name, f"{self.name}_evict", [unseen_for]):
            long = raw.Cast(convert_to_tensor(unseen_for), DstT=np.float64)
            evicted = []
            for part in self._parts:
                with get_default_graph().colocate_with(part.variable):
                    evicted.append(part.evict(long, self._now()))
            total: Tensor = raw.AddN(evicted)
            return total

    def size(self, name: str | None = None) -> Tensor:
        """How many keys have a row, int64 []."""
        with name_scope(name, f"{self.name}_size", []):
            total: Tensor = raw.AddN([part.size for part in self._parts])
            return total
