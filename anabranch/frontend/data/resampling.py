"""Datasets with another distribution of classes (WP4.5).

Let p be the classes' part of a dataset and t what is wanted. An element is taken from the dataset itself with the
probability m, the least of all t / p, and else from what is left of it when elements of class i are kept with the
probability (t_i / p_i - m) / (M - m), where M is the greatest of all t / p. Then all classes come out as wanted, and as
little as possible is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.experimental import Transformation, sample_from_datasets, scan, unbatch
from anabranch.frontend.framework import get_seed
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: the distribution is estimated anew after so many elements
_BATCH: Final = 32
#: and from this many elements of each class that were never seen
_SEEN_BEFORE: Final = 10


def rejection_resample(
    class_func: Callable[..., Any],
    target_dist: TensorLike,
    initial_dist: TensorLike | None = None,
    seed: int | None = None,
) -> Transformation:
    """Leaves elements out such that classes come in given proportions.

    Args:
        class_func: element -> its class, an int32 scalar in [0, classes).
        target_dist: the proportions wanted: floats, shape [classes].
        initial_dist: those of the dataset, likewise; None: they are estimated from the elements as they come.
        seed: of what is left out.

    Returns:
        A transformation for `Dataset.apply`; its elements are pairs: class, element.
    """

    def transform(dataset: Dataset) -> Dataset:
        target = convert_to_tensor(target_dist, name="target_dist")
        classes = dataset.map(class_func)
        both = Dataset.zip((classes, dataset))
        if initial_dist is None:
            chances = _estimated(classes, target).map(lambda initial: _chances(initial, target))
        else:
            initial = convert_to_tensor(initial_dist, target.dtype, name="initial_dist")
            chances = Dataset.from_tensors(_chances(initial, target)).repeat()
            unchanged = _known_part(initial, target)
            if unchanged == 1:
                return both
            if unchanged == 0:
                return _kept(classes, chances, dataset, seed)
        weights = chances.map(lambda _, part: raw.Pack([part, raw.Sub(_one(part), part)]))
        return sample_from_datasets([both, _kept(classes, chances, dataset, seed)], weights, seed)

    return transform


def _one(like: Tensor) -> Tensor:
    one: Tensor = raw.Cast(1, DstT=like.dtype)
    return one


def _kept(classes: Dataset, chances: Dataset, dataset: Dataset, seed: int | None) -> Dataset:
    """The elements that are not left out, with their classes."""
    seeds = [part or 0 for part in get_seed(seed)]

    def keeps(number: Tensor, chance: tuple[Tensor, Tensor], element: Structure) -> Tensor:
        kept = raw.GatherV2(chance[0], number, 0)
        drawn = raw.RandomUniform(np.zeros(0, np.int32), dtype=kept.dtype, seed=seeds[0], seed2=seeds[1])
        result: Tensor = raw.Less(drawn, kept)
        result.set_shape([])
        return result

    together = Dataset.zip((classes, chances, dataset))
    return together.filter(keeps).map(lambda number, chance, element: (number, element)).prefetch(3)


def _ratio(initial: Tensor, target: Tensor) -> Tensor:
    # a class that is not there at all would be divided by zero
    tiny = np.finfo(initial.dtype.as_numpy_dtype).tiny
    ratio: Tensor = raw.RealDiv(target, raw.AddV2(initial, tiny))
    return ratio


def _chances(initial: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """How likely an element of each class is kept, and which part comes from the dataset itself."""
    ratio = _ratio(initial, target)
    least, greatest = raw.Min(ratio, 0), raw.Max(ratio, 0)
    return raw.RealDiv(raw.Sub(ratio, least), raw.Sub(greatest, least)), least


def _known_part(initial: Tensor, target: Tensor) -> float | None:
    """The part that comes from the dataset itself, where it is known when the graph is built."""
    values = constant_value(initial), constant_value(target)
    if values[0] is None or values[1] is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.min(values[1] / values[0]))


def _estimated(classes: Dataset, target: Tensor) -> Dataset:
    """The distribution of the classes seen so far, once for each element."""
    count = target.shape[0].value if target.shape.ndims == 1 else None
    counts: Tensor = raw.Fill(raw.Shape(target), np.int64(_SEEN_BEFORE))
    counts.set_shape([count])

    def update(seen: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        marks = raw.OneHot(batch, raw.Size(seen), np.int64(1), np.int64(0))
        total: Tensor = raw.AddV2(seen, raw.Sum(marks, 0))
        total.set_shape([count])
        parts = raw.Cast(
            raw.RealDiv(raw.Cast(total, DstT=dtypes.float64), raw.Cast(raw.Sum(total, 0), DstT=dtypes.float64)),
            DstT=target.dtype,
        )
        return total, raw.Tile(raw.ExpandDims(parts, 0), [_BATCH, 1])

    return classes.batch(_BATCH).apply(scan(counts, update)).apply(unbatch())
