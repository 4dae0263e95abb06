"""Exception classes, under the names and with the codes of `tf.errors`.

Everything that goes wrong while a step runs is an `OpError`; its subclass says whether trying again makes sense.
Mistakes made while a graph is built are Python's `ValueError` and `TypeError`, as in TensorFlow.

    Exception
    └── OpError                     .node_def  .op  .message  .error_code
        ├── CancelledError           1  the step or the server was cancelled
        ├── UnknownError             2  a foreign error that says no more
        ├── InvalidArgumentError     3  a value, shape or dtype is wrong, whatever the state
        ├── DeadlineExceededError    4  time ran out first
        ├── NotFoundError            5  file, variable, container or node does not exist
        ├── AlreadyExistsError       6  what was to be created is there already
        ├── PermissionDeniedError    7  the caller may not
        ├── ResourceExhaustedError   8  out of memory, disk or quota
        ├── FailedPreconditionError  9  the state is wrong, such as an uninitialised variable
        ├── AbortedError            10  a conflict ended it: try again from a higher level
        ├── OutOfRangeError         11  past the end: end of file, or a closed and empty queue
        ├── UnimplementedError      12  there is no kernel for that
        ├── InternalError           13  an invariant of anabranch itself is broken
        ├── UnavailableError        14  a task cannot be reached: try again
        ├── DataLossError           15  stored data is corrupt
        └── UnauthenticatedError    16  no valid credentials
"""

from __future__ import annotations

from typing import Final, Protocol

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16


class NodeLike(Protocol):
    """What is known of the node that failed: a NodeDef."""

    name: str
    op: str
    device: str


class OperationLike(Protocol):
    """What is known of the operation that failed: an `Operation`."""

    @property
    def name(self) -> str:
        """Its name in the graph."""

    @property
    def type(self) -> str:
        """The name of its operation type."""


class OpError(Exception):
    """An operation failed while a step ran.

    Args:
      node_def: the NodeDef of the operation that failed, or None.
      op: the `Operation` that failed, or None. None also where the node came out of a graph pass (a Send, a fused
        island), so that the user's graph does not hold it.
      message: what happened, what was expected, and one way out.
      error_code: one of this module's codes. Subclasses supply their own.
    """

    def __init__(
        self, node_def: NodeLike | None, op: OperationLike | None, message: str, error_code: int = UNKNOWN
    ) -> None:
        super().__init__(node_def, op, message)
        self._node_def: NodeLike | None = node_def
        self._op: OperationLike | None = op
        self._message = message
        self._error_code = error_code

    @property
    def node_def(self) -> NodeLike | None:
        """The NodeDef of the operation that failed, or None."""
        return self._node_def

    @property
    def op(self) -> OperationLike | None:
        """The `Operation` that failed, or None if it is unknown or not part of the user's graph."""
        return self._op

    @property
    def message(self) -> str:
        """What happened, without the place where the operation was created."""
        return self._message

    @property
    def error_code(self) -> int:
        """The number of the error's class, such as `tf.errors.NOT_FOUND`."""
        return self._error_code

    def attribute_to(self, op: OperationLike | None) -> None:
        """Names the operation that failed, if none is named yet: files and formats do not know who asks for them."""
        if self._op is None:
            self._op = op

    def replace_operation(self, op: OperationLike | None) -> None:
        """Names the user's operation in place of the step's node for it."""
        self._op = op

    def add_context(self, text: str) -> None:
        """Adds to the message what the failed operation was part of."""
        self._message += text

    def __str__(self) -> str:
        site = getattr(self._op, "creation_site", None)
        if not site:
            return str(self._message)
        name = getattr(self._op, "name", None)
        return f"{self._message}\n  operation {name!r} was created at {site}"


class _CodedError(OpError):
    """An `OpError` whose class alone decides its code."""

    code: int

    def __init__(self, node_def: NodeLike | None, op: OperationLike | None, message: str) -> None:
        super().__init__(node_def, op, message, self.code)


class CancelledError(_CodedError):
    """The operation was cancelled, by a closing session, queue or server, or by another operation's failure."""

    code = CANCELLED


class UnknownError(OpError):
    """A foreign error that does not say enough to have a class of its own.

    The only class whose code may be given, since codes that have no class arrive here.
    """

    def __init__(
        self, node_def: NodeLike | None, op: OperationLike | None, message: str, error_code: int = UNKNOWN
    ) -> None:
        super().__init__(node_def, op, message, error_code)


class InvalidArgumentError(_CodedError):
    """An input, an attr or a feed has a wrong value, shape or dtype, whatever the state of the system."""

    code = INVALID_ARGUMENT


class DeadlineExceededError(_CodedError):
    """Time ran out before the operation was done."""

    code = DEADLINE_EXCEEDED


class NotFoundError(_CodedError):
    """Something asked for by name does not exist: a file, a variable, a container, a tensor in a checkpoint."""

    code = NOT_FOUND


class AlreadyExistsError(_CodedError):
    """Something that was to be created exists already."""

    code = ALREADY_EXISTS


class PermissionDeniedError(_CodedError):
    """The caller may not do this, such as writing into a directory that is read-only."""

    code = PERMISSION_DENIED


class ResourceExhaustedError(_CodedError):
    """Memory, disk space or another quota is used up."""

    code = RESOURCE_EXHAUSTED


class FailedPreconditionError(_CodedError):
    """The system is not in the state the operation needs, such as a variable that was never initialised."""

    code = FAILED_PRECONDITION


class AbortedError(_CodedError):
    """The operation was ended by a conflict, such as a restarted task; the caller may try again from a higher level."""

    code = ABORTED


class OutOfRangeError(_CodedError):
    """An iteration went past its end: end of file, end of a dataset, or a queue that is closed and empty."""

    code = OUT_OF_RANGE


class UnimplementedError(_CodedError):
    """No kernel does this operation for these dtypes on this device."""

    code = UNIMPLEMENTED


class InternalError(_CodedError):
    """An invariant of anabranch itself is broken."""

    code = INTERNAL


class UnavailableError(_CodedError):
    """A task cannot be reached now; trying again may help."""

    code = UNAVAILABLE


class DataLossError(_CodedError):
    """Stored data is lost or corrupt, such as a checkpoint whose checksum does not match."""

    code = DATA_LOSS


class UnauthenticatedError(_CodedError):
    """The request carries no valid credentials."""

    code = UNAUTHENTICATED


_CLASS_OF_CODE: Final[dict[int, type[OpError]]] = {
    UNKNOWN: UnknownError,
    **{cls.code: cls for cls in _CodedError.__subclasses__()},
}
_CODE_OF_CLASS: Final[dict[type[OpError], int]] = {cls: code for code, cls in _CLASS_OF_CODE.items()}


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """The exception class of a code.

    Raises:
      KeyError: no class has that code (`OK` has none).
    """
    return _CLASS_OF_CODE[error_code]


def error_code_from_exception_type(cls: type[OpError]) -> int:
    """The code of an exception class; `UNKNOWN` for a class that is not in the hierarchy above."""
    return _CODE_OF_CLASS.get(cls, UNKNOWN)


def make_error(error_code: int, node_def: NodeLike | None, op: OperationLike | None, message: str) -> OpError:
    """An error of the class that belongs to `error_code`; an `UnknownError` that keeps the code if there is none."""
    cls = _CLASS_OF_CODE.get(error_code)
    if cls is None or cls is UnknownError:
        return UnknownError(node_def, op, message, error_code)
    return cls(node_def, op, message)


class Status:
    """A code and a message, as what reports errors sets them that raises none.

    Attributes:
      code: one of this module's codes; `OK` at first.
      message: what happened.
    """

    def __init__(self) -> None:
        self.code = OK
        self.message = ""


class raise_exception_on_not_ok_status:
    """A context whose value is a `Status`; where its code is not `OK` at the end, the error of that code is raised.

    Raises:
      OpError: of the class that belongs to the code, unless the block itself raises.

    Example:
        >>> with tf.errors.raise_exception_on_not_ok_status() as status:
        ...     status.code = tf.errors.OK
    """

    def __init__(self) -> None:
        self.status = Status()

    def __enter__(self) -> Status:
        self.status = Status()
        return self.status

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
        if kind is None and self.status.code != OK:
            raise make_error(self.status.code, None, None, self.status.message)
