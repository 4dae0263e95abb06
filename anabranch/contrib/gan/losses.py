"""`tf.contrib.gan.losses`: losses of models; those of single tensors are in `wargs`."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
