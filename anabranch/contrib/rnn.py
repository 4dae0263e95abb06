"""`tf.contrib.rnn`: the cells and static networks under their contributed names."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
