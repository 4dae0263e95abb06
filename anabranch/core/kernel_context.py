"""What a kernel may know and do besides computing on its arrays.

A kernel that asks for `ctx` says by its annotation which of these it needs:

* `OperationContext`: its operation, checks, and the values of variables. Every context has it.
* `HostKernelContext`: besides that resources, and calls of functions; for host kernels.
* `TracingContext`: besides that what is known of the program being traced; for compiled kernels.
* `TransferKernelContext`: for what takes tensors from one device to another.

`KernelContext` is the first of these as a class, for kernels that run on known values; the others are implemented where
kernels are called from (`runtime.host_context`, `xla.lowering`, `runtime.transfer_call`). `graph.kernel_contexts` says
what the nodes and functions are that they speak of.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from anabranch.core.arrays import ElementType, HostArray
from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import DType
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.core.shown_values import ShownValue
from anabranch.core.values import TensorValue
from anabranch.errors import InternalError, InvalidArgumentError, OpError


class RowsUpdate(NamedTuple):
    """New rows of variables, as a function of rows that computes element by element.

    Attributes:
        kind: the same of two updates where one function serves both, and their rows can be joined.
        rows: what it computes with, by name; as many rows of each.
        compute: makes of such rows, or of those of several updates one after the other, the new ones, by name.
        store: takes the new ones of this update.
    """

    kind: Hashable
    rows: dict[str, HostArray]
    compute: Callable[[dict[str, HostArray]], dict[str, HostArray]]
    store: Callable[[dict[str, HostArray]], None]


class VariableUpdate(NamedTuple):
    """An update of a variable and its slots by an optimizer.

    Attributes:
        rule: the optimizer's name.
        handles: the variable's and the slots'.
        states: their values, by name.
        values: the values of the other inputs, by name.
        grad: the name of the gradient among them.
        position: which of the operation's inputs that is.
    """

    rule: str
    handles: Sequence[ResourceHandle]
    states: Mapping[str, TensorValue]
    values: Mapping[str, TensorValue]
    grad: str
    position: int


class KernelTensor(Protocol):
    """What kernels ask of an input or output of their operation."""

    @property
    def op(self) -> KernelOperation: ...
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> TensorShape: ...


class KernelOperation(Protocol):
    """What kernels ask of their operation."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def attrs(self) -> dict[str, AttributeValue]: ...
    @property
    def inputs(self) -> Sequence[KernelTensor]: ...
    @property
    def outputs(self) -> Sequence[KernelTensor]: ...
    @property
    def creation_site(self) -> str: ...


Made = TypeVar("Made")  #: the type of an object in a container
Node = TypeVar("Node", bound=KernelOperation)  #: what operations are where kernels are called
Function_contra = TypeVar("Function_contra", contravariant=True)  #: what functions are there
BodyTensor_contra = TypeVar("BodyTensor_contra", contravariant=True)  #: what tensors of functions are there
_Carry = TypeVar("_Carry")


class OperationContext(Protocol):
    """What every kernel may ask."""

    @property
    def op(self) -> KernelOperation:
        """The operation being run (its `name`, `attrs` and output dtypes are the contract of the call)."""

    def output_dtype(self, index: int = 0) -> np.dtype[Any]:
        """The NumPy dtype that output `index` must have."""

    def output_shape(self, index: int = 0) -> TensorShape:
        """What is known statically of the shape of output `index`."""

    def check(
        self, ok: TensorValue, message: str, *values: TensorValue, error: type[OpError] = InvalidArgumentError
    ) -> None:
        """Makes the step fail with `error` unless every element of `ok` is true; see `KernelContext.check`."""

    @property
    def task(self) -> str:
        """The task that has what the operation names, as `ResourceHandle.task` says it."""

    def read(self, handle: ResourceHandle) -> TensorValue:
        """The current value of a variable."""

    def look(self, handle: ResourceHandle, find: Callable[[TensorValue], TensorValue]) -> TensorValue:
        """What a function computes from the value of a variable; see `KernelContext.look`."""

    def write(self, handle: ResourceHandle, value: TensorValue, guarded: bool = False) -> None:
        """Replaces the value of a variable."""

    def puts_off(self, change: Callable[[], None]) -> bool:
        """Whether what was read may be changed in its place, by `change`, later; see `KernelContext.puts_off`."""

    def puts_off_rows(self, update: RowsUpdate) -> bool:
        """Whether new rows are computed later, with others'; see `KernelContext.puts_off_rows`."""

    def memory(self, shape: Sequence[int], dtype: ElementType, *reused: int) -> HostArray | None:
        """Where NumPy may write a large result; see `KernelContext.memory`."""

    def updates(self, update: VariableUpdate) -> bool:
        """Whether an update is done; see `KernelContext.updates`."""

    def narrowed(self, value: TensorValue) -> TensorValue | None:
        """What a cast gives, if a library casts; see `KernelContext.narrowed`."""


class ResourceStore(Protocol):
    """The objects behind handles that outlive a step: queues, tables, readers, iterators. Thread-safe."""

    def is_gone(self, handle: ResourceHandle) -> bool:
        """Whether there is nothing behind a handle since the session that it belonged to is closed."""

    def object(self, handle: ResourceHandle, make: Callable[[], Made]) -> Made:
        """The object behind a handle, made on first use."""

    def find_object(self, handle: ResourceHandle) -> Any:
        """The object behind a handle, or None."""

    def remove_object(self, handle: ResourceHandle) -> bool:
        """Drops the object behind a handle; False where there is none."""


class RandomStream(Protocol):
    """How often random operations have drawn, where they begin their sequences anew.

    Attributes:
        run_seed: what operations without a seed of their own draw from.
    """

    run_seed: int


class HostKernelContext(OperationContext, Protocol[Node, Function_contra]):
    """What a host kernel may ask.

    Attributes:
        opened: for operations that make shared objects: the handle, and a weak reference to what it meant last time.
    """

    opened: tuple[ResourceHandle, weakref.ref[Any]] | None

    @property
    def op(self) -> Node: ...

    @property
    def containers(self) -> ResourceStore:
        """The task's objects."""

    @property
    def private_name(self) -> str:
        """Names what belongs to this operation of this session alone."""

    def for_operation(self, op: Node) -> OperationContext:
        """The context of another operation of the same session."""

    def is_initialized(self, handle: ResourceHandle) -> bool:
        """Whether the variable has a value."""

    def destroy(self, handle: ResourceHandle) -> bool:
        """Makes a variable uninitialised, or removes another resource; False where there was nothing."""

    def mover(self, device: str) -> Callable[[TensorValue], TensorValue] | None:
        """What takes values into the memory of the task's device of that name; None where the host's serves."""

    def extend(self, rows: int, fresh: Mapping[ResourceHandle, Callable[[int], TensorValue]]) -> None:
        """Appends rows to variables that have fewer, all in one moment.

        Args:
            rows: how many each must have.
            fresh: for each variable, what makes so many new rows.
        """

    def replace_rows(self, at: TensorValue, fresh: Mapping[ResourceHandle, Callable[[int], TensorValue]]) -> None:
        """Gives the rows `at` of variables new values, all in one moment; `fresh` as for `extend`."""

    def call(
        self, body: Function_contra, inputs: list[TensorValue], *, stream: RandomStream | None = None
    ) -> list[TensorValue]:
        """Runs a function as a step of its own; `stream` is what `new_stream` gave, if it has its own."""

    def new_stream(self) -> RandomStream:
        """Random operations that count there begin their sequences anew."""


@dataclass(slots=True)
class Check:
    """A condition compiled into an island; the step fails when it is false.

    Attributes:
        ok: boolean scalar (traced).
        values: what the message shows (traced).
    """

    op: KernelOperation
    ok: TensorValue
    message: str
    values: tuple[TensorValue, ...]
    error: type[OpError]


class LoopWatch(Protocol):
    """How the loops of an island can be stopped."""

    def inside(self) -> Self:
        """The same for the loops in the body of a loop."""


class TracedState(Protocol):
    """What changes while a program is traced; a dataclass, of which calls get copies (`dataclasses.replace`).

    Attributes:
        variables: the current value of each variable that was read or written.
        written: the variables that were written so far.
        checks: the conditions met so far.
        watched: how loops can be stopped; None: not at all.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    variables: dict[ResourceHandle, TensorValue]
    written: set[ResourceHandle]
    checks: list[Check]

    @property
    def watched(self) -> LoopWatch | None: ...


class TracingContext(OperationContext, Protocol[Node, Function_contra, BodyTensor_contra]):
    """What a compiled kernel may ask while an island is traced."""

    @property
    def op(self) -> Node: ...

    @property
    def state(self) -> TracedState:
        """What has been traced so far."""

    @property
    def guard(self) -> TensorValue:
        """Whether all checks of the island hold (a traced boolean scalar), or None where it has no checks."""

    def needs_host(self, why: str) -> Exception:
        """The exception that a kernel raises when it cannot be compiled for its values."""

    def is_used(self, index: int) -> bool:
        """Whether anything needs output `index`."""

    def draws_random(self, *bodies: Function_contra) -> bool:
        """Whether calling one of the function graphs draws random numbers."""

    def body_state(
        self, body: Function_contra, inputs: list[TensorValue]
    ) -> tuple[list[ResourceHandle], list[ResourceHandle]]:
        """The variables that calling a function graph with these inputs reads and writes."""

    def while_loop(
        self, going: Callable[[_Carry], TensorValue], iterate: Callable[[_Carry], _Carry], carry: _Carry
    ) -> _Carry:
        """Like `lax.while_loop`, but a step with a deadline can be stopped: the loop ends then, and a check fails."""

    def note(self, text: str) -> None:
        """Notes how this operation is compiled, for `anabranch explain`."""

    def compute_in_loop(
        self, op: Node, inputs: list[TensorValue], prepared: Mapping[str, Mapping[int, TensorValue]]
    ) -> TensorValue:
        """One operation of a loop's body, by the quickest kernel; see `xla.lowering.TraceContext.compute_in_loop`."""

    def call(
        self,
        body: Function_contra,
        inputs: list[TensorValue],
        state: TracedState | None = None,
        iteration: TensorValue = 0,
        kernels: Mapping[Node, Callable[[Callable[[BodyTensor_contra], TensorValue]], TensorValue]] | None = None,
        also: Sequence[BodyTensor_contra] = (),
    ) -> list[TensorValue]:
        """Traces a function graph; see `xla.lowering.TraceContext.call`."""


class TransferKernelContext(OperationContext, Protocol):
    """What `_Send` and `_Recv` may ask."""

    def send(self, value: TensorValue) -> None:
        """Gives a value to whoever receives it."""

    def receive(self) -> TensorValue:
        """The value that was sent; or a `Pending` for the one that will be."""


class KernelContext:
    """The context of kernels that run on values that are known: while a graph is built, and in constant folding.

    Values are NumPy arrays. The contexts of other places where kernels are called are subclasses.
    """

    __slots__ = ("op",)

    def __init__(self, op: KernelOperation) -> None:
        self.op = op

    def output_dtype(self, index: int = 0) -> np.dtype[Any]:
        """The NumPy dtype that output `index` must have."""
        dtype: np.dtype[Any] = self.op.outputs[index].dtype.as_numpy_dtype
        return dtype

    def output_shape(self, index: int = 0) -> TensorShape:
        """What is known statically of the shape of output `index`."""
        return self.op.outputs[index].shape

    def check(
        self, ok: TensorValue, message: str, *values: TensorValue, error: type[OpError] = InvalidArgumentError
    ) -> None:
        """Makes the step fail with `error` unless every element of `ok` is true.

        In a compiled island the check runs on the device: no variable is changed by a step whose check fails.

        Args:
            ok: boolean array.
            message: what was expected; ``{0}``, ``{1}``, ... stand for `values` in it (`ShownValue`).
            values: arrays shown in the message (keep them small: offending index, bound).
        """
        if not (ok if isinstance(ok, bool | np.bool_) else np.all(np.asarray(ok))):
            raise error(None, self.op, message.format(*map(ShownValue, values)))

    @property
    def task(self) -> str:
        """The task that has what the operation names, as `ResourceHandle.task` says it."""
        return ""

    def read(self, handle: ResourceHandle) -> TensorValue:
        """The current value of a variable."""
        raise InternalError(None, self.op, "this kernel cannot read variables here")

    def look(self, handle: ResourceHandle, find: Callable[[TensorValue], TensorValue]) -> TensorValue:
        """What a function computes from the value of a variable, which need not be copied for it.

        Args:
            find: what it gives shares no memory with the value, which may change afterwards.
        """
        return find(self.read(handle))

    def write(self, handle: ResourceHandle, value: TensorValue, guarded: bool = False) -> None:
        """Replaces the value of a variable.

        Args:
            guarded: the kernel has seen to it that nothing changes where a check of the island fails.
        """
        raise InternalError(None, self.op, "this kernel cannot write variables here")

    def puts_off(self, change: Callable[[], None]) -> bool:
        """Whether the arrays that `read` gave are the variables' own memory, which `change` is to change.

        It is called when no check can fail any more. Where this is False, which is so nearly everywhere, it is never
        called, and `write` takes a whole new value.
        """
        return False

    def puts_off_rows(self, update: RowsUpdate) -> bool:
        """Whether new rows are computed later, maybe together with those of other operations.

        Where this is False, which is so nearly everywhere, the kernel computes and stores them itself.
        """
        return False

    def memory(self, shape: Sequence[int], dtype: ElementType, *reused: int) -> HostArray | None:
        """Where NumPy may write a large result, row by row, for an `out=`; None: wherever it likes.

        Args:
            reused: positions of inputs (flat) that may be written over while the result is computed, if nothing else
                reads them: that saves the first touch of new memory.
        """
        return None

    def updates(self, update: VariableUpdate) -> bool:
        """Whether an update of variables is done by a function that is compiled already; else the kernel does it."""
        return False

    def narrowed(self, value: TensorValue) -> TensorValue | None:
        """The numbers of this operation's input as its output has them, by such a function; None: the kernel casts."""
        return None
