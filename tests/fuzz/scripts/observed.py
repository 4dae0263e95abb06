"""What a script shows of itself, as plain data that both sides write alike, and the comparison of it.

It needs NumPy only, since it runs in both environments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

#: relative error that is rounding, by dtype; anything else must be the same
_TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 2e-4,
    "float64": 1e-8,
    "complex64": 2e-4,
    "complex128": 1e-8,
}
#: numbers below this are as wrong as it is: they are often what is left of larger ones
_SMALL = 1e-2
#: elements of a dataset after which a walk ends
_LONGEST = 60


class Log:
    """What one script shows, in order. An error is shown by its class: the words are each side's own.

    Args:
        tf: the interface that the script uses.
    """

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.seen: list[list[Any]] = []
        self.messages: list[str] = []

    def see(self, name: str, value: Any) -> None:
        """Shows a value: arrays, texts, dtypes, shapes, sparse and ragged values, structures of these."""
        self.seen.append([name, self._plain(value)])
        self.messages.append("")

    def attempt(self, name: str, function: Callable[[], Any]) -> Any:
        """Calls the function; shows what it returns, or the class of the error. Gives what it returned, else None."""
        try:
            result = function()
        except Exception as error:
            self.fail(name, error)
            return None
        self.see(name, result)
        return result

    def fail(self, name: str, error: Exception) -> None:
        """Shows an error."""
        self.seen.append([name, {"error": _class_of(error)}])
        # TensorFlow tells the whole stack before it says what is wrong
        words = re.split(r"Node: '[^']*'\n", getattr(error, "message", None) or str(error))[-1]
        self.messages.append(f"{type(error).__name__}: {words}"[:2000])

    def walk(self, name: str, session: Any, following: Any, ordered: bool = True, most: int = _LONGEST) -> None:
        """Shows the elements that an iterator's next one takes on in turn, and the error that ends them."""
        elements: list[Any] = []
        try:
            elements.extend(self._plain(session.run(following)) for _ in range(most))
        except Exception as error:
            self.fail(f"{name} ends", error)
        shown = elements if ordered else {"unordered": elements}
        self.seen.insert(len(self.seen), [f"{name} elements", shown])
        self.messages.append("")

    def _plain(self, value: Any) -> Any:
        tf = self.tf
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, int | float):
            return {"number": _number(value)}
        if isinstance(value, np.ndarray | np.generic):
            return _array(np.asarray(value))
        if isinstance(value, tf.SparseTensorValue):
            return {"sparse": [self._plain(np.asarray(part)) for part in value]}
        if hasattr(value, "row_splits"):
            return {"ragged": [self._plain(value.values), self._plain(np.asarray(value.row_splits))]}
        if isinstance(value, tf.DType):
            return {"dtype": value.name}
        if isinstance(value, tf.TensorShape):
            return {"static": None if value.ndims is None else value.as_list()}
        if isinstance(value, type):
            return {"class": value.__name__}
        return self._structure(value)

    def _structure(self, value: Any) -> Any:
        tf = self.tf
        if isinstance(value, tf.IndexedSlices | tf.SparseTensor | tf.Tensor):
            return {"symbol": type(value).__name__.rpartition("Symbolic")[2]}
        if isinstance(value, Mapping):
            return {"mapping": {str(key): self._plain(part) for key, part in sorted(value.items())}}
        if isinstance(value, Iterable):
            return [self._plain(part) for part in value]
        return {"other": type(value).__name__}


def _class_of(error: Exception) -> str:
    """The name of an error's class.

    TensorFlow 2 puts an error of a dataset's function in one of another class. TensorFlow 1 has it as it is.
    """
    within = re.search(r"Got error code ([A-Z_]+) and message", str(error))
    return type(error).__name__ if within is None else f"{within[1].title().replace('_', '')}Error"


def _number(value: float) -> Any:
    return value if isinstance(value, int) or math.isfinite(value) else repr(float(value))


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    if value.dtype.kind in "OSU":
        texts = [t.encode() if isinstance(t, str) else t for t in value.reshape(-1).tolist()]
        return {
            "array": "string",
            "shape": list(value.shape),
            "values": [t.decode("latin-1") if isinstance(t, bytes) else repr(t) for t in texts],
        }
    flat = value.reshape(-1)
    if value.dtype.kind == "c":
        flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
    numbers = flat.tolist() if value.dtype.kind in "biu" else [_number(float(x)) for x in flat]
    return {"array": value.dtype.name, "shape": list(value.shape), "values": numbers}


def differs(ours: Any, theirs: Any) -> str | None:
    """Where two observations differ, in words; None where they are the same but for rounding."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return _differing_mappings(ours, theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{len(ours)} of them, expected {len(theirs)}"
        return _first(differs(a, b) for a, b in zip(ours, theirs, strict=True))
    return None if ours == theirs else f"{_short(ours)}, expected {_short(theirs)}"


def _differing_mappings(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    if theirs.get("error") == "UnicodeDecodeError" and "error" in ours:
        return None  # TensorFlow's message has bytes that are no text, so that Python fails to make its error
    if set(ours) != set(theirs):
        return f"{_short(ours)}, expected {_short(theirs)}"
    if "static" in ours:
        return _contradiction(ours["static"], theirs["static"])
    if "unordered" in ours:
        both = (sorted(side["unordered"], key=repr) for side in (ours, theirs))
        return differs(*both)
    if "array" in ours:
        return _differing_arrays(ours, theirs)
    if "number" in ours:
        return _differing_numbers([ours["number"]], [theirs["number"]], 1e-6)
    return _first(differs(ours[key], theirs[key]) for key in ours)


def _contradiction(ours: list[int | None] | None, theirs: list[int | None] | None) -> str | None:
    """Static shapes that no value can have both."""
    if ours is None or theirs is None:
        return None
    if len(ours) == len(theirs) and all(a is None or b is None or a == b for a, b in zip(ours, theirs, strict=True)):
        return None
    return f"static shape {ours}, expected {theirs}"


def _differing_arrays(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    for what in ("array", "shape"):
        if ours[what] != theirs[what]:
            return f"{what} {ours[what]}, expected {theirs[what]}"
    tolerance = _TOLERANCE.get(ours["array"])
    if tolerance is None:
        wrong = [i for i, (a, b) in enumerate(zip(ours["values"], theirs["values"], strict=True)) if a != b]
        return f"{ours['values'][wrong[0]]!r}, expected {theirs['values'][wrong[0]]!r}" if wrong else None
    return _differing_numbers(ours["values"], theirs["values"], tolerance)


def _differing_numbers(ours: list[Any], theirs: list[Any], tolerance: float) -> str | None:
    a, b = (np.array([float(x) for x in side]) for side in (ours, theirs))
    size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance * max(size, _SMALL))
    wrong = np.flatnonzero(~same)
    return f"{a[wrong[0]]}, expected {b[wrong[0]]}" if wrong.size else None


def _first(found: Iterable[str | None]) -> str | None:
    return next((words for words in found if words is not None), None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."
