"""Running one operation on the host in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.resources import ResourceHandle
from anabranch.errors import InvalidArgumentError, OpError, UnimplementedError
from anabranch.graph.constants import flatten_outputs
from anabranch.graph.operation import Operation, group_by_argument
from anabranch.graph.shape_inference import ShapeCheck, is_open
from anabranch.ops.list_values import TensorList
from anabranch.ops.object_values import boxed, unboxed
from anabranch.runtime.containers import Containers
from anabranch.runtime.host_context import BodyRunner, HostContext
from anabranch.runtime.host_sizes import HostSizes
from anabranch.runtime.random_counters import RandomCounters
from anabranch.xla.islands import HostCall
from anabranch.xla.lowering import hash_name, out_of_memory

Values = list[Any]

#: types of results that are one tensor for sure
_ARRAYS: Final = frozenset({np.ndarray, np.bool_, np.int32, np.int64, np.float32, np.float64})


class HostKernelCall:
    """A host operation bound to the slots of a step.

    Raises (when made):
        UnimplementedError: the operation has no kernel that can run on the host.
    """

    def __init__(
        self,
        item: HostCall,
        slots: dict[Any, int],
        outputs: list[int],
        containers: Containers,
        counters: RandomCounters,
        run_body: BodyRunner,
    ) -> None:
        op = self.op = item.operation
        self.device = item.device
        op_def = op.op_def
        rule = op_def.host_rule or (op_def.compiled_rule if op_def.portable else None)
        if rule is None:
            raise UnimplementedError(
                None,
                op,
                f"operation {op.name!r} ({op.type}) has no host kernel for inputs of type "
                f"{[t.dtype.name for t in op.inputs]}; use numeric tensors",
            )
        self._rule = rule
        #: None where the values of inputs do not decide how large the results are
        self._sizes = HostSizes(op, rule) if rule is op_def.compiled_rule and op_def.static_positions(op) else None
        self._context = HostContext(op, containers, run_body)
        self._sources = [(None, item.known[t]) if t in item.known else (slots[t], None) for t in item.inputs]
        self._outputs = outputs
        self._dtypes = [out.dtype.as_numpy_dtype for out in op.outputs]
        #: inputs and outputs need not be regrouped where no argument stands for several tensors
        #: positions of inputs that are arrays of objects to the kernel; whether its outputs may be such
        self._boxed = op_def.object_positions(op)
        self._unboxes = any(t.dtype in (dtypes.resource, dtypes.variant) for t in op.outputs)
        self._flat = not any(arg.is_list for arg in op_def.inputs)
        self._single = len(op_def.outputs) == 1 and not op_def.outputs[0].is_list
        #: whether NumPy might warn of numbers, as XLA does not; functions of the user keep their own settings
        self._calculates = not (op_def.asynchronous or op_def.blocking or _gives_handles(op))
        self._check_shapes = ShapeCheck(op) if is_open(op) else None
        self._counters = counters.group([op]) if rule.asks_for("rng") else None
        self._keywords = {k: op.attrs[k] for k in rule.attr_names()}
        if rule.asks_for("ctx"):
            self._keywords["ctx"] = self._context
        if rule.asks_for("xp"):
            self._keywords["xp"] = np

    def __call__(self, values: Values) -> None:
        """Runs the kernel on host arrays and stores its outputs, waiting for them if need be.

        Raises:
            OpError: the kernel's own, or InvalidArgumentError for values that it cannot take.
        """
        pending = self.start(values)
        if pending is not None:
            self.finish(values, pending)

    def start(self, values: Values) -> Pending | None:
        """Runs the kernel; returns what to wait for before `finish`, or None when the outputs are stored already.

        Raises:
            OpError: as `__call__`.
        """
        inputs = []
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
        self._store(values, [result] if self._single and type(result) in _ARRAYS else flatten_outputs(result))
        return None

    def finish(self, values: Values, pending: Pending) -> None:
        """Stores the outputs of an asynchronous kernel; waits when they are not there yet.

        Raises:
            BaseException: what the result failed with.
        """
        try:
            results = pending.wait()
        except OpError as error:
            error.attribute_to(self.op)
            raise
        self._store(values, results)

    def _run(self, inputs: list[Any]) -> Any:
        op, keywords = self.op, self._keywords
        if self._counters is not None:
            keywords = {**keywords, "rng": _generator(op, *self._counters.advance().tolist())}
        try:
            if self._check_shapes is not None:
                self._check_shapes(inputs)
            arguments = inputs if self._flat else group_by_argument(op.op_def.inputs, op.attrs, inputs)
            if not self._calculates:
                return self._rule.function(*arguments, **keywords)
            with np.errstate(all="ignore"):
                return self._rule.function(*arguments, **keywords)
        except OpError as error:
            error.attribute_to(op)
            raise
        except (TypeError, ValueError, IndexError, KeyError, ArithmeticError) as error:
            raise InvalidArgumentError(None, op, f"{op.type} cannot take these inputs: {error}") from error
        except MemoryError as error:
            raise out_of_memory(op, error) from error

    def _store(self, values: Values, results: Sequence[Any]) -> None:
        if self._unboxes:
            results = [unboxed(value) for value in results]
        for slot, dtype, value in zip(self._outputs, self._dtypes, results, strict=True):
            values[slot] = value if isinstance(value, ResourceHandle | TensorList) else _typed(value, dtype)

    @property
    def sources(self) -> list[str]:
        """The names of the operations whose results it takes."""
        return [t.op.name for t in self.op.inputs]

    def outputs_in(self, values: Values) -> list[Any]:
        """What the operation put into the slots of a step."""
        return [values[slot] for slot in self._outputs]


def _typed(value: Any, dtype: Any) -> Any:
    if dtype is np.object_:
        if isinstance(value, np.ndarray):
            return value
        boxed = np.empty((), np.object_)
        boxed[()] = value
        return boxed
    return value if getattr(value, "dtype", None) == dtype and hasattr(value, "shape") else np.asarray(value, dtype)


def _gives_handles(op: Operation) -> bool:
    return bool(op.outputs) and all(out.dtype is dtypes.resource for out in op.outputs)


def _on_host(value: Any) -> Any:
    return value if isinstance(value, np.ndarray | ResourceHandle | TensorList) else np.asarray(value)


def _generator(op: Any, count: int, run_seed: int) -> np.random.Generator:
    """What an operation draws from when it has run `count` times."""
    return np.random.default_rng((*_seed(op, run_seed), count))


def _seed(op: Any, run_seed: int) -> tuple[int, int]:
    seed, seed2 = op.attrs.get("seed", 0), op.attrs.get("seed2", 0)
    if seed == 0 and seed2 == 0:
        return run_seed, hash_name(op.name)
    return seed & 0xFFFFFFFFFFFFFFFF, seed2 & 0xFFFFFFFFFFFFFFFF
