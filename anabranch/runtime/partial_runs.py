"""Steps that are run piece by piece: feeds come and fetches go while the rest waits (§3.2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core import nest
from anabranch.core.bounded import Table, ticks
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.fetches import FetchMapping
from anabranch.graph.operation import Operation, Tensor
from anabranch.runtime.bound_partition import bound_partitions
from anabranch.runtime.protocols import Step

#: (fetches, targets, feeds) -> a prepared step
Prepare = Callable[[Sequence[Tensor], Sequence[Operation], Sequence[Tensor]], Step]
#: (step, values of its feeds) -> values of its fetches
Run = Callable[[Step, Sequence[Any]], list[Any]]


class PartialRuns:
    """The partial runs of a session, by handle. Prepared pieces are shared by runs with the same declarations."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._runs: dict[str, _PartialRun] = {}
        self._numbers = itertools.count()
        #: the pieces, by what was run before them, and what they feed and fetch
        self._pieces = Table()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._runs)

    def set_up(self, mapping: FetchMapping, feeds: list[Tensor]) -> str:
        """Declares a run; returns its handle.

        Raises:
            InvalidArgumentError: nothing is fetched.
        """
        if not mapping.tensors and not mapping.targets:
            raise InvalidArgumentError(None, None, "partial_run_setup needs at least one fetch")
        handle = f"partial_run_{next(self._numbers)}"
        self._runs[handle] = _PartialRun(self._prepare, self._pieces, mapping, feeds)
        return handle

    def advance(
        self, handle: str, mapping: FetchMapping, tensors: Sequence[Tensor], values: Sequence[Any], run: Run
    ) -> nest.Structure:
        """Runs the next piece: what the fetches need and has not run yet.

        Raises:
            InvalidArgumentError: something was not declared at set-up, was fed or fetched before, or is not fed yet;
                or the run is over, because everything was fetched, or a piece failed.
            OpError: the piece failed.
        """
        partial = self._runs.get(handle)
        if partial is None:
            raise InvalidArgumentError(None, None, f"there is no partial run {handle!r}; call partial_run_setup first")
        piece = partial.next_piece(mapping, tensors)
        try:
            results = partial.advance(piece, mapping, tensors, values, run)
        except BaseException:
            self._runs.pop(handle, None)  # what it had computed so far is lost
            raise
        if partial.is_over:
            self._runs.pop(handle, None)
        return results

    def close(self) -> None:
        """Ends all runs, and releases the prepared pieces."""
        self._runs.clear()
        for piece in list(self._pieces.values()):
            piece.release()
        self._pieces.clear()


class _PreparedPiece:
    """One piece of a partial run, prepared; runs with the same declarations and earlier pieces share it.

    Attributes:
        operations: what it runs.
        fetches: what it computes, besides what is known before: for the caller, and for later pieces.
        feeds: what it takes: everything that is known then.
    """

    def __init__(self, operations: set[Operation], fetches: list[Tensor], feeds: list[Tensor], step: Step) -> None:
        self.operations, self.fetches, self.feeds, self.step = operations, fetches, feeds, step
        self.used = 0

    def release(self) -> None:
        """See `core.bounded.Kept`."""
        self.step.release()


class _PartialRun:
    """A step that runs in pieces: what earlier pieces computed is fed to later ones."""

    def __init__(self, prepare: Prepare, pieces: Table, mapping: FetchMapping, feeds: list[Tensor]) -> None:
        self._prepare_step, self._pieces = prepare, pieces
        self._open_fetches = set(mapping.tensors)
        self._open_targets = set(mapping.targets)
        self._open_feeds = set(feeds)
        self._all = (mapping.tensors, mapping.targets)
        self._values: dict[Tensor, Any] = {}
        self._done: set[Operation] = set()
        #: what was declared, and what each piece so far fed and fetched
        self._history: tuple[Any, ...] = (tuple(mapping.tensors), tuple(mapping.targets), tuple(feeds))

    @property
    def is_over(self) -> bool:
        """Whether all that was declared was fed and fetched."""
        return not (self._open_fetches or self._open_targets or self._open_feeds)

    def next_piece(self, mapping: FetchMapping, tensors: Sequence[Tensor]) -> _PreparedPiece:
        """What runs for these fetches when these are fed.

        Raises:
            InvalidArgumentError: see `PartialRuns.advance`.
        """
        self._check(mapping, tensors)
        # what has run before decides what this piece still has to run, so that it is part of the key
        history = (self._history, tuple(tensors), tuple(mapping.tensors), tuple(mapping.targets))
        piece: _PreparedPiece | None = self._pieces.get(history)
        if piece is None:
            piece = self._prepare(mapping, tensors)
            bound_partitions.add(self._pieces, history, piece)
        self._history = history
        piece.used = next(ticks)
        return piece

    def _prepare(self, mapping: FetchMapping, tensors: Sequence[Tensor]) -> _PreparedPiece:
        known = {*self._values, *tensors}
        operations, missing = self._needed(known, mapping.tensors, mapping.targets)
        if missing:
            raise InvalidArgumentError(
                None, None, f"this piece of the partial run needs {missing[0].name!r}, which is not fed yet"
            )
        kept = self._needed_later(known, operations)
        fetches = [t for t in dict.fromkeys([*mapping.tensors, *kept]) if t not in known]
        targets = [op for op in mapping.targets if op not in self._done]
        feeds = [*self._values, *(t for t in tensors if t not in self._values)]
        return _PreparedPiece(operations, fetches, feeds, self._prepare_step(fetches, targets, feeds))

    def advance(
        self, piece: _PreparedPiece, mapping: FetchMapping, tensors: Sequence[Tensor], values: Sequence[Any], run: Run
    ) -> Any:
        """Runs a piece; returns what the caller fetches."""
        self._values.update(zip(tensors, values, strict=True))
        results = run(piece.step, [self._values[t] for t in piece.feeds])
        self._values.update(zip(piece.fetches, results, strict=True))
        # an operation runs once in a partial run, whoever asks for it later
        self._done |= piece.operations
        self._open_feeds -= set(tensors)
        self._open_fetches -= set(mapping.tensors)
        self._open_targets -= set(mapping.targets)
        return mapping.arrange([self._values[t] for t in mapping.tensors])

    def _check(self, mapping: FetchMapping, feeds: Sequence[Tensor]) -> None:
        for tensor in feeds:
            if tensor not in self._open_feeds:
                raise InvalidArgumentError(
                    None,
                    tensor.op,
                    f"the feed {tensor.name!r} was not declared in partial_run_setup, or was fed already",
                )
        for tensor in mapping.tensors:
            if tensor not in self._open_fetches:
                raise InvalidArgumentError(
                    None,
                    tensor.op,
                    f"the fetch {tensor.name!r} was not declared in partial_run_setup, or was fetched already",
                )

    def _needed(
        self, known: set[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]
    ) -> tuple[set[Operation], list[Tensor]]:
        """The operations that must still run for these, and those declared feeds they need that have no value."""
        needed: set[Operation] = set()
        missing: list[Tensor] = []
        stack: list[Any] = [*fetches, *targets]
        while stack:
            item = stack.pop()
            if isinstance(item, Tensor):
                if item in known:
                    continue
                if item in self._open_feeds:
                    missing.append(item)
                    continue
                item = item.op
            if item not in needed and item not in self._done:
                needed.add(item)
                stack.extend(item.inputs)
                stack.extend(item.control_inputs)
        return needed, missing

    def _needed_later(self, known: set[Tensor], piece: set[Operation]) -> list[Tensor]:
        """Outputs of this piece that operations of later pieces take."""
        everything, _ = self._needed(known, *self._all)
        later = everything - piece
        return [t for op in later for t in op.inputs if t.op in piece]
