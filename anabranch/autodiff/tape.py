"""`GradientTape` in a graph: nothing needs to be recorded, since the graph is the record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from anabranch.autodiff.gradients import UnconnectedGradients, gradients
from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.graph.operation import Tensor


class GradientTape:
    """Differentiates tensors of the graph by tensors and variables of it, as `tf.gradients` does.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: accepted; every tensor of a graph can be differentiated by.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._used = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def watch(self, tensor: Tensor) -> None:
        """Nothing: a graph holds how every tensor was computed."""

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Nothing: a graph holds how every tensor was computed."""
        yield

    def reset(self) -> None:
        """Forgets that `gradient` has been called."""
        self._used = False

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
        if self._used and not self._persistent:
            raise RuntimeError("GradientTape.gradient can only be called once on non-persistent tapes.")
        self._used = True
        seeds = None if output_gradients is None else nest.flatten(output_gradients)
        grads = gradients(
            nest.flatten(target), nest.flatten(sources), seeds, unconnected_gradients=unconnected_gradients
        )
        return nest.pack_sequence_as(sources, grads)
