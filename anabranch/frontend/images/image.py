"""Images: resizing and cropping; the rest of `tf.image` comes from `image_adjust`, `image_geometry`, `image_quality`.

Images are [height, width, channels], batches of them [batch, height, width, channels].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.framework import get_seed, name_scope
from anabranch.frontend.images.geometry import as_batch, from_batch, image_size, pad_to_bounding_box
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class ResizeMethod:
    """The methods of `resize_images`.

    Raises:
        nothing

    Example:
        >>> tf.image.ResizeMethod.BILINEAR, tf.image.ResizeMethod.NEAREST_NEIGHBOR
        (0, 1)
    """

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


# ---------------------------------------------------------------------- resizing
def resize_bilinear(
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Batches of images at another size, bilinearly interpolated; float32.

    Args:
        images: [batch, height, width, channels], any real dtype.
        size: the new height and width, known when the step is compiled.
        align_corners: the centres of the corner pixels stay where they are.
        name: of the operation.
        half_pixel_centers: pixels are areas whose centres lie at halves.

    Returns:
        float32 [batch, new height, new width, channels].

    Raises:
        ValueError: `images` has another rank, or `size` is no vector of two.

    Example:
        >>> sess.run(tf.image.resize_bilinear([[[[0.0], [4.0]]]], [1, 4]))[0, :, :, 0]
        array([[0., 2., 4., 4.]], dtype=float32)
    """
    return _resize("ResizeBilinear", images, size, align_corners, half_pixel_centers, name)


def resize_bicubic(
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Like `resize_bilinear`, with cubic interpolation of 4 x 4 pixels."""
    return _resize("ResizeBicubic", images, size, align_corners, half_pixel_centers, name)


def resize_nearest_neighbor(
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Like `resize_bilinear`, but each pixel is copied from the nearest one; keeps the dtype.

    Args:
        images: [batch, height, width, channels], any real dtype.
        size: the new height and width, an int32 vector.
        align_corners: the centres of the corner pixels stay where they are.
        name: of the operation.
        half_pixel_centers: pixels are areas whose centres lie at halves.

    Returns:
        [batch, new height, new width, channels], of the dtype of `images`.

    Raises:
        ValueError: `images` has another rank, or `size` is no vector of two.

    Example:
        >>> sess.run(tf.image.resize_nearest_neighbor([[[[1], [5]]]], [1, 4]))[0, :, :, 0]
        array([[1, 1, 5, 5]], dtype=int32)
    """
    return _resize("ResizeNearestNeighbor", images, size, align_corners, half_pixel_centers, name)


def _resize(
    op_type: str, images: TensorLike, size: TensorLike, corners: bool, centers: bool, name: str | None
) -> Tensor:
    result: Tensor = getattr(raw, op_type)(images, size, align_corners=corners, half_pixel_centers=centers, name=name)
    return result


def resize_area(images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None) -> Tensor:
    """Like `resize_bilinear`, but each pixel is the mean of the area that it covers in the old image."""
    result: Tensor = raw.ResizeArea(images, size, align_corners=align_corners, name=name)
    return result


_FUNCTIONS = {
    ResizeMethod.BILINEAR: resize_bilinear,
    ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor,
    ResizeMethod.BICUBIC: resize_bicubic,
    ResizeMethod.AREA: resize_area,
}


def resize_images(
    images: TensorLike,
    size: TensorLike,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """Images at another size, by any method; those of the constant size that is wanted are returned as they are.

    Args:
        images: [height, width, channels], or a batch [batch, height, width, channels]; real numbers.
        size: the new height and width, an int32 vector.
        method: a `ResizeMethod`. All but NEAREST_NEIGHBOR give float32.
        align_corners: the centres of the corner pixels stay where they are.
        preserve_aspect_ratio: the size is an upper bound; both sides are scaled alike.
        name: of the operation.

    Returns:
        Images [batch, new height, new width, channels], or one without batch.

    Raises:
        ValueError: images or size of another rank, or an unknown method.

    Example:
        >>> sess.run(tf.image.resize_images([[[0.0], [4.0]]], [1, 4]))[:, :, 0]
        array([[0., 2., 4., 4.]], dtype=float32)
    """
    with name_scope(name, "resize", [images, size]):
        batch, single = as_batch(images)
        wanted = convert_to_tensor(size, dtypes.int32, name="size")
        if not wanted.shape.is_compatible_with([2]):
            raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
        if method not in _FUNCTIONS:
            raise ValueError("Resize method is not implemented.")
        known = constant_value(wanted)
        if preserve_aspect_ratio:
            # a size that is computed is never compared, so that the result has the method's dtype
            wanted, known = _fitting(batch, wanted), None
        dims = batch.shape.dims_tuple
        if known is None or dims is None or dims[1:3] != tuple(int(n) for n in known):
            batch = _FUNCTIONS[method](batch, wanted, align_corners=align_corners)
        return from_batch(batch, single)


resize = resize_images


def _fitting(batch: Tensor, wanted: Tensor) -> Tensor:
    """The largest size of the images' proportions within `wanted`."""
    height, width = (raw.Cast(n, DstT=dtypes.float32) for n in image_size(batch))
    old = raw.Pack([height, width])
    factor = raw.Min(raw.RealDiv(raw.Cast(wanted, DstT=dtypes.float32), old), np.array([0], np.int32))
    size: Tensor = raw.Cast(raw.Round(raw.Mul(old, factor)), DstT=dtypes.int32)
    return size


def resize_image_with_pad(
    image: TensorLike,
    target_height: TensorLike,
    target_width: TensorLike,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
) -> Tensor:
    """Resizes without distortion to fit within a size, and fills up with zeros on both sides."""
    with name_scope(None, "resize_image_with_pad", [image]):
        batch, single = as_batch(image, unranked_is_single=True)
        old = raw.Pack([raw.Cast(n, DstT=dtypes.float32) for n in image_size(batch)])
        wanted = raw.Cast(raw.Pack([target_height, target_width]), DstT=dtypes.float32)
        exact = raw.RealDiv(old, raw.Max(raw.RealDiv(old, wanted), np.array([0], np.int32)))
        size = raw.Cast(raw.Floor(exact), DstT=dtypes.int32)
        resized = _FUNCTIONS[method](batch, size, align_corners=align_corners)
        rest = raw.Floor(raw.RealDiv(raw.Sub(wanted, exact), np.float32(2)))
        top, left = raw.Unpack(raw.Cast(raw.Maximum(rest, np.float32(0)), DstT=dtypes.int32), num=2)
        padded = pad_to_bounding_box(resized, top, left, target_height, target_width)
        return from_batch(padded, single)


# ---------------------------------------------------------------------- boxes
def crop_and_resize(
    image: TensorLike,
    boxes: TensorLike,
    box_ind: TensorLike | None = None,
    crop_size: TensorLike | None = None,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    name: str | None = None,
    box_indices: TensorLike | None = None,
) -> Tensor:
    """Cuts boxes out of images, all resized to one size; differentiable in the images and the boxes.

    Args:
        image: [batch, height, width, depth], any real dtype.
        boxes: [boxes, 4], float32: y1, x1, y2, x2, where 1 is the last row or column.
        box_ind: [boxes], int32: which image each box belongs to; `box_indices` is another name.
        crop_size: the crops' height and width.
        extrapolation_value: what lies outside the image.

    Returns:
        [boxes, crop height, crop width, depth], float32.
    """
    box_ind = one_of("box_indices", box_indices, "box_ind", box_ind)
    result: Tensor = raw.CropAndResize(
        image, boxes, box_ind, crop_size, method=method, extrapolation_value=extrapolation_value, name=name
    )
    return result


def extract_glimpse(
    input: TensorLike,
    size: TensorLike,
    offsets: TensorLike,
    centered: bool = True,
    normalized: bool = True,
    uniform_noise: bool = True,
    name: str | None = None,
) -> Tensor:
    """Cuts a window of one size out of each image, with noise where it reaches beyond the image.

    Args:
        input: [batch, height, width, channels], float32.
        size: the windows' height and width.
        offsets: [batch, 2], float32: y and x of each window's middle.
        centered: offsets begin in the middle of the image, in halves of its size; otherwise at its upper left corner.
        normalized: offsets are parts of the image's size; otherwise they are pixels.
        uniform_noise: as in TensorFlow 1.15, noise is uniform whatever this says, between the image's least and
            greatest value; `tf.raw_ops.ExtractGlimpse` has `noise="gaussian"` and `noise="zero"`.

    Returns:
        [batch, window height, window width, channels], float32. No gradient flows through it.

    Raises:
        ValueError: the shapes do not fit.
    """
    result: Tensor = raw.ExtractGlimpse(
        input, size, offsets, centered=centered, normalized=normalized, uniform_noise=uniform_noise, name=name
    )
    return result


def _threshold(value: TensorLike) -> Tensor:
    return convert_to_tensor(value, dtypes.float32)


def non_max_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """Indices of the best boxes, the best first, that do not overlap a better one by more than a threshold.

    Args:
        boxes: [boxes, 4]: two opposite corners each, y1, x1, y2, x2.
        scores: [boxes].
        max_output_size: how many at most.
        iou_threshold: of the intersection over the union.
        score_threshold: boxes with a lower score do not count.
    """
    with name_scope(name, "non_max_suppression"):
        result: Tensor = raw.NonMaxSuppressionV3(
            boxes, scores, max_output_size, _threshold(iou_threshold), _threshold(score_threshold)
        )
        return result


def non_max_suppression_with_scores(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    soft_nms_sigma: TensorLike = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Like `non_max_suppression`, with the chosen boxes' scores; with `soft_nms_sigma` > 0 overlaps lower scores."""
    with name_scope(name, "non_max_suppression_with_scores"):
        outputs = raw.NonMaxSuppressionV5(
            boxes, scores, max_output_size, *(_threshold(v) for v in (iou_threshold, score_threshold, soft_nms_sigma))
        )
        return outputs[0], outputs[1]


def non_max_suppression_padded(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    pad_to_max_output_size: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Like `non_max_suppression`, filled up with zeros on demand; also returns how many indices are valid."""
    with name_scope(name, "non_max_suppression_padded"):
        outputs = raw.NonMaxSuppressionV4(
            boxes,
            scores,
            max_output_size,
            _threshold(iou_threshold),
            _threshold(score_threshold),
            pad_to_max_output_size=pad_to_max_output_size,
        )
        return outputs[0], outputs[1]


def draw_bounding_boxes(
    images: TensorLike, boxes: TensorLike, name: str | None = None, colors: TensorLike | None = None
) -> Tensor:
    """The images with the borders of boxes drawn on them.

    Args:
        images: [batch, height, width, 1 to 4 channels], float32 or half.
        boxes: [batch, boxes, 4], float32: y1, x1, y2, x2, where 1 is the last row or column.
        colors: [colours, channels], used in turn; default: ten different ones.
    """
    if colors is None:
        result: Tensor = raw.DrawBoundingBoxes(images, boxes, name=name)
    else:
        result = raw.DrawBoundingBoxesV2(images, boxes, colors, name=name)
    return result


class DistortedBox(NamedTuple):
    """A box as arguments of `tf.slice`, and as a box to draw."""

    begin: Tensor
    size: Tensor
    bboxes: Tensor


def sample_distorted_bounding_box(
    image_size: TensorLike,
    bounding_boxes: TensorLike,
    seed: int | None = None,
    seed2: int | None = None,
    min_object_covered: TensorLike = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> DistortedBox:
    """A random box of an image that covers enough of some given object.

    Args:
        image_size: height, width, channels: an integer vector.
        bounding_boxes: [batch, boxes, 4], float32: the objects, y1, x1, y2, x2 in [0, 1].
        seed, seed2: of the random numbers.
        min_object_covered: the share of an object that the box must contain.
        aspect_ratio_range: of the width to the height; default [0.75, 1.33].
        area_range: the box's share of the image; default [0.05, 1].
        max_attempts: after that many (default 100) the whole image is taken.
        use_image_if_no_bounding_boxes: without objects, take any box; otherwise that is an error.
        name: of the operation.

    Returns:
        A named tuple: `begin` and `size` for `tf.slice`, and `bboxes`, [1, 1, 4], for `draw_bounding_boxes`.

    Raises (in the step):
        InvalidArgumentError: an object lies outside the image, or a range is empty.

    Example:
        >>> box = tf.image.sample_distorted_bounding_box([100, 100, 3], [[[0.2, 0.2, 0.8, 0.8]]])
        >>> begin, size, _ = sess.run(box)
        >>> begin.shape, bool((size[:2] <= 100).all())
        ((3,), True)
    """
    seeds = get_seed(seed) if seed2 is None else (seed, seed2)
    with name_scope(name, "sample_distorted_bounding_box"):
        return DistortedBox(
            *raw.SampleDistortedBoundingBoxV2(
                image_size,
                bounding_boxes,
                min_object_covered,
                seed=seeds[0] or 0,
                seed2=seeds[1] or 0,
                aspect_ratio_range=aspect_ratio_range,
                area_range=area_range,
                max_attempts=max_attempts,
                use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
            )
        )


# ---------------------------------------------------------------------- files
def encode_png(image: TensorLike, compression: int = -1, name: str | None = None) -> Tensor:
    """The PNG file of an image: uint8 or uint16, [height, width, 1 to 4 channels]."""
    result: Tensor = raw.EncodePng(image, compression=compression, name=name)
    return result


def decode_png(
    contents: TensorLike, channels: int = 0, dtype: DTypeLike = dtypes.uint8, name: str | None = None
) -> Tensor:
    """The pixels of a PNG file, [height, width, channels].

    Args:
        contents: a scalar string.
        channels: 1 (grey), 2 (grey, alpha), 3 (RGB), 4 (RGBA), or 0 for what the file has.
        dtype: uint8 or uint16.
        name: of the operation.

    Returns:
        A tensor of shape [height, width, channels].

    Raises:
        TypeError: another dtype.

    Raises (in the step):
        InvalidArgumentError: the data do not decode, or not to so many channels.

    Example:
        >>> file = tf.image.encode_png(np.full([2, 3, 1], 7, np.uint8))
        >>> sess.run(tf.image.decode_png(file))[:, :, 0]
        array([[7, 7, 7],
               [7, 7, 7]], dtype=uint8)
    """
    result: Tensor = raw.DecodePng(contents, channels=channels, dtype=dtype, name=name)
    return result
