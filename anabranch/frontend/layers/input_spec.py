"""What a layer accepts as an input."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.graph.operation import Tensor


class InputSpec:
    """What a layer asks of an input.

    Args:
        dtype: its dtype.
        shape: its shape; None among the sizes allows any.
        ndim, max_ndim, min_ndim: its rank, or bounds of it.
        axes: sizes of single dimensions, by position.

    Raises:
        TypeError: a position in `axes` is no integer.
        ValueError: one is beyond the rank.
    """

    def __init__(
        self,
        dtype: DTypeLike | None = None,
        shape: TensorShape | Sequence[int | None] | None = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int | None] | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        try:
            self.axes = {int(k): v for k, v in (axes or {}).items()}
        except (ValueError, TypeError):
            raise TypeError(f"The keys in axes must be integers, got {[*(axes or ())]}.") from None
        last = max(self.axes, default=0)
        rank = self.ndim or self.max_ndim
        if rank and last >= rank:
            raise ValueError(f"Axis {last} is greater than the maximum allowed value: {rank - 1}")

    def __repr__(self) -> str:
        given = {k: v for k, v in vars(self).items() if v}
        return f"InputSpec({', '.join(f'{k}={v}' for k, v in given.items())})"

    def check(self, tensor: Tensor, index: int, layer_name: str) -> None:
        """Raises ValueError where `tensor` does not have what is asked for."""
        problem = self._problem(tensor)
        if problem:
            raise ValueError(
                f"Input {index} of layer {layer_name} is incompatible with the layer: {problem}. "
                f"Full shape received: {tensor.shape}"
            )

    def _problem(self, tensor: Tensor) -> str | None:
        shape = tensor.shape
        if self.dtype is not None and as_dtype(self.dtype) is not tensor.dtype.base_dtype:
            return f"expected dtype={as_dtype(self.dtype).name}, found dtype={tensor.dtype.name}"
        needs_rank = self.ndim is not None or self.min_ndim is not None or self.max_ndim is not None
        if shape.ndims is None:
            return "its rank is undefined, but the layer requires a defined rank" if needs_rank else None
        if self.ndim is not None and shape.ndims != self.ndim:
            return f"expected ndim={self.ndim}, found ndim={shape.ndims}"
        if self.max_ndim is not None and shape.ndims > self.max_ndim:
            return f"expected max_ndim={self.max_ndim}, found ndim={shape.ndims}"
        if self.min_ndim is not None and shape.ndims < self.min_ndim:
            return f"expected min_ndim={self.min_ndim}, found ndim={shape.ndims}"
        sizes = shape.as_list()
        for axis, value in self.axes.items():
            if value is not None and sizes[axis] not in (value, None):
                return f"expected axis {axis} of input shape to have value {value} but received {sizes[axis]}"
        if self.shape is not None:
            for wanted, actual in zip(TensorShape(self.shape).as_list(), sizes, strict=True):
                if wanted is not None and actual is not None and wanted != actual:
                    return f"expected shape={self.shape}, found shape={sizes}"
        return None
