"""`tf.contrib.cudnn_rnn`: stacked recurrent networks, on any device."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
