"""What optimizers have in common that let another one compute gradients and keep the slots.

`tf.contrib.opt` has the like of it for itself, on the public interface, as all of `contrib`; `SyncReplicasOptimizer`
has methods of its own, since programs compare the base of each optimizer of `tf.train`.
"""

from __future__ import annotations

from typing import Any

from anabranch.core.values import PassedOn
from anabranch.frontend.variables.variables import Variable
from anabranch.train.optimizer import GradientsAndVariables, Optimizer


class DelegatingOptimizer(Optimizer):
    """An optimizer around another one.

    Args:
        opt: the optimizer inside.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `name` is empty.
    """

    def __init__(self, opt: Optimizer, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._opt = opt

    def compute_gradients(self, *args: PassedOn, **kwargs: PassedOn) -> GradientsAndVariables:
        """The gradients that the optimizer inside computes. Arguments, result and errors: `Optimizer`'s."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: PassedOn, **kwargs: PassedOn) -> Variable | None:
        """The slot of the optimizer inside; its arguments."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: PassedOn, **kwargs: PassedOn) -> list[str]:
        """The names of the slots of the optimizer inside."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """The variables in which the optimizer inside keeps its state."""
        return self._opt.variables()
