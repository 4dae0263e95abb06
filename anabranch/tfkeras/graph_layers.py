"""Classes that derive from a layer of `tf.keras` and from `tf.layers.Layer`.

In TensorFlow the second derives from the first, and adds variable scopes: `tf.layers.Conv2D` is such a class, and
programs make others. Here the two have no base in common. What such a class computes is what its layer of `tf.keras`
has; how it is called, and where its variables, losses and updates are kept, is that of `tf.layers.Layer`.
"""

from __future__ import annotations

from typing import Any, Final

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import compatibility

#: of `tf.layers.Layer`, what the layer of `tf.keras` says itself
_COMPUTED: Final = frozenset({"build", "call", "compute_output_shape", "dtype", "name"})
_CALLED: Final = frozenset({"__call__", "__deepcopy__", "__repr__"})
#: arguments of `tf.layers.Layer` alone
ARGUMENTS: Final = ("_scope", "_reuse")


def join(cls: type, foundation: type) -> None:
    """Gives a class that derives from both kinds the methods of `tf.layers.Layer`, where it has none of its own.

    Args:
        foundation: the class of `tf.keras.layers.Layer`; what its bases, or itself, define is replaced.
    """
    if not issubclass(cls, tf.layers.Layer):
        return
    replaced = foundation.__mro__
    for name, value in vars(tf.layers.Layer).items():
        if name in _COMPUTED or (name.startswith("__") and name not in _CALLED):
            continue
        if next(base for base in cls.__mro__ if name in vars(base)) in replaced:
            setattr(cls, name, value)
    if "_check_inputs" not in vars(cls):
        setattr(cls, "_check_inputs", _check_inputs)  # noqa: B010 (a class that checkers take for another)


def _check_inputs(self: PassedOn, tensors: list[Any]) -> None:
    """Compares inputs with what the layer of `tf.keras` asks for, which its own class describes."""
    compatibility.check(self.input_spec, tensors, self.name)


def initialize(layer: PassedOn, given: dict[str, Any]) -> None:
    """Makes a layer one of `tf.layers` too, where its class derives from both.

    Args:
        given: its name, dtype and scope, whether it is trained, and what regularizes its outputs.
    """
    tf.layers.Layer.__init__(layer, **given)
