"""The modes of models as `tf.contrib.learn` named them."""

from __future__ import annotations

import anabranch as tf


class LearnModeKeys:
    """What a model function is called for; the values are those of `tf.estimator.ModeKeys`."""

    TRAIN = tf.estimator.ModeKeys.TRAIN
    EVAL = tf.estimator.ModeKeys.EVAL
    INFER = tf.estimator.ModeKeys.PREDICT
