"""Dilated windows by an operation that knows none: each residue class of positions becomes an image of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.rearranging import batch_to_space_nd, required_space_to_batch_paddings, space_to_batch_nd
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def with_space_to_batch(
    input: TensorLike,
    dilation_rate: TensorLike,
    padding: str,
    op: Callable[[Tensor, int, str], Tensor],
    filter_shape: TensorLike | None = None,
    spatial_dims: Sequence[int] | None = None,
    data_format: str | None = None,
) -> Tensor:
    """What `op` gives for an input whose positions lie `dilation_rate` apart.

    Several calls can be done under one change to the batch and back: `op` may be a chain of operations.

    Args:
        input: rank at least the last of `spatial_dims` + 1.
        dilation_rate: positive integers, [spatial dimensions], known when the graph is built.
        padding: "VALID" or "SAME".
        op: called with the rearranged input, the number of spatial dimensions, and its padding; gives a tensor of the
            same rank.
        filter_shape: the spatial shape of the window, for the padding "SAME".
        spatial_dims: which dimensions are spatial, increasing, from 1; default: those after the first, or after the
            second where `data_format` begins with "NC".
        data_format: such as "NHWC".

    Raises:
        ValueError: the arguments do not go together.
    """
    tensor = convert_to_tensor(input, name="input")
    given = constant_value(convert_to_tensor(dilation_rate, np.int32, name="dilation_rate"))
    if given is None or given.ndim != 1 or given.size < 1 or given.min() < 1:
        raise ValueError(f"dilation_rate must be a vector of known positive numbers, got {dilation_rate!r}")
    rates = [int(rate) for rate in given]
    if padding not in ("VALID", "SAME"):
        raise ValueError(f"Invalid padding method {padding!r}; it must be 'VALID' or 'SAME'")
    first = 2 if data_format is not None and data_format.startswith("NC") else 1
    dims = list(range(first, first + len(rates))) if spatial_dims is None else sorted(int(d) for d in spatial_dims)
    if len(dims) != len(rates) or dims[0] < 1 or len(set(dims)) != len(dims):
        raise ValueError(f"spatial_dims must be {len(rates)} different numbers from 1, got {spatial_dims}")
    tensor.shape.with_rank_at_least(dims[-1] + 1)
    if max(rates) == 1:
        return op(tensor, len(rates), padding)
    base = None if padding == "VALID" else _window_paddings(filter_shape, rates)
    lengths = raw.GatherV2(raw.Shape(tensor), np.array(dims, np.int32), 0)
    paddings, crops = required_space_to_batch_paddings(lengths, np.array(rates, np.int32), base)
    blocks = [rates[dims.index(d)] if d in dims else 1 for d in range(1, dims[-1] + 1)]
    rearranged = space_to_batch_nd(tensor, blocks, _for_all(paddings, dims))
    result = op(rearranged, len(rates), "VALID")
    return batch_to_space_nd(result, blocks, _for_all(crops, dims))


def _window_paddings(filter_shape: TensorLike | None, rates: list[int]) -> Tensor:
    """[spatial dimensions, 2]: what a dilated window reaches beyond the edges, the odd one behind."""
    if filter_shape is None:
        raise ValueError("filter_shape must be specified for SAME padding")
    window = raw.StridedSlice(convert_to_tensor(filter_shape, np.int32), [0], [len(rates)], [1])
    beyond = raw.Mul(raw.Sub(window, 1), np.array(rates, np.int32))
    before = raw.FloorDiv(beyond, 2)
    paddings: Tensor = raw.Pack([before, raw.Sub(beyond, before)], axis=1)
    return paddings


def _for_all(pairs: Tensor, dims: list[int]) -> Tensor:
    """Pairs for all dimensions from 1 to the last of `dims`: none for those that are not among them."""
    rows = np.array([dims.index(d) if d in dims else len(dims) for d in range(1, dims[-1] + 1)], np.int32)
    spread: Tensor = raw.GatherV2(raw.ConcatV2([pairs, np.zeros((1, 2), np.int32)], 0), rows, 0)
    return spread
