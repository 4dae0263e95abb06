"""Graphs whose tensors have values while they are built: what the function of a `py_function` computes in.

Operations are added as to any graph; a step runs when somebody asks for a value (`ImmediateTensor.numpy`, `if`, an
array made of it, a shape that does not follow), and at once for what has effects or draws random numbers. What has been
computed is kept and fed to the steps that follow, so that nothing runs twice  (docs/decisions/0069).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import as_dtype
from anabranch.core.op_def import OpDef
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue, to_array
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.graph import Graph, op_def_of
from anabranch.graph.operation import FeedDict, Operation, StepRunner, Tensor

#: of these there are no arrays to keep and to feed: operations that make them run again in every step that needs them
_NO_ARRAYS = (dtypes.resource, dtypes.variant)


class ImmediateTensor(Tensor):
    """A tensor that has a value as soon as somebody asks for it."""

    __slots__ = ()

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        return self._immediate.known(self)

    @property
    def shape(self) -> TensorShape:
        """The shape, which is always known."""
        if not self._shape.is_fully_defined() and self.dtype not in _NO_ARRAYS:
            self._shape = TensorShape.from_tuple(np.shape(self.numpy()))
        return self._shape

    def get_shape(self) -> TensorShape:
        return self.shape

    def numpy(self) -> TensorValue:
        """The value as NumPy has it, which belongs to the caller: of a scalar a number or `bytes`."""
        (value,) = self._immediate.values_of([self])
        return np.array(value)[()] if isinstance(value, np.ndarray) else value

    @property
    def _immediate(self) -> ImmediateGraph:
        graph = self.graph
        assert isinstance(graph, ImmediateGraph)
        return graph

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # type: ignore[override]
        return np.asarray(self.numpy(), None if dtype is None else np.dtype(dtype))  # type: ignore[call-overload]

    def __bool__(self) -> bool:  # type: ignore[override]
        return bool(self.numpy())

    __nonzero__ = __bool__  # type: ignore[assignment]

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        return int(np.asarray(self.numpy()).__index__())

    def __len__(self) -> int:  # type: ignore[override]
        return len(self.numpy())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"<tf.Tensor: {self._facts('numpy=')}>"

    def __str__(self) -> str:
        return f"tf.Tensor({self._facts('')})"

    def _facts(self, label: str) -> str:
        kind = f"shape={self.shape}, dtype={self.dtype.name}"
        if self.dtype in _NO_ARRAYS:
            return kind
        value = str(self.numpy())
        return f"{kind}, {label}{value}" if label else f"{value}, {kind}"


class ImmediateGraph(Graph):
    """A graph whose tensors have values. Only one thread at a time builds it.

    Control dependencies are of no account: what they could wait for has run.
    """

    computes_at_once = True
    tensor_class = ImmediateTensor
    #: opens a session for a graph, filled in by `session`
    SESSION: ClassVar[dict[str, Callable[[Graph], Any]]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[Tensor, Any] = {}
        self._runner: Any = None

    def input(self, value: TensorValue) -> Tensor:
        """A tensor that has a value from the beginning."""
        array = to_array(value)
        attrs = {"dtype": as_dtype(array.dtype), "shape": TensorShape.from_tuple(array.shape)}
        (tensor,) = super().create_op(op_def_of("Placeholder"), [], attrs, name="input").outputs
        self._values[tensor] = array
        return tensor

    def create_op(
        self,
        op_def: OpDef,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        name: str | None = None,
        *,
        site: CreationSite | None = None,
        control_inputs: list[Operation] | None = None,
    ) -> Operation:
        op = super().create_op(op_def, inputs, attrs, name, site=site, control_inputs=[])
        if op_def.stateful:
            self._run(op)
        return op

    def known(self, tensor: Tensor) -> np.ndarray[Any, Any] | None:
        """The value of a tensor, if it has been computed."""
        value = self._values.get(tensor)
        return None if value is None else to_array(value, tensor.dtype)

    def values_of(self, tensors: Sequence[Tensor]) -> list[TensorValue]:
        """The values of tensors: a step computes those that are not known.

        Raises:
            OpError: an operation cannot take the values that it meets.
        """
        missing = [t for t in dict.fromkeys(tensors) if t not in self._values]
        if missing:
            results = self._session().run(missing, self._known_before([t.op for t in missing]))
            self._values.update(zip(missing, results, strict=True))
        return [self._values[t] for t in tensors]

    def close(self) -> None:
        """Gives back what its operations have made: variables, queues and the like."""
        if self._runner is not None:
            self._runner.close()

    def _run(self, op: Operation) -> None:
        """Runs an operation that has effects, or gives something else in every run, once and for all."""
        outputs = [t for t in op.outputs if t.dtype not in _NO_ARRAYS]
        feeds = self._known_before([op])
        if outputs:
            self._values.update(zip(outputs, self._session().run(outputs, feeds), strict=True))
        else:
            self._session().run(op, feeds)

    def _session(self) -> StepRunner:
        if self._runner is None:
            self._runner = self.SESSION["open"](self)
        runner: StepRunner = self._runner
        return runner

    def _known_before(self, operations: list[Operation]) -> FeedDict:
        """The known values that a step begins with which runs these operations."""
        feeds: dict[Tensor, Any] = {}
        reached = set(operations)
        while operations:
            for tensor in operations.pop().inputs:
                if tensor in self._values:
                    feeds[tensor] = self._values[tensor]
                elif tensor.op not in reached:
                    reached.add(tensor.op)
                    operations.append(tensor.op)
        return feeds
