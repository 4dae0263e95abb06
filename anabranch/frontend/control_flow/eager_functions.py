"""`tf.py_function`: Python functions in graphs that compute with tensors which have values, and their gradients.

The function runs in a graph of its own whose tensors have values (`graph.immediate`). That graph says how the results
came of the arguments, so that gradients are those of any graph, taken in another call of the same kind
(docs/decisions/0069).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.autodiff.gradients import UnconnectedGradients, gradients
from anabranch.core import nest
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.values import TensorLike, TensorValue
from anabranch.frontend.arguments import DTypes
from anabranch.frontend.control_flow.script import call_of
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import Gradient
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.immediate import ImmediateGraph, ImmediateTensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.control_flow.script import registered_function

#: calls of one function whose gradients may still be asked for; what is older is computed again
_MOST_RECORDED: Final = 16


def py_function(
    func: Callable[..., Any], inp: TensorLike | Sequence[TensorLike], Tout: DTypes, name: str | None = None
) -> nest.Structure:
    """Calls a Python function in every step that needs its result, with tensors that have values.

    Operations that the function applies to them have values, too: `x.numpy()` gives one, `if tf.reduce_sum(x) > 0:`
    decides by one, NumPy's functions take one. Gradients flow from the results to the arguments through all that is
    computed with operations; through NumPy, and to variables or tensors around the function, none does: pass these as
    arguments. What is created in a call, a variable say, ends with it.

    Args:
        func: takes one tensor per input and returns tensors, or what can become tensors of the dtypes `Tout`.
        inp: list of tensors.
        Tout: a dtype, or a list of dtypes.
        name: of the operation.

    Returns:
        As `py_func`.

    Raises:
        ValueError: `func` cannot be called.

    Raises (in the step):
        InvalidArgumentError, ...: what the function raised; or a result of another kind than `Tout`.

    Example:
        >>> x = tf.constant([1.0, 2.0])
        >>> y = tf.py_function(lambda x: x**2 if tf.reduce_sum(x) > 0.0 else -x, [x], tf.float32)
        >>> sess.run([y, tf.gradients(y, x)[0]])
        [array([1., 4.], dtype=float32), array([2., 4.], dtype=float32)]
    """
    if not callable(func):
        raise ValueError(f"expected func to be callable, got func: {func!r}")
    dtypes = [as_dtype(t) for t in Tout] if isinstance(Tout, list | tuple) else [as_dtype(Tout)]
    return call_of(raw.EagerPyFunc, EagerFunction(func, dtypes), inp, Tout, name)


@dataclass(frozen=True)
class _Recording:
    """One call: its graph, and what went in and came out, as tensors of it and as arrays."""

    graph: ImmediateGraph
    inputs: list[Tensor]
    outputs: list[Tensor]
    values: list[TensorValue]


class EagerFunction:
    """A function of tensors as the operation calls it, with arrays.

    Args:
        function: of tensors that have values.
        dtypes: of its results.
    """

    def __init__(self, function: Callable[..., Any], dtypes: Sequence[DType]) -> None:
        self.function = function
        self.dtypes = list(dtypes)
        #: whether calls are recorded: some gradient takes them
        self.is_differentiated = False
        self._recorded: deque[_Recording] = deque(maxlen=_MOST_RECORDED)
        self._lock = threading.Lock()

    def __call__(self, *arguments: TensorValue) -> Any:
        graph = ImmediateGraph()
        with graph.as_default():
            inputs = [graph.input(value) for value in arguments]
            outputs = self._outputs(self.function(*inputs))
            results = graph.values_of(outputs)
        if self.is_differentiated:
            recording = _Recording(graph, inputs, outputs, [*arguments, *results])
            with self._lock:
                self._recorded.append(recording)
        else:
            graph.close()
        return results

    def take(self, values: Sequence[TensorValue]) -> _Recording | None:
        """The record of a call with these arguments and results, which is given away; None where there is none."""
        with self._lock:
            for recording in self._recorded:
                if all(map(_is_same, recording.values, values)):
                    self._recorded.remove(recording)
                    return recording
        return None

    def _outputs(self, result: nest.Structure) -> list[Tensor]:
        """The results as tensors: numbers lose precision, but do not change their kind."""
        items = list(result) if isinstance(result, list | tuple) else [] if result is None else [result]
        if len(self.dtypes) == 1 and len(items) != 1 and result is not None:
            items = [items]  # one tensor of a list of numbers
        # one too many or too few is left to the operation, which refuses it
        dtypes = [*self.dtypes, *[None] * len(items)]
        return [_tensor(item, dtype) for item, dtype in zip(items, dtypes, strict=False)]


def _tensor(value: TensorLike, dtype: DType | None) -> Tensor:
    if isinstance(value, Variable):
        raise RuntimeError(
            f"Attempting to return a variable from the function of a py_function: {value!r}; return its value, "
            "`read_value()`"
        )
    if isinstance(value, Tensor) and not isinstance(value, ImmediateTensor):
        raise TypeError(
            f"the function of a py_function returned {value} (created at {value.op.site}), a tensor of another graph, "
            "which has no value there; compute with the function's arguments"
        )
    return convert_to_tensor(value, dtype)


def _is_same(a: TensorValue, b: TensorValue) -> bool:
    """Whether two values are equal to the last bit."""
    first, second = np.asarray(a), np.asarray(b)
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return bool((first == second).all()) if first.dtype.hasobject else first.tobytes() == second.tobytes()


class _GradientOfFunction(EagerFunction):
    """The gradient of a function of tensors: of the function's arguments, its results, and the gradients of these.

    The record of the call is taken where it is at hand, so that the function is not called again; else it is, as for
    gradients of this gradient.

    Args:
        forward: the function.
        inputs: which arguments gradients are taken by.
        outputs: which results there are gradients of.
        count: how many arguments it has.
        dtypes: of the gradients.
    """

    def __init__(
        self, forward: EagerFunction, inputs: list[int], outputs: list[int], count: int, dtypes: list[DType]
    ) -> None:
        super().__init__(self._gradients, dtypes)
        self._forward, self._inputs, self._seeded, self._count = forward, inputs, outputs, count
        self._given = count + len(forward.dtypes)

    def __call__(self, *arguments: TensorValue) -> Any:
        recording = self._forward.take(arguments[: self._given])
        if recording is None:
            return super().__call__(*arguments)
        with recording.graph.as_default():
            seeds = [recording.graph.input(value) for value in arguments[self._given :]]
            results = recording.graph.values_of(self._between(recording.inputs, recording.outputs, seeds))
        recording.graph.close()
        return results

    def _gradients(self, *tensors: Tensor) -> list[Tensor]:
        arguments = list(tensors[: self._count])
        outputs = self._forward._outputs(self._forward.function(*arguments))
        return self._between(arguments, outputs, list(tensors[self._given :]))

    def _between(self, inputs: list[Tensor], outputs: list[Tensor], seeds: list[Tensor]) -> list[Tensor]:
        xs = [inputs[i] for i in self._inputs]
        grads = gradients(
            [outputs[i] for i in self._seeded], xs, seeds, unconnected_gradients=UnconnectedGradients.ZERO
        )
        return [convert_to_tensor(grad) for grad in grads]


def _is_smooth(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


@raw.EagerPyFunc.gradient
def _gradient(op: Operation, *grads: Gradient | None) -> list[Any]:
    forward = registered_function(op.get_attr("token"))
    inputs = [i for i, tensor in enumerate(op.inputs) if _is_smooth(tensor)]
    outputs = [i for i, grad in enumerate(grads) if grad is not None]
    found: list[Any] = [None] * len(op.inputs)
    if not isinstance(forward, EagerFunction) or not inputs or not outputs:
        return found
    forward.is_differentiated = True
    dtypes = [op.inputs[i].dtype for i in inputs]
    backward = _GradientOfFunction(forward, inputs, outputs, len(op.inputs), dtypes)
    # the results are taken so that the call comes first, and is found by what it gave
    taken = [*op.inputs, *op.outputs, *(convert_to_tensor(grads[i]) for i in outputs)]
    results = call_of(raw.EagerPyFunc, backward, taken, dtypes, "gradient")
    for i, grad in zip(inputs, results, strict=True):
        found[i] = grad
    return found
