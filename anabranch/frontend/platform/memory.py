"""How much memory devices use: `tf.contrib.memory_stats`."""

from __future__ import annotations

from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.control_flow.memory import MEMORY_OF


def BytesInUse() -> Tensor:
    """The bytes that a device uses when this runs: int64, shape [].

    The device is the one that `tf.device` says, else JAX's first. Of a processor JAX knows nothing: then it is what
    this process has in memory.

    Example:
        >>> sess.run(tf.contrib.memory_stats.BytesInUse()) > 0
        np.True_
    """
    return _asked(raw._BytesInUse())


def MaxBytesInUse() -> Tensor:
    """The most bytes that a device has used since the process began; see `BytesInUse`."""
    return _asked(raw._MaxBytesInUse())


def BytesLimit() -> Tensor:
    """The bytes that may be used of a device, on a processor those that the machine has; see `BytesInUse`."""
    return _asked(raw._BytesLimit())


def _asked(tensor: Tensor) -> Tensor:
    if tensor.op.device:
        tensor.op._set_attr(MEMORY_OF, tensor.op.device)
    return tensor
