"""`tf.contrib.distributions`: distributions of `tf.distributions`, and some more.

Where TensorFlow Probability 0.8 is installed, which this module became, all names are that package's, bijectors among
them: its distributions take one another, and no others.
"""

from __future__ import annotations

from anabranch.api import publish

publish(__name__, others_first=True)
