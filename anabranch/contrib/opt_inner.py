"""What optimizers have in common that let another one compute gradients and keep the slots."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


class OptimizerWithInner(tf.train.Optimizer):
    """An optimizer around another one.

    Args:
        opt: the optimizer inside.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.
    """

    def __init__(self, opt: tf.train.Optimizer, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._opt = opt

    def compute_gradients(self, *args: PassedOn, **kwargs: PassedOn) -> list[tuple[Any, Any]]:
        """The gradients that the optimizer inside computes; arguments as of `tf.train.Optimizer.compute_gradients`."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """The slot of the optimizer inside."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The names of the slots of the optimizer inside."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Any]:
        """The variables of the optimizer inside."""
        return self._opt.variables()
