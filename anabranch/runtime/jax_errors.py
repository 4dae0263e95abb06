"""XLA's run-time errors as `anabranch.errors`."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import errors
from anabranch.errors import OperationLike

_BY_PREFIX = (
    (
        "RESOURCE_EXHAUSTED",
        errors.ResourceExhaustedError,
        "the device is out of memory; use smaller batches or fewer live tensors",
    ),
    ("INVALID_ARGUMENT", errors.InvalidArgumentError, "the compiled program cannot take these inputs"),
    ("UNIMPLEMENTED", errors.UnimplementedError, "the device's compiler cannot do this"),
)


def as_op_error(error: Exception, op: OperationLike | None, what: str, lost: Sequence[str] = ()) -> errors.OpError:
    """The `OpError` for an exception that running `what` (an island) raised.

    Args:
        lost: the names of the variables that have no value any more.
    """
    text = str(error)
    if lost:
        text += f" The values of {', '.join(lost)} are lost: restore a checkpoint, or initialize them"
    for prefix, kind, hint in _BY_PREFIX:
        if prefix in text:
            return kind(None, op, f"{what}: {hint}: {text}")
    return errors.InternalError(None, op, f"{what} failed: {text}")


def is_of_the_device(error: Exception) -> bool:
    """Whether an exception is one of the device's whatever its class: out of memory comes as a ValueError, too."""
    return str(error).startswith("RESOURCE_EXHAUSTED")
