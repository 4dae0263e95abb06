"""Iterators in checkpoints: their positions are saved and restored like variables (§4.3)."""

from __future__ import annotations

from anabranch.frontend.data.iterators import Iterator
from anabranch.graph.building import apply_op
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def position_of(iterator: Iterator) -> Tensor:
    """A string scalar: where an iterator stands."""
    made: Tensor = raw._IteratorPosition(iterator._iterator_resource)
    return made


def restore_operation(iterator: Iterator, position: Tensor) -> Operation:
    """An operation that moves an iterator to a position.

    An iterator with one initializer in the graph is initialised by it; others must have been initialised before.
    """
    handle = iterator._iterator_resource
    makers = [op for op in handle.consumers() if op.type == "MakeIterator"]
    datasets = [makers[0].inputs[0]] if len(makers) == 1 else []
    bound = {"iterator": handle, "dataset": datasets, "position": position}
    return apply_op(op_def_of("_RestoreIterator"), bound)
