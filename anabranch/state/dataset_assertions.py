"""A dataset that says which ones must follow it (WP4.5): for tests of programs that build pipelines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from anabranch.errors import InvalidArgumentError
from anabranch.state.datasets import DatasetIterator, Elements, Path, UnaryDataset

_NAME: Final = re.compile(r"(?:Experimental)?(\w+?)Dataset(?:V\d+)?")


class FollowedDataset(UnaryDataset):
    """The same elements. `following`: the kinds of the datasets made of it, the nearest first: "Map", "Batch", ..."""

    def __init__(self, source: Elements, following: Sequence[str]) -> None:
        super().__init__(source)
        self.following = list(following)

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return self.source.iterator(path)


def check_what_follows(last: Elements) -> None:
    """Whether every `FollowedDataset` of a pipeline is followed by what it says.

    Raises:
        InvalidArgumentError: by something else.
    """
    behind: list[str] = []
    dataset: Elements | None = last
    while dataset is not None:
        if isinstance(dataset, FollowedDataset):
            problem = _problem(dataset.following, behind)
            if problem:
                raise dataset.attribute(InvalidArgumentError(None, None, problem))
        kind = getattr(dataset.origin, "type", "")
        named = _NAME.fullmatch(kind)
        behind.insert(0, named[1] if named else kind)
        dataset = dataset.source if isinstance(dataset, UnaryDataset) else None


def _problem(expected: Sequence[str], found: Sequence[str]) -> str:
    if len(found) < len(expected):
        return f"Asserted next {len(expected)} transformations but encountered only {len(found)}: {list(found)}."
    for at, (wanted, kind) in enumerate(zip(expected, found, strict=False)):
        if wanted != kind:
            return f"Asserted {wanted} transformation at offset {at} but encountered {kind} transformation instead."
    return ""
