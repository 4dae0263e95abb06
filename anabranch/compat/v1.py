"""`tf.compat.v1`: the interface of TensorFlow 1.15, which is that of the package itself.

import anabranch.compat.v1 as tf

tf.disable_v2_behavior()  # accepted, as are the other switches: there is one behaviour here
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anabranch as tf

if TYPE_CHECKING:
    from anabranch import *  # noqa: F403

__version__ = tf.__version__


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":  # a module's own affairs, above all its `__path__`
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(tf, name)


def __dir__() -> list[str]:
    return dir(tf)
