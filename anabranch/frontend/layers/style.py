"""Whether layers own their variables, as those of Keras do, or share them by names: `tf.layers.experimental`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Style(threading.local):
    def __init__(self) -> None:
        self.scopes = 0


_scoped = _Style()
#: holds one element once every layer is to own its variables
_set_for_all: list[bool] = []


@contextlib.contextmanager
def keras_style_scope() -> Iterator[None]:
    """Layers that are made inside own their variables.

    A layer's variables are then named after the layer, whatever variable scope is open; layers never share variables
    by their names, and `reuse` does not find them. Updates of such layers are in `layer.updates` only.

    Example:
        >>> with tf.layers.experimental.keras_style_scope():
        ...     layers = [tf.layers.Dense(2, name="same") for _ in range(2)]
        >>> [layer(tf.zeros([1, 3])).shape.as_list() for layer in layers]
        [[1, 2], [1, 2]]
        >>> [variable.op.name for layer in layers for variable in layer.variables][::2]
        ['same/kernel', 'same_1/kernel']
    """
    _scoped.scopes += 1
    try:
        yield
    finally:
        _scoped.scopes -= 1


def set_keras_style() -> None:
    """Every layer that is made from now on in this process owns its variables; see `keras_style_scope`."""
    if not _set_for_all:
        _set_for_all.append(True)


def owns_variables() -> bool:
    """Whether a layer that is made now owns its variables."""
    return bool(_set_for_all) or _scoped.scopes > 0
