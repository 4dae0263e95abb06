"""`tensorflow.python.framework.type_spec`: the bases of specs that libraries write for types of their own."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from anabranch.frontend.specs import TypeSpec


class BatchableTypeSpec(TypeSpec):
    """A spec whose parts are what its `_serialize` returns."""

    @abstractmethod
    def _serialize(self) -> tuple[Any, ...]:
        """The arguments of its class."""

    def parts(self) -> tuple[Any, ...]:
        """What `_serialize` says."""
        return self._serialize()
