"""What datasets share beyond one walk: generators of seeds, pools of threads (WP4.5)."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from anabranch.errors import InvalidArgumentError
from anabranch.state.dataset_transforms import ShuffleDataset
from anabranch.state.datasets import DatasetIterator, Elements, Path, RandomSequence, UnaryDataset


class SeedGenerator:
    """Gives two seeds for each pass through a shuffled dataset. Thread-safe."""

    def __init__(self, seed: int, seed2: int) -> None:
        self._lock = threading.Lock()
        self._random = RandomSequence(seed, seed2)

    def next(self) -> tuple[int, int]:
        """The seeds of the next pass."""
        with self._lock:
            return self._random.below(2**31 - 1), self._random.below(2**31 - 1)


class ShuffledBySeeds(UnaryDataset):
    """Shuffled in another way in each pass, whoever makes it: by seeds of a generator that several may share."""

    def __init__(self, source: Elements, size: int, seeds: SeedGenerator) -> None:
        super().__init__(source)
        if size < 1:
            raise InvalidArgumentError(None, None, f"buffer_size must be greater than zero, got {size}.")
        self.size, self.seeds = size, seeds

    def iterator(self, path: Path = ()) -> DatasetIterator:
        # a position of the pass brings its seeds with it
        return ShuffleDataset(self.source, self.size, self.seeds.next(), reshuffle=True).iterator(path)


@dataclass(frozen=True)
class ThreadPool:
    """How many threads a pipeline may use. Threads are made where elements are computed ahead, whatever it says."""

    threads: int
    name: str
