"""tf.nn.fractional_max_pool and fractional_avg_pool: pooling by regions of different sizes."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def fractional_max_pool(
    value: TensorLike,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest number of each of regions whose sizes differ by one, so that images shrink by a fraction.

    Args:
        value: float32, float64, int32 or int64, shape [batch, rows, columns, channels].
        pooling_ratio: [1, rows, columns, 1]: by how much both axes shrink, numbers of 1 or more.
        pseudo_random: whether the sizes follow a line (a disjoint sequence of little variation) instead of being
            shuffled.
        overlapping: whether neighbours share an element.
        deterministic: whether the regions are drawn once for each operation, and not in each run.
        seed, seed2: of the regions; 0 where they are not `deterministic`.
        name: of the operation.

    Returns:
        `output`, and the regions' limits, `row_pooling_sequence` and `col_pooling_sequence`, int64 vectors.

    Raises:
        ValueError: the ratios are too small, or larger than the images; a seed without `deterministic`.
    """
    return raw.FractionalMaxPool(  # type: ignore[no-any-return]
        value,
        pooling_ratio=pooling_ratio,
        pseudo_random=pseudo_random,
        overlapping=overlapping,
        deterministic=deterministic,
        seed=seed,
        seed2=seed2,
        name=name,
    )


def fractional_avg_pool(
    value: TensorLike,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each of regions whose sizes differ by one; integers are cut off.

    Args, returns and errors are those of `fractional_max_pool`.
    """
    return raw.FractionalAvgPool(  # type: ignore[no-any-return]
        value,
        pooling_ratio=pooling_ratio,
        pseudo_random=pseudo_random,
        overlapping=overlapping,
        deterministic=deterministic,
        seed=seed,
        seed2=seed2,
        name=name,
    )
