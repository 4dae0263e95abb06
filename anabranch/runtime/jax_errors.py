"""XLA's run-time errors as `anabranch.errors`."""

from __future__ import annotations

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


def as_op_error(error: Exception, op: OperationLike | None, what: str) -> errors.OpError:
    """The `OpError` for an exception that running `what` (an island) raised."""
    text = str(error)
    for prefix, kind, hint in _BY_PREFIX:
        if prefix in text:
            return kind(None, op, f"{what}: {hint}: {text}")
    return errors.InternalError(None, op, f"{what} failed: {text}")
