"""What libraries ask of TensorFlow's modes (`tf2`, `eager.context`, `control_flow_util`): graphs, version 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import anabranch as tf


def enabled() -> bool:
    """False: this is version 1 of the interface."""
    return False


def executing_eagerly() -> bool:
    """Whether tensors have values: they do in the function of a `py_function` only."""
    return tf.executing_eagerly()


def in_eager_mode() -> bool:
    """Whether tensors have values: they do in the function of a `py_function` only."""
    return tf.executing_eagerly()


@contextlib.contextmanager
def graph_mode() -> Iterator[None]:
    """Changes nothing: there is no other mode."""
    yield


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """There is no such mode.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("anabranch has no eager mode; build operations and run them with tf.Session")


class Context:
    """The mode as an object."""

    executing_eagerly = staticmethod(executing_eagerly)
    in_eager_mode = staticmethod(in_eager_mode)
    device_name = ""
    scope_name = ""


_context = Context()


def context() -> Context:
    """The mode of this process."""
    return _context


def GraphOrParentsInXlaContext(graph: tf.Graph) -> bool:
    """False: whole steps are compiled, and no part of a graph is marked for that."""
    return False


def GetContainingXLAContext(ctxt: object) -> object:
    """None: no enclosing context says what is compiled by request."""
    return None


def IsInXLAContext(op: tf.Operation) -> bool:
    """False: whole steps are compiled, and no operation is marked for that."""
    return False


def EnableControlFlowV2(graph: tf.Graph) -> bool:
    """True: users build functional control flow."""
    return True
