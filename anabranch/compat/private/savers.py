"""Private functions of `tensorflow.python.training.saver` that libraries call."""

from __future__ import annotations

import anabranch as tf


def _get_saver_or_default() -> tf.train.Saver:
    """The graph's only saver in the collection `SAVERS`; where there is none, a new one of all variables, noted there.

    Raises:
        RuntimeError: the collection holds several.
    """
    savers = tf.get_collection(tf.GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError(
            f"More than one item in collection {tf.GraphKeys.SAVERS}: {len(savers)} savers, of which one is wanted. "
            "Please indicate which one to use by passing it to the constructor."
        )
    if savers:
        found: tf.train.Saver = savers[0]
        return found
    saver = tf.train.Saver(sharded=True, allow_empty=True)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    return saver
