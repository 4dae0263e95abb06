"""`tf.contrib.image`: regions of pictures that hang together, and pairs of boxes that are near each other."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def connected_components(images: TensorLike) -> tf.Tensor:
    """Numbers the regions of equal pixels that are not zero, where pixels beside and above each other hang together.

    Each pixel takes the least number around it, and then that of the pixel which the number stands for, until nothing
    changes: the numbers of long regions halve their way with each round.

    Args:
        images: [height, width] or [batch, height, width]; bool or numbers.

    Returns:
        int32 like `images`: 0 where they are zero, and else the number of the region, from 1 on, in the order of the
        regions' first pixels, through all pictures.

    Raises:
        TypeError: `images` has another rank.

    Example:
        >>> sess.run(tf.contrib.image.connected_components([[True, True, False, True]]))
        array([[1, 1, 0, 2]], dtype=int32)
    """
    with tf.name_scope("connected_components"):
        given = tf.convert_to_tensor(images, name="images")
        if given.shape.ndims not in (2, 3):
            raise TypeError(f"images should have rank 2 (HW) or 3 (NHW). Static shape is {given.shape}")
        pictures = given if given.shape.ndims == 3 else given[tf.newaxis]
        pixels = tf.cast(pictures, tf.int32) if pictures.dtype == tf.bool else pictures
        counted = tf.reshape(tf.range(tf.size(pixels)) + 1, tf.shape(pixels))
        inside = tf.not_equal(pixels, tf.zeros([], pixels.dtype))
        first = tf.where(inside, counted, tf.zeros_like(counted))

        def further(labels: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            least = labels
            for axis in (1, 2):
                for ahead in (True, False):
                    same = tf.equal(_neighbours(pixels, axis, ahead), pixels) & (_neighbours(labels, axis, ahead) > 0)
                    least = tf.minimum(least, tf.where(same & inside, _neighbours(labels, axis, ahead), least))
            found = tf.gather(tf.concat([[0], tf.reshape(least, [-1])], 0), least)
            return found, tf.reduce_any(tf.not_equal(found, labels))

        labels, _ = tf.while_loop(lambda _, changed: changed, further, [first, tf.constant(True)], back_prop=False)
        # the pixel that a region is numbered after is its first
        order = tf.cumsum(tf.cast(tf.reshape(inside & tf.equal(labels, counted), [-1]), tf.int32))
        numbers = tf.gather(tf.concat([[0], order], 0), labels)
        numbers.set_shape(pictures.shape)
        return numbers if given.shape.ndims == 3 else tf.squeeze(numbers, [0])


def _neighbours(values: tf.Tensor, axis: int, ahead: bool) -> tf.Tensor:
    """What stands beside each pixel along an axis, zero beyond the border."""
    empty = tf.zeros_like(values[:, :1] if axis == 1 else values[:, :, :1])
    if axis == 1:
        return tf.concat([values[:, 1:], empty] if ahead else [empty, values[:, :-1]], axis)
    return tf.concat([values[:, :, 1:], empty] if ahead else [empty, values[:, :, :-1]], axis)


def bipartite_match(
    distance_mat: TensorLike, num_valid_rows: TensorLike, top_k: int = -1, name: str = "bipartite_match"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pairs rows with columns: the nearest first, then the nearest of what is left.

    Args:
        distance_mat: float32 [rows, columns].
        num_valid_rows: how many of the first rows take part; a scalar, or a vector of one number; negative: all.
        top_k: how many pairs at most; negative: as many as there can be.
        name: of the operations.

    Returns:
        (int32 [rows]: the column of each row, or -1; int32 [columns]: the row of each column, or -1).
    """
    with tf.name_scope(name):
        distances = tf.cast(tf.convert_to_tensor(distance_mat), tf.float32)
        rows, columns = tf.shape(distances)[0], tf.shape(distances)[1]
        given = tf.cast(tf.reshape(num_valid_rows, []), tf.int32)
        valid = tf.where(given < 0, rows, tf.minimum(given, rows))
        wanted = tf.minimum(valid, columns)
        wanted = wanted if top_k < 0 else tf.minimum(wanted, top_k)
        beyond = tf.fill(tf.shape(distances), float("inf"))
        taking_part = tf.broadcast_to(tf.range(rows)[:, tf.newaxis] < valid, tf.shape(distances))

        def pair(
            count: tf.Tensor, free: tf.Tensor, of_rows: tf.Tensor, of_columns: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
            place = tf.cast(tf.argmin(tf.reshape(tf.where(free, distances, beyond), [-1])), tf.int32)
            row, column = place // columns, place % columns
            is_row, is_column = tf.equal(tf.range(rows), row), tf.equal(tf.range(columns), column)
            of_rows = tf.where(is_row, tf.fill([rows], column), of_rows)
            of_columns = tf.where(is_column, tf.fill([columns], row), of_columns)
            free &= ~(is_row[:, tf.newaxis] | is_column[tf.newaxis])
            free.set_shape(distances.shape)  # what is known of one of the two sizes is known in the loop as well
            of_rows.set_shape(distances.shape[:1])
            of_columns.set_shape(distances.shape[1:])
            return count + 1, free, of_rows, of_columns

        start = [tf.constant(0), taking_part, tf.fill([rows], -1), tf.fill([columns], -1)]
        _, _, of_rows, of_columns = tf.while_loop(lambda count, *_: count < wanted, pair, start, back_prop=False)
        of_rows.set_shape(distances.shape[:1])
        of_columns.set_shape(distances.shape[1:])
        return of_rows, of_columns
