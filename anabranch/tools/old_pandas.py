"""What pandas 2 has removed and programs of TensorFlow 1's time call: `append`, `iteritems`, `as_matrix` and
`get_values` of its two classes.

pandas is asked for by its name when a program has imported it; anabranch itself does not use it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from anabranch.core.values import PassedOn


def restore(tell: Callable[[str], None], pandas: ModuleType) -> Callable[[], None]:
    """Gives the classes of the imported package the methods that they lack; returns the function that undoes it.

    Args:
        tell: is called with the name of a method that the program uses.
    """
    added: list[tuple[type, str]] = []

    def add(owner: type, name: str, method: Callable[..., Any]) -> None:
        if not hasattr(owner, name):
            setattr(owner, name, method)
            added.append((owner, name))

    def append(self: PassedOn, other: PassedOn, ignore_index: bool = False, verify_integrity: bool = False) -> Any:
        tell(f"pandas.{type(self).__name__}.append")
        others = other if isinstance(other, list) else [other]
        if isinstance(self, pandas.DataFrame):  # a row is a series or a dictionary
            others = [_as_rows(pandas, one) for one in others]
        return pandas.concat([self, *others], ignore_index=ignore_index, verify_integrity=verify_integrity)

    def iteritems(self: PassedOn) -> Any:
        tell(f"pandas.{type(self).__name__}.iteritems")
        return self.items()

    def as_matrix(self: PassedOn, columns: PassedOn = None) -> Any:
        tell(f"pandas.{type(self).__name__}.as_matrix")
        return (self if columns is None else self[columns]).to_numpy()

    def get_values(self: PassedOn) -> Any:
        tell(f"pandas.{type(self).__name__}.get_values")
        return self.to_numpy()

    for owner in (pandas.DataFrame, pandas.Series):
        add(owner, "as_matrix", as_matrix)
        add(owner, "get_values", get_values)
        add(owner, "append", append)
        add(owner, "iteritems", iteritems)

    def undo() -> None:
        for owner, name in added:
            delattr(owner, name)

    return undo


def _as_rows(pandas: ModuleType, value: PassedOn) -> Any:
    if isinstance(value, dict):
        return pandas.DataFrame([value])
    if isinstance(value, pandas.Series):
        return value.to_frame().T
    return value
