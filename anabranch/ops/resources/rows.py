"""Rows of a large table, changed in place: repeated indices combined, with static shapes  (§4.2).

A sparse update must cost what its rows cost, whatever the size of the table. The table is a donated buffer, which a
scatter changes in place; so nothing here may compute on the table as a whole, not even a `where` that keeps the old
value of a step that fails: it is the indices that are moved beyond the end of the table, where a scatter drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.graph.kernel_contexts import StepTracingContext

_OF_NUMPY: Final = (np.ndarray, np.generic)
#: so many indices are put into a set in the time in which NumPy begins to sort
_FEW: Final = 64


def library_of(*values: Array) -> Any:
    """The array library of some values: where a step's kernels run directly, these are NumPy arrays."""
    for value in values:
        if not isinstance(value, _OF_NUMPY):
            return jnp
    return np


def guarded(ctx: StepTracingContext, indices: Array, size: int) -> Any:
    """`indices`, or beyond the end (`size`) when a check of the island does not hold."""
    if ctx.guard is None and isinstance(indices, np.ndarray):
        return indices.astype(np.int64, copy=False)
    wide = library_of(indices).asarray(indices).astype(np.int64)
    return wide if ctx.guard is None else jnp.where(ctx.guard, wide, np.int64(size))


#: what `with_rows` does with the rows of a table -> the same in NumPy, with repeated rows one after the other
_IN_NUMPY: dict[str, np.ufunc] = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def with_rows(how: str, table: Array, at: Array | tuple[Array, ...], updates: Array, unique: bool = False) -> Any:
    """The table with some elements changed; those beyond its end are dropped.

    Args:
        how: "set", "add", "multiply", "min" or "max".
        at: indices along the leading dimensions, none negative.
        updates: one value for each index.
        unique: no index is there twice.
    """
    if library_of(table) is jnp or library_of(*(at if isinstance(at, tuple) else (at,)), updates) is jnp:
        change = getattr(jnp.asarray(table).at[at], how)
        return change(updates, mode="drop", unique_indices=unique)
    new = table.copy()
    _change(new, how, at, updates)
    return new


def _change(table: HostArray, how: str, at: Array | tuple[Array, ...], updates: HostArray) -> None:
    """Changes elements of an array of NumPy's; see `with_rows`."""
    if how == "set" and not isinstance(at, tuple) and at.ndim == 1 and at.size and int(at.max()) < len(table):
        table[at] = updates
        return
    columns = at if isinstance(at, tuple) else (at,)
    inside = columns[0] < table.shape[0]
    for column, size in zip(columns[1:], table.shape[1:], strict=False):
        inside = inside & (column < size)
    if not inside.all():
        columns, updates = tuple(column[inside] for column in columns), updates[inside]
    if how == "set":
        table[columns] = updates
    elif len(columns) == 1 and _are_distinct(columns[0]):
        table[columns] = _IN_NUMPY[how](table[columns], updates)  # the same in a tenth of the time
    else:
        _IN_NUMPY[how].at(table, columns, updates)


def changes_rows(ctx: OperationContext, table: Array, how: np.ufunc | None, indices: Array, updates: Array) -> bool:
    """Whether rows of a variable are changed in its own memory, as a kernel of NumPy's can where it runs on that.

    What `write_rows` does with one row for each index, without all that other cases and compiled kernels need: on a
    parameter server this is most of what an update takes. The indices have been checked.

    Args:
        table: what `ctx.read` gave for the variable.
        how: what it does with a row and its update; None: the update takes the row's place.
        updates: [*indices.shape, *shape of a row]; anything else is left to `write_rows`.
    """
    if not (type(table) is type(indices) is type(updates) is np.ndarray):
        return False
    if updates.shape != (*indices.shape, *table.shape[1:]):
        return False
    at = indices.reshape(-1)
    return ctx.puts_off(partial(_change_rows, table, how, at, updates.reshape(len(at), *table.shape[1:])))


def _change_rows(table: HostArray, how: np.ufunc | None, at: HostArray, rows: HostArray) -> None:
    if how is None:
        table[at] = rows
    elif _are_distinct(at):
        table[at] = how(table.take(at, 0), rows)
    else:
        how.at(table, at, rows)


def write_rows(
    ctx: OperationContext,
    handle: ResourceHandle,
    table: Array,
    how: str,
    at: Array | tuple[Array, ...],
    updates: Array,
    unique: bool = False,
) -> None:
    """Changes elements of a variable, in its own memory where a kernel runs on that; see `with_rows`.

    Args:
        table: what `ctx.read` gave for the variable.
    """
    if isinstance(table, np.ndarray) and ctx.puts_off(partial(_change, table, how, at, updates)):
        return
    ctx.write(handle, with_rows(how, table, at, updates, unique), guarded=True)


def combined_rows(
    indices: Array, values: Array, size: int, combine: Callable[[Any, Any], Any] = jnp.add
) -> tuple[Any, Any]:
    """Combines the values of equal indices.

    Args:
        indices: [n], integers; those that are not below `size` stay beyond the end.
        values: [n, ...].
        size: the number of rows of the table.
        combine: addition or multiplication.

    Returns:
        int64 [n]: each index once, and beyond the end of the table, all different, where an index was a repetition;
        [n, ...]: the combined values, anything at repetitions. In NumPy, whose shapes need not be known, repetitions
        are left out.
    """
    count = indices.shape[0]
    xp = library_of(indices, values)
    indices = indices.astype(np.int64, copy=False)
    if xp is np:
        return _combined_in_numpy(indices, values, np.add if combine is jnp.add else np.multiply)
    unused = np.int64(size) + jnp.arange(count, dtype=np.int64)
    if count <= 1:
        return jnp.where(indices < size, indices, unused), values
    # One sort of index and position packed into a word is several times faster than an argsort.
    width = count.bit_length()
    packed = jnp.sort((indices << width) | jnp.arange(count, dtype=np.int64))
    distinct, values = packed >> width, values[packed & (2**width - 1)]
    is_first = jnp.concatenate([jnp.ones((1,), bool), distinct[1:] != distinct[:-1]])
    group = jax.lax.cummax(jnp.where(is_first, jnp.arange(count, dtype=np.int64), 0))
    rows = jnp.where(is_first & (distinct < size), distinct, unused)
    beyond = jnp.where(is_first, count, group)
    return rows, with_rows("add" if combine is jnp.add else "multiply", values, beyond, values)


def _combined_in_numpy(indices: HostArray, values: HostArray, combine: np.ufunc) -> tuple[HostArray, HostArray]:
    count = len(indices)
    if count <= _FEW and len(set(indices.tolist())) == count:
        return indices, values
    width = count.bit_length()
    packed = indices << width
    packed |= np.arange(count)
    packed.sort()
    distinct = packed >> width
    begins = np.empty(count, np.bool_)
    begins[0] = True
    np.not_equal(distinct[1:], distinct[:-1], out=begins[1:])
    if begins.all():
        return indices, values
    packed &= 2**width - 1
    starts = begins.nonzero()[0]
    # where rows have no elements there is nothing to combine, and NumPy refuses to
    together = values[packed]
    rows = combine.reduceat(together, starts, axis=0, dtype=values.dtype) if values.size else together[starts]
    return distinct[starts], rows


def _are_distinct(indices: HostArray) -> bool:
    if len(indices) <= _FEW:
        return len(set(indices.tolist())) == len(indices)
    ordered = np.sort(indices)
    return bool((ordered[1:] != ordered[:-1]).all())
