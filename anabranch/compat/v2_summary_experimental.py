"""`tf.compat.v2.summary.experimental`: the step of summaries, their scopes, and serialized summaries."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence

import anabranch as tf
from anabranch.compat.recorded_summaries import record
from anabranch.core.values import TensorLike

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-/]")


class _Step(threading.local):
    """The step of this thread's summaries."""

    value: TensorLike | None = None


_step = _Step()


def get_step() -> TensorLike | None:
    """The step of this thread's summaries; None: `set_step` was not called."""
    return _step.value


def set_step(step: TensorLike | None) -> None:
    """Sets the step of summaries that are not given one: an int64 scalar, a variable perhaps."""
    _step.value = step


def step_of(step: TensorLike | None) -> TensorLike:
    """The step that a summary is given, or else the thread's.

    Raises:
        ValueError: there is none.
    """
    chosen = get_step() if step is None else step
    if chosen is None:
        raise ValueError("No step set: pass step, or call tf.summary.experimental.set_step")
    return chosen


@contextlib.contextmanager
def summary_scope(
    name: str | None, default_name: str = "summary", values: Sequence[TensorLike] | None = None
) -> Iterator[tuple[str, str]]:
    """A name scope for a summary.

    Yields:
        The tag, which is the name after the scopes around it, and the name scope.
    """
    name = name or default_name
    around = tf.get_default_graph().get_name_scope()
    with tf.name_scope(_NOT_IN_NAMES.sub("", name) or None, default_name, values) as scope:
        yield f"{around}/{name}" if around else name, scope


def write_raw_pb(tensor: TensorLike, step: TensorLike | None = None, name: str | None = None) -> tf.Tensor:
    """Writes a serialized `Summary`.

    Args:
        tensor: string scalar.
        step: int64 scalar; default: that of `set_step`.
        name: of the operations.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step.
    """
    with tf.name_scope(name, "write_raw_pb"):
        return written(record(step_of(step), lambda: tf.identity(tensor), otherwise=True))


def written(whether: tf.Tensor | None) -> tf.Tensor:
    """Whether a summary was written, bool scalar."""
    return tf.constant(False) if whether is None else whether
