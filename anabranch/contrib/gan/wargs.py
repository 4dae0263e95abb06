"""`tf.contrib.gan.losses.wargs`: losses of generators and discriminators, of the tensors that they are made of."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
