"""The places of pieces of a partitioned variable in the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import EllipsisType

from anabranch import errors


@dataclasses.dataclass(frozen=True)
class SliceInfo:
    """A box in a tensor, as `tf.Variable.SaveSliceInfo` describes it.

    Attributes:
      full_name: the name of the whole variable in a checkpoint.
      full_shape: the shape of the whole.
      var_offset: per dimension, where the box begins.
      var_shape: per dimension, how long the box is.

    Raises:
      InvalidArgumentError: the ranks differ, or the box leaves the whole.
    """

    full_name: str
    full_shape: tuple[int, ...]
    var_offset: tuple[int, ...]
    var_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        for field in ("full_shape", "var_offset", "var_shape"):
            object.__setattr__(self, field, tuple(int(size) for size in getattr(self, field)))
        ranks_agree = len(self.full_shape) == len(self.var_offset) == len(self.var_shape)
        if not ranks_agree or not all(
            0 <= offset <= offset + length <= size
            for size, offset, length in zip(self.full_shape, self.var_offset, self.var_shape, strict=True)
        ):
            raise errors.InvalidArgumentError(
                None,
                None,
                f"The slice of {self.full_name!r} with offsets {self.var_offset} and shape {self.var_shape} does not "
                f"lie in the full shape {self.full_shape}.",
            )

    @property
    def spec(self) -> str:
        """The form that Save and Restore ops carry: the full shape, then `offset,length` per dimension.

        >>> SliceInfo("w", (10, 4), (5, 0), (5, 4)).spec
        '10 4 5,5:0,4'
        """
        sizes = "".join(f"{size} " for size in self.full_shape)
        return sizes + ":".join(
            f"{offset},{length}" for offset, length in zip(self.var_offset, self.var_shape, strict=True)
        )

    @classmethod
    def from_spec(cls, full_name: str, spec: str) -> SliceInfo:
        """Parses `spec`, in which `-` stands for the whole of a dimension.

        Raises:
          InvalidArgumentError: that is no slice of a tensor.
        """
        *sizes, extents = spec.split() or [""]
        try:
            full_shape = [int(size) for size in sizes]
            pairs = [
                (0, size) if extent == "-" else tuple(map(int, extent.split(",")))
                for size, extent in zip(full_shape, extents.split(":"), strict=True)
            ]
            offsets, lengths = [offset for offset, _ in pairs], [length for _, length in pairs]
        except ValueError as error:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"{spec!r} is no slice of tensor {full_name!r}: expected the full shape and, per dimension, "
                "'offset,length' or '-', such as '10 4 0,5:-'.",
            ) from error
        return cls(full_name, tuple(full_shape), tuple(offsets), tuple(lengths))

    @classmethod
    def from_slices(cls, full_name: str, full_shape: Sequence[int], slices: Sequence[slice]) -> SliceInfo:
        """The box that Python slices of step 1 cut out; dimensions that are not mentioned are whole.

        Raises:
          InvalidArgumentError: more slices than dimensions, or a step other than 1.
        """
        if len(slices) > len(full_shape) or any(part.step not in (None, 1) for part in slices):
            raise errors.InvalidArgumentError(
                None,
                None,
                f"{slices} is no slice of {full_name!r}, whose shape is {tuple(full_shape)}: expected at most "
                f"{len(full_shape)} slices of step 1.",
            )
        whole = [*slices, *[slice(None)] * (len(full_shape) - len(slices))]
        bounds = [part.indices(size) for part, size in zip(whole, full_shape, strict=True)]
        offsets = tuple(start for start, _, _ in bounds)
        return cls(full_name, tuple(full_shape), offsets, tuple(max(0, stop - start) for start, stop, _ in bounds))

    def intersection(self, other: SliceInfo) -> SliceInfo | None:
        """The box that both have in common, or None."""
        starts = tuple(map(max, self.var_offset, other.var_offset))
        ends = tuple(
            min(a + n, b + m)
            for a, n, b, m in zip(self.var_offset, self.var_shape, other.var_offset, other.var_shape, strict=True)
        )
        lengths = tuple(end - start for start, end in zip(starts, ends, strict=True))
        if any(length <= 0 for length in lengths):
            return None
        return SliceInfo(self.full_name, self.full_shape, starts, lengths)

    def relative_to(self, outer: SliceInfo) -> tuple[slice | EllipsisType, ...]:
        """This box as an index into an array that holds the box `outer`, in which it must lie.

        The index ends with an ellipsis, so that it cuts a view out of a scalar, too.
        """
        starts = [inner - base for inner, base in zip(self.var_offset, outer.var_offset, strict=True)]
        parts = (slice(start, start + length) for start, length in zip(starts, self.var_shape, strict=True))
        return (*parts, ...)


def find_overlap(boxes: Sequence[SliceInfo]) -> tuple[SliceInfo, SliceInfo] | None:
    """Two boxes of one tensor that have an element in common, or None.

    The boxes are visited in the order in which they begin along the dimension that they cut most; each is compared with
    those that have not ended there yet.
    """
    filled = [box for box in boxes if all(box.var_shape)]
    if len(filled) < 2 or not filled[0].full_shape:
        return (filled[0], filled[1]) if len(filled) > 1 else None
    at = max(range(len(filled[0].full_shape)), key=lambda axis: len({box.var_offset[axis] for box in filled}))
    open_boxes: list[SliceInfo] = []
    for box in sorted(filled, key=lambda box: box.var_offset[at]):
        open_boxes = [other for other in open_boxes if other.var_offset[at] + other.var_shape[at] > box.var_offset[at]]
        for other in open_boxes:
            if box.intersection(other) is not None:
                return other, box
        open_boxes.append(box)
    return None
