"""Running one operation on the host in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.quiet_arithmetic import quietly
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import OpError, UnimplementedError
from anabranch.graph.constants import ShapeCheck, is_open
from anabranch.graph.kernel_binding import (
    VALUE_ERRORS,
    BoundKernel,
    flatten_outputs,
    host_array,
    out_of_memory,
    refusal,
)
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode
from anabranch.ops.lists.values import TensorList
from anabranch.ops.object_values import boxed, unboxed
from anabranch.runtime.bound_arithmetic import SCALARS, OfFirst, Source, bound_arithmetic
from anabranch.runtime.host_context import HostContext
from anabranch.runtime.host_sizes import HostSizes
from anabranch.runtime.host_streams import generator
from anabranch.runtime.item_call import Arithmetic, ItemCall
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.step_frame import StepFrame
from anabranch.xla.islands import HostCall

#: values that are no arrays, and stay what they are
_KEPT: Final = (ResourceHandle, TensorList)
_ON_HOST: Final = (np.ndarray, *_KEPT)


class HostKernelCall(ItemCall):
    """A host operation bound to the slots of a step.

    Raises (when made):
        UnimplementedError: the operation has no kernel that can run on the host.
    """

    def __init__(
        self,
        item: HostCall,
        slots: dict[Any, int],
        outputs: list[int],
        environment: SessionEnvironment,
    ) -> None:
        op = self.op = item.operation
        self.operations, self.kind, self.device = [op], op.type, item.device
        op_def = op.op_def
        rule = op_def.host_rule or (op_def.compiled_rule if op_def.portable else None)
        if rule is None:
            raise UnimplementedError(
                None,
                op,
                f"operation {op.name!r} ({op.type}) has no host kernel for inputs of type "
                f"{[t.dtype.name for t in op.inputs]}; use numeric tensors",
            )
        #: None where the values of inputs do not decide how large the results are
        self._sizes = HostSizes(op, rule) if rule is op_def.compiled_rule and op_def.static_positions(op) else None
        context: StepHostContext = HostContext(op, environment)
        self._kernel = BoundKernel(op, rule, np, context)
        self._sources: list[Source] = [(None, t.known) if t.is_known else (slots[t], None) for t in item.inputs]
        self._outputs = outputs
        self._dtypes = [np.dtype(out.dtype.as_numpy_dtype) for out in op.outputs]
        #: positions of inputs that are arrays of objects to the kernel; whether its outputs may be such
        self._boxed = op_def.object_positions(op)
        self._unboxes = any(t.dtype in (dtypes.resource, dtypes.variant) for t in op.outputs)
        #: whether NumPy might warn of numbers, as XLA does not; functions of the user keep their own settings
        self._calculates = not (op_def.asynchronous or op_def.blocking or _gives_handles(op))
        #: whether what the kernel calls is a program of its own, which keeps its context
        self._calls = op_def.calls_user_code or bool(bodies_of(op))
        self._check_shapes = ShapeCheck(op) if is_open(op) else None
        self._counters = environment.counters.group([op.origin]) if rule.asks_for("rng") else None
        knows_objects = self._boxed or self._unboxes
        only_computes = self._calculates and not (self._calls or op_def.is_transfer) and self._counters is None
        #: all that is to be done, where the kernel does nothing but compute
        self._arithmetic = (
            bound_arithmetic(
                op,
                self._kernel,
                self._sources,
                outputs,
                _on_host,
                self._check_shapes,
                self._sizes,
                _of_first(op, self._sources) if rule is op_def.compiled_rule else None,
            )
            if only_computes and not knows_objects
            else None
        )

    def __call__(self, frame: StepFrame) -> None:
        """Runs the kernel on host arrays and stores its outputs, waiting for them if need be.

        Raises:
            OpError: the kernel's own, or InvalidArgumentError for values that it cannot take.
        """
        if self._arithmetic is not None:
            quietly(self._arithmetic, frame.values)
            return
        pending = self.start(frame)
        if pending is not None:
            self.finish(frame, pending)

    def start(self, frame: StepFrame) -> Pending | None:
        """Runs the kernel; returns what to wait for before `finish`, or None when the outputs are stored already.

        Raises:
            OpError: as `__call__`.
        """
        if self._arithmetic is not None:
            quietly(self._arithmetic, frame.values)
            return None
        inputs, values = [], frame.values
        for slot, known in self._sources:
            value = known if slot is None else values[slot]
            inputs.append(value if type(value) is np.ndarray else _on_host(value))
        for position in self._boxed:
            inputs[position] = boxed(inputs[position])
        if self._sizes is not None:
            self._sizes.check(inputs)
        result = self._run(inputs)
        if isinstance(result, Pending):
            return result
        self._store(values, flatten_outputs(result))
        return None

    def finish(self, frame: StepFrame, pending: Pending) -> bool:
        """Stores the outputs of an asynchronous kernel; waits when they are not there yet.

        Returns:
            Whether they are dead, of which only what another task sends can be: nothing is stored then.

        Raises:
            BaseException: what the result failed with.
        """
        try:
            results = pending.wait()
        except OpError as error:
            error.attribute_to(self.op)
            raise
        self._store(frame.values, results)
        return False

    def _run(self, inputs: list[Any]) -> Any:
        op = self.op
        try:
            if self._check_shapes is not None:
                self._check_shapes(inputs)
            more = {} if self._counters is None else {"rng": generator(op, *self._counters.advance().tolist())}
            if not self._calculates:
                return self._kernel(inputs, **more)
            # XLA divides by zero in silence; that an operation runs on the host must not make a difference
            if not self._calls:
                return quietly(self._kernel, inputs, **more)
            with np.errstate(all="ignore"):
                return self._kernel(inputs, **more)
        except OpError as error:
            error.attribute_to(op)
            raise
        except VALUE_ERRORS as error:
            raise refusal(op, inputs, error) from error
        except MemoryError as error:
            raise out_of_memory(op, error) from error

    def _store(self, values: list[Any], results: Sequence[Any]) -> None:
        if len(results) != len(self._outputs):
            raise ValueError(f"{self.op.type} gave {len(results)} results for {len(self._outputs)} outputs")
        if self._unboxes:
            results = [unboxed(value) for value in results]
        for position, slot in enumerate(self._outputs):
            value = results[position]
            values[slot] = value if isinstance(value, _KEPT) else host_array(value, self._dtypes[position])

    def arithmetic(self) -> Arithmetic | None:
        return self._arithmetic

    @property
    def sources(self) -> list[str]:
        return [t.op.name for t in self.op.inputs]

    def release(self) -> None:
        """Nothing to do: nothing is compiled."""

    def is_quick(self) -> bool:
        """Whether it neither waits nor runs what the user wrote."""
        op_def = self.op.op_def
        return not (op_def.blocking or op_def.asynchronous or op_def.calls_user_code)

    def changes_at_once(self) -> bool:
        """Whether it is a function of the user, in which signals are not put off in any case."""
        return self.op.op_def.calls_user_code and self.op.op_def.stateful


def _of_first(op: StepNode, sources: Sequence[Source]) -> OfFirst | None:
    """What computes an operation's output of its first input, where there is such a function, and all else is known."""
    rule = op.op_def.known_rule
    if rule is None or sources[0][0] is None or any(slot is not None for slot, _ in sources[1:]):
        return None
    return rule(op)


def _gives_handles(op: StepNode) -> bool:
    return bool(op.outputs) and all(out.dtype is dtypes.resource for out in op.outputs)


def _on_host(value: TensorValue) -> TensorValue:
    if type(value) in SCALARS:
        return np.asarray(value)
    return value if isinstance(value, _ON_HOST) else np.asarray(value)
