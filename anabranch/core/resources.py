"""Names of the stateful things that steps share: variables, queues, tables (§3.1, WP4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError

_ANY_SHAPE = TensorShape(None)


@dataclass(frozen=True, slots=True)
class ResourceHandle:
    """The value of a tensor of dtype `resource`: which resource of which container of which task.

    Two handles are equal when they name the same resource, whatever else they say of it.

    Attributes:
        task: the full name of the task that has it; empty: the only task of the session.
        shape: what the value of a variable must always fit.
    """

    container: str
    name: str
    kind: str
    task: str = field(default="", kw_only=True)
    shape: TensorShape = field(default=_ANY_SHAPE, compare=False, kw_only=True)

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raises InvalidArgumentError unless the variable may have a value of that shape."""
        if not self.shape.is_compatible_with(shape):
            raise InvalidArgumentError(
                None,
                None,
                f"{self} was declared with shape {self.shape} and cannot get a value of shape {[*shape]}; "
                "create it with validate_shape=False to let its shape change",
            )

    def __str__(self) -> str:
        where = f" in container {self.container!r}" if self.container else ""
        return f"{self.kind} {self.name!r}{where}" + (f" of {self.task}" if self.task else "")
