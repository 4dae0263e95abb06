"""What libraries ask of `tensorflow.python.tpu.tpu_function`: how many shards the computation being built has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class TpuContext:
    """The number of shards of the computation that is being built for TPUs; None: none is."""

    def __init__(self) -> None:
        self._number_of_shards: int | None = None

    @property
    def number_of_shards(self) -> int | None:
        """The number; it is None here but inside of `tpu_shard_context`."""
        return self._number_of_shards

    def set_number_of_shards(self, number_of_shards: int | None) -> None:
        """Sets the number."""
        self._number_of_shards = number_of_shards


_context = TpuContext()


def get_tpu_context() -> TpuContext:
    """The context of the process."""
    return _context


@contextlib.contextmanager
def tpu_shard_context(number_of_shards: int) -> Iterator[None]:
    """A block in which a computation has that many shards.

    Raises:
        NotImplementedError: it is inside of another.
    """
    if _context.number_of_shards is not None:
        raise NotImplementedError("tpu_shard_context cannot be nested.")
    _context.set_number_of_shards(number_of_shards)
    try:
        yield
    finally:
        _context.set_number_of_shards(None)
