"""`tf.get_session_handle` and its like: tensors that stay in a session between its steps."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType, DTypeLike, string
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.constants import placeholder
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.ops import raw

#: types whose fetched result is a handle
HANDLE_TYPES = frozenset({"GetSessionHandle"})


#: per graph, what handles are read with (by dtype) and deleted with (None)
_built_in: weakref.WeakKeyDictionary[Graph, dict[DType | None, tuple[Tensor, Any]]] = weakref.WeakKeyDictionary()


class TensorHandle:
    """What `Session.run` gives for a handle: names a tensor that the session keeps until `delete`, or until it closes.

    Args:
        handle: the text that `get_session_tensor` takes.
        dtype: of the tensor.
        session: the session that keeps it.
    """

    def __init__(self, handle: str, dtype: DType, session: StepRunner) -> None:
        self.handle = handle
        self._dtype = dtype
        self._session = session

    def __str__(self) -> str:
        return self.handle

    def get_raw_handle(self) -> bytes:
        """The handle's text, which `delete_session_tensor` takes as well; the tensor is kept until it is deleted."""
        return self.handle.encode()

    def to_numpy_array(self) -> np.ndarray[Any, Any]:
        """The handle's text, as an array of bytes."""
        return np.array(self.handle.encode(), np.object_)

    def eval(self) -> Any:
        """The tensor's value.

        Raises:
            InvalidArgumentError: the session does not keep it any more.
        """
        holder, value = self._built(self._dtype)
        return self._session.run(value, {holder: self.handle})

    def delete(self) -> None:
        """Lets the session forget the tensor. Raises as `eval`."""
        holder, deletion = self._built(None)
        self._session.run(deletion, {holder: self.handle})

    def _built(self, dtype: DType | None) -> tuple[Tensor, Any]:
        """What reads a tensor of a dtype, or, without one, deletes one; built once in a graph."""
        graph = self._session.graph
        known = _built_in.setdefault(graph, {})
        if dtype not in known:
            with graph.as_default(), graph.name_scope(None), graph.control_dependencies(None):
                known[dtype] = delete_session_tensor("") if dtype is None else get_session_tensor("", dtype)
        return known[dtype]


def get_session_handle(data: TensorLike, name: str | None = None) -> Tensor:
    """A handle of a tensor: run, it is a `TensorHandle`, and the session keeps the tensor for later steps.

    Args:
        data: a tensor.
        name: of the operation.

    Returns:
        string, shape [].

    Raises:
        TypeError: `data` is no tensor.

    Example:
        >>> handle = sess.run(tf.get_session_handle(tf.constant([1.0, 2.0])))
        >>> holder, value = tf.get_session_tensor(handle.handle, tf.float32)
        >>> sess.run(value * 2.0, {holder: handle.handle})
        array([2., 4.], dtype=float32)
    """
    if not isinstance(data, Tensor):
        raise TypeError("`data` must be of type Tensor.")
    result: Tensor = raw.GetSessionHandle(data, name=name)
    return result


def get_session_tensor(handle: str, dtype: DTypeLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """A placeholder for a handle, and the tensor that the session keeps under what is fed for it.

    Args:
        handle: a handle's text; any may be fed.
        dtype: of the tensor.
        name: of the operation.

    Raises:
        InvalidArgumentError: (in the step) the session keeps no such tensor, or one of another dtype.
    """
    holder = placeholder(string, [])
    value: Tensor = raw.GetSessionTensor(holder, dtype=dtype, name=name)
    return holder, value


def delete_session_tensor(handle: str, name: str | None = None) -> tuple[Tensor, Operation]:
    """A placeholder for a handle, and the operation that lets the session forget the tensor.

    Args:
        handle: a handle's text; any may be fed.
        name: of the operation.

    Raises:
        InvalidArgumentError: (in the step) the session keeps no such tensor.
    """
    holder = placeholder(string, [])
    deletion: Operation = raw.DeleteSessionTensor(holder, name=name)
    return holder, deletion
