"""`tf.estimator`: a model as a function, trained, evaluated, asked and exported by the library."""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
