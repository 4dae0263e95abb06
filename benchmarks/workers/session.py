"""Worker: one step that adds and multiplies a fed scalar, as a program would run it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from timing import seconds_per_call


def graph_session(tf: Any) -> Callable[[], object]:
    x = tf.placeholder(tf.float32, [])
    y = x * 2.0 + 1.0
    session = tf.Session()
    return lambda: session.run(y, {x: 3.0})


def system(name: str) -> Callable[[], object]:
    if name == "anabranch":
        import anabranch as tf

        return graph_session(tf)
    if name == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        return graph_session(tf)
    import jax
    import numpy as np

    function = jax.jit(lambda x: x * 2.0 + 1.0)
    value = np.float32(3.0)
    return lambda: np.asarray(function(value))


if __name__ == "__main__":
    print(json.dumps({"scalar feed and fetch": seconds_per_call(system(sys.argv[1]), 5000)}))
