"""Variables that get more rows, or fresh ones, all of a table in one moment  (§4.2).

An update of a table takes its rows and their slots under all of their locks (`island_call`), and all must have the same
number of rows then. So they change together: what is appended is computed first, then all are locked in the same global
order, and the new values are stored when all of them are there. Steps that read meanwhile have the old ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import FailedPreconditionError, OperationLike
from anabranch.runtime.containers import VariableState
from anabranch.xla.jax_settings import in_wide_types

_Fresh = Mapping[VariableState, Callable[[int], TensorValue]]


def extend(op: OperationLike, fresh: _Fresh, rows: int) -> None:
    """Appends rows to variables that have fewer.

    Args:
        op: for whom.
        fresh: for each variable, what makes so many new rows. It is called without any lock.
        rows: how many each must have.

    Raises:
        FailedPreconditionError: one has no value.
    """
    least = min(_rows(op, state) for state in fresh)
    if least >= rows:
        return
    made = {state: make(rows - least) for state, make in fresh.items()}
    in_wide_types(_append, op, made, rows)


def _append(op: OperationLike, made: Mapping[VariableState, TensorValue], rows: int) -> None:
    with _locked(made):
        longer = {}
        for state, values in made.items():
            # another step may have been first
            missing = rows - _rows(op, state)
            if missing > 0:
                longer[state] = jnp.concatenate([state.value, _beside(state, values)[:missing]])
        _store(longer)


def replace(op: OperationLike, fresh: _Fresh, at: TensorValue) -> None:
    """Gives rows of variables new values.

    Args:
        op, fresh: as of `extend`.
        at: int64 [n], each row once.

    Raises:
        FailedPreconditionError: one has no value.
    """
    made = {state: make(len(at)) for state, make in fresh.items()}
    in_wide_types(_replace, op, made, np.asarray(at))


def _replace(op: OperationLike, made: Mapping[VariableState, TensorValue], at: np.ndarray[Any, Any]) -> None:
    with _locked(made):
        for state in made:
            _rows(op, state)
        _store({state: state.value.at[at].set(_beside(state, v)) for state, v in made.items()})


def _beside(state: VariableState, values: TensorValue) -> Any:
    """New rows where the variable is: what made them may run on another device."""
    return jax.device_put(values, state.value.sharding).astype(state.value.dtype)


def _store(values: Mapping[VariableState, Any]) -> None:
    for value in values.values():
        value.block_until_ready()
    for state, value in values.items():
        state.change(value)


def _rows(op: OperationLike, state: VariableState) -> int:
    value = state.value
    if value is None:
        raise uninitialized(op, state.handle)
    return int(value.shape[0])


@contextlib.contextmanager
def _locked(states: Mapping[VariableState, object]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for state in sorted(states, key=lambda s: (s.handle.container, s.handle.name)):
            stack.enter_context(state.lock)
        yield


def uninitialized(op: OperationLike | None, handle: ResourceHandle) -> FailedPreconditionError:
    """The error for a variable that was read before it had a value."""
    return FailedPreconditionError(
        None,
        op,
        f"Attempting to use uninitialized value {handle.name}: the {handle} has no value yet "
        f"(Resource {handle.container or 'localhost'}/{handle.name}/{handle.kind} does not exist); run its initializer "
        "(tf.global_variables_initializer()) or restore a checkpoint first",
    )
