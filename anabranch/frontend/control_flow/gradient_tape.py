"""`GradientTape` in a graph: nothing needs to be recorded, since the graph is the record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from anabranch.autodiff.custom import variables_read
from anabranch.autodiff.gradients import UnconnectedGradients, gradients
from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.functional import map_fn
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class GradientTape:
    """Differentiates tensors of the graph by tensors and variables of it, as `tf.gradients` does.

    Args:
        persistent: whether gradients may be asked for more than once.
        watch_accessed_variables: whether `watched_variables` has those that are read; every tensor of a graph can be
            differentiated by.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._watches_accessed = watch_accessed_variables
        self._watched: list[Variable] = []
        self._opened: tuple[Graph, int] | None = None
        self._used = False

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _open(self) -> None:
        graph = get_default_graph()
        self._opened = graph, len(graph.get_operations())

    def _close(self) -> None:
        self._watched = self.watched_variables()
        self._opened = None

    def watch(self, tensor: Structure) -> None:
        """Makes variables watched ones; tensors need nothing, for a graph holds how they were computed.

        Args:
            tensor: a tensor or a variable, or a nest of these.
        """
        for one in nest.flatten(tensor):
            if isinstance(one, Variable) and one not in self._watched:
                self._watched.append(one)

    def watched_variables(self) -> list[Variable]:
        """The trainable variables that were read in the block, in the order in which they were made.

        After those that `watch` was given; these alone where `watch_accessed_variables` is False.
        """
        if self._opened is None or not self._watches_accessed:
            return list(self._watched)
        graph, begin = self._opened
        read = variables_read(graph.get_operations()[begin:], graph)
        return [*self._watched, *(one for one in read if not any(one is known for known in self._watched))]

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Variables that are read inside are not watched; all else can be differentiated as ever.

        Raises:
            ValueError: the tape is not open.
        """
        if self._opened is None:
            raise ValueError("stop_recording: the tape is not open; use it inside `with tf.GradientTape() as tape`")
        self._close()
        try:
            yield
        finally:
            self._open()

    def reset(self) -> None:
        """Forgets the watched variables, and that `gradient` has been called."""
        self._used = False
        self._watched = []
        if self._opened is not None:
            self._open()

    def _use(self, method: str) -> None:
        if self._used and not self._persistent:
            raise RuntimeError(
                f"GradientTape.{method} can only be called once on non-persistent tapes; give persistent=True"
            )
        self._used = True

    def gradient(
        self,
        target: Structure,
        sources: Structure,
        output_gradients: Structure | None = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> nest.Structure:
        """The gradients of the sum of `target` by `sources`, in the structure of `sources`.

        Args:
            target: a tensor or a nest of tensors.
            sources: a tensor, a variable, or a nest of these.
            output_gradients: one per target; default: ones.

        Raises:
            RuntimeError: a second call, of a tape that is not persistent.
        """
        self._use("gradient")
        seeds = None if output_gradients is None else nest.flatten(output_gradients)
        grads = gradients(
            nest.flatten(target), nest.flatten(sources), seeds, unconnected_gradients=unconnected_gradients
        )
        return nest.pack_sequence_as(sources, grads)

    def jacobian(
        self,
        target: TensorLike,
        sources: Structure,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> nest.Structure:
        """The derivatives of each element of `target` by each element of the sources.

        Args:
            target: a tensor.
            sources: a tensor, a variable, or a nest of these.
            unconnected_gradients: what sources have on which the target does not depend: None or zeros.
            parallel_iterations, experimental_use_pfor: nothing depends on them.

        Returns:
            In the structure of `sources`, tensors of the shape of `target` followed by that of the source.

        Raises:
            RuntimeError: a second call, of a tape that is not persistent.
        """
        self._use("jacobian")
        y = convert_to_tensor(target)
        xs = nest.flatten(sources)
        flat = raw.Reshape(y, [-1])

        def of_element(i: Tensor) -> list[Tensor | None]:
            return gradients(raw.GatherV2(flat, i, 0), xs, unconnected_gradients=unconnected_gradients)

        found = _of_each(of_element, xs, raw.Size(flat))
        jacobians = [
            None if one is None else _reshaped(one, y, x.shape, raw.Shape(x))
            for one, x in zip(found, map(convert_to_tensor, xs), strict=True)
        ]
        return nest.pack_sequence_as(sources, jacobians)

    def batch_jacobian(
        self,
        target: TensorLike,
        source: TensorLike,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor | None:
        """The derivatives of each row of `target` by the same row of `source`.

        Args:
            target: shape [b, ...]; each row depends on the same row of `source` only.
            source: shape [b, ...].
            unconnected_gradients: what there is where the target does not depend on the source: None or zeros.
            parallel_iterations, experimental_use_pfor: nothing depends on them.

        Returns:
            The shape of `target` followed by that of a row of `source`.

        Raises:
            ValueError: one has less than two dimensions, or they have not the same number of rows.
            RuntimeError: a second call, of a tape that is not persistent.
        """
        self._use("batch_jacobian")
        y, x = convert_to_tensor(target), convert_to_tensor(source)
        rows = y.shape.with_rank_at_least(2)[0]
        if not rows.is_compatible_with(x.shape.with_rank_at_least(2)[0]):
            raise ValueError(f"Need first dimension of target shape ({y.shape}) and source shape ({x.shape}) to match.")
        count, columns = raw.Shape(y)[0], raw.Prod(raw.Shape(y)[1:], 0)
        flat = raw.Reshape(y, raw.Pack([count, columns]))

        def of_column(i: Tensor) -> list[Tensor | None]:
            return gradients(raw.GatherV2(flat, i, 1), [source], unconnected_gradients=unconnected_gradients)

        (found,) = _of_each(of_column, [x], columns)
        if found is None:
            return None
        by_column = raw.Reshape(found, raw.Pack([columns, count, raw.Prod(raw.Shape(x)[1:], 0)]))
        return _reshaped(raw.Transpose(by_column, [1, 0, 2]), y, x.shape[1:], raw.Shape(x)[1:])


def _of_each(
    derivatives: Callable[[Tensor], list[Tensor | None]], xs: Sequence[TensorLike], count: Tensor
) -> list[Tensor | None]:
    """`derivatives` of the numbers below `count`, stacked; None for each x where there are none."""
    unconnected: list[bool] = []
    dtypes = [convert_to_tensor(x).dtype.base_dtype for x in xs]

    def one(i: Tensor) -> list[Tensor]:
        found = derivatives(i)
        unconnected[:] = [grad is None for grad in found]
        return [
            raw.Cast(i, DstT=dtype) if grad is None else convert_to_tensor(grad)
            for grad, dtype in zip(found, dtypes, strict=True)
        ]

    stacked = map_fn(one, raw.Range(0, count, 1), dtype=dtypes)
    return [None if none else rows for none, rows in zip(unconnected, stacked, strict=True)]


def _reshaped(value: Tensor, target: Tensor, static: TensorShape, shape: Tensor) -> Tensor:
    """A tensor whose shape is that of `target` followed by another one, as far as it is known and in the step."""
    result: Tensor = raw.Reshape(value, raw.ConcatV2([raw.Shape(target), shape], 0))
    result.set_shape(target.shape.concatenate(static))
    return result
