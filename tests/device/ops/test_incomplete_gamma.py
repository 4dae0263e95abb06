"""The incomplete gamma functions of large equal numbers, whose terms go on for longer than anybody would wait."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf


@pytest.mark.parametrize("name", ["Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad"])
def test_a_step_ends_where_the_terms_do_not_vanish(name: str) -> None:
    """No more is said of the values, which are rounding errors: not even TensorFlow's agree with one another."""
    large = tf.placeholder(tf.float64, [3])
    found = getattr(tf.raw_ops, name)(
        **dict(zip(("alpha", "sample") if "Random" in name else ("a", "x"), [large] * 2, strict=True))
    )
    with tf.Session() as session:
        assert np.isfinite(session.run(found, {large: [1e8, 1e12, 1e16]})).all()
