"""What layers, models and optimizers are in checkpoints of objects, by the names that TensorFlow has for it."""

from __future__ import annotations

from typing import Any, Final

import anabranch as tf
from anabranch.core.trackables import NoDependency, Trackable, TrackableReference, is_tracked
from anabranch.core.values import PassedOn

#: attributes of the package and of this room which hold variables and layers that have other names in checkpoints
_OTHERWISE_HELD: Final = frozenset(
    {"_trainable_weights", "_non_trainable_weights", "_metrics", "_layers", "_normalizer", "_weights", "_hyper"}
    | {"_inbound_nodes", "_outbound_nodes", "_network_nodes", "_input_layers", "_output_layers", "_layers_by_depth"}
    | {"_nodes_by_depth", "_input_coordinates", "_output_coordinates", "_iterations", "_collected_trainable_weights"}
    | {"_compile_metrics", "_compile_metric_functions", "_compile_weighted_metrics", "_compiled_state", "_slots"}
    | {"_per_output_metrics", "_per_output_weighted_metrics", "loss_functions", "optimizer", "_batch_input_shape"}
    | {"_losses", "_updates", "_per_input_losses", "_per_input_updates", "_loading"}
)


def held_by_attributes(obj: PassedOn) -> dict[str, Any]:
    """What an object's attributes hold, by their names; first what it was told that it holds."""
    held = dict(obj._self_dependencies)
    hidden = vars(obj).get("_self_hidden", frozenset()) | _OTHERWISE_HELD
    for name, value in vars(obj).items():
        if name not in held and name not in hidden and not name.startswith("_self_") and is_tracked(value):
            held[name] = value
    return held


class TrackedByAttributes(Trackable):
    """A layer, which holds its variables by the names that `add_weight` was given, and what its attributes are."""

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        return [TrackableReference(*item) for item in held_by_attributes(self).items()]

    def _unmarked(self, name: str, value: PassedOn) -> Any:
        """The value of an attribute; where it is marked as no dependency, that is noted."""
        hidden: set[str] = vars(self).setdefault("_self_hidden", set())
        if isinstance(value, NoDependency):
            hidden.add(name)
            return value.value
        if vars(self).get("_self_setattr_tracking") is False:
            hidden.add(name)
        else:
            hidden.discard(name)
        return value


class TrackedNetwork(TrackedByAttributes):
    """A model: its layers by their numbers, of all and of those with variables; then what attributes are."""

    optimizer: Any

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        held: dict[str, Any] = {}
        if vars(self).get("_is_graph_network") or hasattr(self, "_build_input_shape"):
            weighted = 0
            for number, layer in enumerate(vars(self).get("_layers", ())):
                if layer.weights:
                    held[f"layer_with_weights-{weighted}"] = layer
                    weighted += 1
                held[f"layer-{number}"] = layer
        held |= held_by_attributes(self)
        optimizer = vars(self).get("optimizer")
        if isinstance(optimizer, Trackable):
            held["optimizer"] = optimizer
        elif hasattr(optimizer, "optimizer"):
            held["optimizer"] = self._held_optimizer(optimizer)
        return [TrackableReference(*item) for item in held.items()]

    def _held_optimizer(self, wrapper: PassedOn) -> HeldOptimizer:
        """One of `tf.train`'s optimizers, around which the package has a class of its own."""
        kept = vars(self).get("_self_held_optimizer")
        if kept is None or kept.wrapper is not wrapper:
            kept = vars(self)["_self_held_optimizer"] = HeldOptimizer(wrapper)
        return kept


class HeldOptimizer(Trackable):
    """What the package has around one of `tf.train`'s optimizers.

    Args:
        wrapper: it.
    """

    def __init__(self, wrapper: PassedOn) -> None:
        self.wrapper = wrapper

    @property
    def named_optimizer(self) -> Any:
        """The optimizer that older checkpoints had in the place of this."""
        return self.wrapper.optimizer

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        held = {"optimizer": self.wrapper.optimizer, "global_step": getattr(self.wrapper, "iterations", None)}
        return [TrackableReference(name, one) for name, one in held.items() if isinstance(one, Trackable)]


class TrackedOptimizer(Trackable):
    """One of `tf.keras`' optimizers: the count of its steps, and its numbers. Slots are found by `get_slot`."""

    _iterations: Any
    _hyper: dict[str, Any]

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        held = dict(self._self_dependencies)
        if self._iterations is not None:
            held["iter"] = self._iterations
        held |= {name: value for name, value in sorted(self._hyper.items()) if isinstance(value, tf.Variable)}
        return [TrackableReference(*item) for item in held.items()]
