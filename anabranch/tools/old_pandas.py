"""What pandas 2 has removed and programs of TensorFlow 1's time call: `append`, `iteritems`, `as_matrix`, `get_values`
and `ix` of its two classes, `get_value` and `set_value` of tables, and that `str.replace` takes a regular expression
unless told otherwise.

pandas is asked for by its name when a program has imported it; anabranch itself does not use it.
"""

from __future__ import annotations

import functools
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
    give_back_replace = _restore_replace(pandas, tell)

    def add(owner: type, name: str, method: Callable[..., Any] | property) -> None:
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

    _add_to_tables(pandas, add, tell)
    for owner in (pandas.DataFrame, pandas.Series):
        add(owner, "as_matrix", as_matrix)
        add(owner, "get_values", get_values)
        add(owner, "append", append)
        add(owner, "iteritems", iteritems)

    def undo() -> None:
        give_back_replace()
        for owner, name in added:
            delattr(owner, name)

    return undo


def _restore_replace(pandas: ModuleType, tell: Callable[[str], None]) -> Callable[[], None]:
    """Lets `str.replace` take a regular expression unless told otherwise; returns the function that undoes it."""
    texts = pandas.Series.str  # the class of what a column's `str` is
    replace_by_text = texts.replace

    @functools.wraps(replace_by_text)
    def replace(self: PassedOn, pat: PassedOn, *arguments: PassedOn, **options: PassedOn) -> Any:
        # (pat, repl, n, case, flags, regex); a single character always stood for itself
        if len(arguments) < 5 and "regex" not in options and not (isinstance(pat, str) and len(pat) == 1):
            tell("pandas.Series.str.replace with a regular expression")
            options["regex"] = True
        return replace_by_text(self, pat, *arguments, **options)

    def undo() -> None:
        texts.replace = replace_by_text

    texts.replace = replace
    return undo


def _add_to_tables(pandas: ModuleType, add: Callable[..., None], tell: Callable[[str], None]) -> None:
    """What tables had to get and set values by a label, or by a place."""

    def ix(self: PassedOn) -> Any:
        tell(f"pandas.{type(self).__name__}.ix")
        return _ByLabelOrPlace(self)

    def get_value(self: PassedOn, index: PassedOn, col: PassedOn, takeable: bool = False) -> Any:
        tell("pandas.DataFrame.get_value")
        return self.iat[index, col] if takeable else self.at[index, col]

    def set_value(self: PassedOn, index: PassedOn, col: PassedOn, value: PassedOn, takeable: bool = False) -> Any:
        tell("pandas.DataFrame.set_value")
        (self.iat if takeable else self.at)[index, col] = value
        return self

    add(pandas.DataFrame, "get_value", get_value)
    add(pandas.DataFrame, "set_value", set_value)
    for owner in (pandas.DataFrame, pandas.Series):
        add(owner, "ix", property(ix))


def _as_rows(pandas: ModuleType, value: PassedOn) -> Any:
    if isinstance(value, dict):
        return pandas.DataFrame([value])
    if isinstance(value, pandas.Series):
        return value.to_frame().T
    return value


class _ByLabelOrPlace:
    """`ix`: an index that is among the labels is one, and a whole number that is not is a place."""

    def __init__(self, table: PassedOn) -> None:
        self._table = table

    def __getitem__(self, key: PassedOn) -> Any:
        return self._way(key)[key] if not isinstance(key, tuple) else self._table.loc[self._labels(key)]

    def __setitem__(self, key: PassedOn, value: PassedOn) -> None:
        if isinstance(key, tuple):
            self._table.loc[self._labels(key)] = value
        else:
            self._way(key)[key] = value

    def _way(self, key: PassedOn) -> Any:
        return self._table.iloc if self._is_place(key, self._table.index) else self._table.loc

    def _labels(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            axis[one] if self._is_place(one, axis) else one for one, axis in zip(key, self._table.axes, strict=False)
        )

    @staticmethod
    def _is_place(key: PassedOn, axis: PassedOn) -> bool:
        parts = (key.start, key.stop) if isinstance(key, slice) else key if isinstance(key, list) else (key,)
        whole = all(part is None or (isinstance(part, int) and not isinstance(part, bool)) for part in parts)
        return whole and axis.dtype.kind not in "iu"
