"""`tf.contrib.learn.learn_runner`: `run` makes an experiment and does one thing with it."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
