"""`tf.contrib.image`: pictures whose pixels are moved, each by its own way or by those of a few points."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: the least squared distance: roots and logarithms of what is less have no gradients
_LEAST = 1e-10


def dense_image_warp(image: TensorLike, flow: TensorLike, name: str = "dense_image_warp") -> tf.Tensor:
    """Pictures whose pixel at (y, x) comes from (y, x) - flow, between pixels by the four around.

    Args:
        image: floats, [batch, height, width, channels], height and width at least 2.
        flow: floats, [batch, height, width, 2]: in y (rows) and x (columns). Outside of the picture the pixel at its
            border counts.
        name: of the operations.

    Returns:
        [batch, height, width, channels], of the picture's dtype.

    Raises:
        ValueError: a dimension is missing, or a side is known to be less than 2.
        InvalidArgumentError (in the step): a side is less than 2.

    Example:
        >>> picture = tf.constant([[[[0.0], [1.0]], [[2.0], [3.0]]]])
        >>> flow = tf.fill([1, 2, 2, 2], 0.5)
        >>> sess.run(tf.contrib.image.dense_image_warp(picture, flow))[0, :, :, 0].tolist()
        [[0.0, 0.5], [1.0, 1.5]]
    """
    with tf.name_scope(name, "dense_image_warp", [image, flow]):
        picture, ways = tf.convert_to_tensor(image), tf.convert_to_tensor(flow)
        for value, what in ((picture, "image"), (ways, "flow")):
            if value.shape.ndims != 4:
                raise ValueError(f"{what} must have four dimensions, got {value.shape}: see tf.expand_dims, tf.reshape")
        sides = picture.shape.as_list()[1:3]
        if any(side is not None and side < 2 for side in sides):
            raise ValueError(f"Grid height and width must be at least 2, got {sides}")
        size = tf.shape(picture)
        with tf.control_dependencies([tf.assert_greater_equal(size[1:3], 2, message="Grid sides must be at least 2.")]):
            height, width = tf.unstack(tf.identity(size)[1:3], 2)
        rows = tf.reshape(tf.cast(tf.range(height), ways.dtype), [1, -1, 1])
        columns = tf.reshape(tf.cast(tf.range(width), ways.dtype), [1, 1, -1])
        y, down = _between(rows - ways[..., 0], height, picture.dtype)
        x, across = _between(columns - ways[..., 1], width, picture.dtype)
        batch = tf.reshape(tf.range(size[0]), [-1, 1, 1]) + tf.zeros_like(y)

        def pixels(row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
            values: tf.Tensor = tf.gather_nd(picture, tf.stack([batch, row, column], axis=-1))
            return values

        above = pixels(y, x) * (1 - across) + pixels(y, x + 1) * across
        below = pixels(y + 1, x) * (1 - across) + pixels(y + 1, x + 1) * across
        result: tf.Tensor = above * (1 - down) + below * down
        result.set_shape(picture.shape)
        return result


def _between(places: tf.Tensor, size: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """The index before each place, of which another stands behind, and how far behind it the place is, 0 to 1."""
    before = tf.clip_by_value(tf.floor(places), tf.zeros([], places.dtype), tf.cast(size - 2, places.dtype))
    part = tf.clip_by_value(tf.cast(places - before, dtype), tf.zeros([], dtype), tf.ones([], dtype))
    return tf.cast(before, tf.int32), tf.expand_dims(part, -1)


def interpolate_spline(
    train_points: TensorLike,
    train_values: TensorLike,
    query_points: TensorLike,
    order: int,
    regularization_weight: float = 0.0,
    name: str = "interpolate_spline",
) -> tf.Tensor:
    """The values of a polyharmonic spline: of distances to given points, plus a linear function.

    Args:
        train_points: floats, [batch, n, d], d known: where values are given.
        train_values: [batch, n, k], k known.
        query_points: [batch, m, d]: where they are sought.
        order: 1 for the distance, 2 for r^2 log(r) (thin plates), 3 for r^3, and so on.
        regularization_weight: of smoothness against passing through the values.
        name: of the operations.

    Returns:
        [batch, m, k].

    Raises:
        ValueError: d or k is not known.
    """
    with tf.name_scope(name, "interpolate_spline", [train_points, train_values, query_points]):
        points, values = tf.convert_to_tensor(train_points), tf.convert_to_tensor(train_values)
        queries = tf.convert_to_tensor(query_points)
        size, count = tf.shape(points), _known_last(points, "points (d)") + 1
        basis = _radial(_squared_distances(points, points), order)
        if regularization_weight > 0:
            basis += regularization_weight * tf.eye(size[1], dtype=points.dtype)
        linear = _with_ones(points)
        above = tf.concat([basis, linear], 2)
        below = tf.concat([tf.matrix_transpose(linear), tf.zeros([size[0], count, count], points.dtype)], 2)
        no_sums = tf.zeros([size[0], count, _known_last(values, "values (k)")], points.dtype)
        weights = tf.matrix_solve(tf.concat([above, below], 1), tf.concat([values, no_sums], 1))
        functions = tf.concat([_radial(_squared_distances(queries, points), order), _with_ones(queries)], 2)
        result: tf.Tensor = tf.matmul(functions, weights)
        return result


def _known_last(tensor: tf.Tensor, what: str) -> int:
    size = tensor.shape.as_list()[2] if tensor.shape.ndims == 3 else None
    if size is None:
        raise ValueError(f"the last dimension of the {what} must be known, got {tensor.shape}: use tf.reshape")
    return size


def _with_ones(points: tf.Tensor) -> tf.Tensor:
    result: tf.Tensor = tf.concat([points, tf.ones_like(points[..., :1])], 2)
    return result


def _squared_distances(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """[batch, n, m], of [batch, n, d] and [batch, m, d]."""
    of_x = tf.expand_dims(tf.reduce_sum(tf.square(x), 2), 2)
    of_y = tf.expand_dims(tf.reduce_sum(tf.square(y), 2), 1)
    result: tf.Tensor = of_x - 2 * tf.matmul(x, y, adjoint_b=True) + of_y
    return result


def _radial(squared: tf.Tensor, order: int) -> tf.Tensor:
    """The power `order` of distances, and for even orders their logarithm times that, of their squares."""
    bounded = tf.maximum(squared, tf.constant(_LEAST, squared.dtype))
    # the bound has no gradient: a low order is a product with what is not bounded
    power = {2: squared, 4: tf.square(squared)}.get(order)
    if power is None:
        power = tf.pow(bounded, tf.constant(0.5 * order, squared.dtype))
    result: tf.Tensor = power if order % 2 else 0.5 * power * tf.log(bounded)
    return result


def sparse_image_warp(
    image: TensorLike,
    source_control_point_locations: TensorLike,
    dest_control_point_locations: TensorLike,
    interpolation_order: int = 2,
    regularization_weight: float = 0.0,
    num_boundary_points: int = 0,
    name: str = "sparse_image_warp",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pictures in which given points are moved to others, and all between them by a spline.

    Args:
        image: floats, [batch, height, width, channels], all but the channels known.
        source_control_point_locations: floats, [batch, points, 2]: y and x.
        dest_control_point_locations: where these are in the result.
        interpolation_order: of the spline.
        regularization_weight: of smoothness against the points' ways.
        num_boundary_points: n - 1 points on each edge, and the corners, are to stay; 0: none.
        name: of the operations.

    Returns:
        ([batch, height, width, channels], the flow [batch, height, width, 2]).

    Raises:
        ValueError: the picture's size is not known.
    """
    with tf.name_scope(name, "sparse_image_warp", [image]):
        picture = tf.convert_to_tensor(image)
        source = tf.convert_to_tensor(source_control_point_locations)
        goal = tf.convert_to_tensor(dest_control_point_locations)
        sizes = [size for size in picture.shape.as_list()[:3] if size is not None] if picture.shape.ndims == 4 else []
        if len(sizes) < 3:
            raise ValueError(f"batch, height and width of the picture must be known, got {picture.shape}: set_shape")
        batch, height, width = sizes
        ways = goal - source
        if num_boundary_points > 0:
            edge = _on_the_edge(height, width, num_boundary_points)
            goal = tf.concat([goal, tf.constant(np.tile(edge, [batch, 1, 1]), goal.dtype)], 1)
            ways = tf.concat([ways, tf.zeros([batch, len(edge), 2], ways.dtype)], 1)
        pixels = np.moveaxis(np.mgrid[:height, :width], 0, -1).reshape(1, -1, 2)
        queries = tf.constant(np.tile(pixels, [batch, 1, 1]), picture.dtype)
        flow = interpolate_spline(goal, ways, queries, interpolation_order, regularization_weight)
        flow = tf.reshape(flow, [batch, height, width, 2])
        return dense_image_warp(picture, flow), flow


def _on_the_edge(height: int, width: int, parts: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Points on the edges of a picture, which divide each into equal parts: [4 * parts, 2]."""
    y, x = np.meshgrid(np.linspace(0, height - 1, parts + 1), np.linspace(0, width - 1, parts + 1), indexing="ij")
    is_edge = np.ones_like(y, bool)
    is_edge[1:-1, 1:-1] = False
    return np.stack([y[is_edge], x[is_edge]], -1)
