"""Hyperparameters: `tf.contrib.training.HParams`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

#: name=value or name[index]=value, where the value is a list in brackets or a string without commas
_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[a-zA-Z][\w.]*)\s*(\[\s*(?P<index>\d+)\s*\])?\s*=\s*(\[(?P<list>[^\]]*)\]|(?P<one>[^,\[]*))\s*($|,)"
)


#: a value, or a list of values of one type
HParamValue: TypeAlias = Any


class HParams:
    """A set of named values, which are its attributes. A value keeps its first type; a list that of its items.

    Args:
        hparam_def: not supported.
        model_structure: any object, kept for the program.
        kwargs: names and values.

    Raises:
        ValueError: a list is empty, or a name is that of a method.

    Example:
        >>> hparams = tf.contrib.training.HParams(rate=0.1, units=64)
        >>> _ = hparams.parse("rate=0.5")
        >>> hparams.rate, hparams.units
        (0.5, 64)
    """

    def __init__(self, hparam_def: object = None, model_structure: object = None, **kwargs: HParamValue) -> None:
        if hparam_def is not None:
            raise ValueError("hparam_def is not supported; give names and values, as HParams(learning_rate=0.1)")
        self._types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: HParamValue) -> None:
        """Adds a name with its value.

        Raises:
            ValueError: the name is in use, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
            self._types[name] = (type(value[0]), True)
        else:
            self._types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: HParamValue) -> None:
        """Replaces a value by another one of its type.

        Raises:
            KeyError: there is no such name.
            ValueError: the type is another one, or a list is given for a single value or the reverse.
        """
        kind, is_list = self._types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(f"Must{' not' if not is_list else ''} pass a list for the hyperparameter {name}")
        typed = [_as_type(name, v, kind) for v in value] if is_list else _as_type(name, value, kind)
        setattr(self, name, typed)

    def del_hparam(self, name: str) -> None:
        """Removes a name, if there."""
        if name in self._types:
            delattr(self, name)
            del self._types[name]

    def parse(self, values: str) -> HParams:
        """Replaces the values that a string names: ``"learning_rate=0.1,layers=[64,32],name=net"``.

        Raises:
            ValueError: the text is malformed, names a value that is not there or repeats one, or has another type.
        """
        parsed: dict[str, Any] = {}
        for name, index, texts, gives_list in _assignments(values):
            if name not in self._types:
                raise ValueError(f"Unknown hyperparameter type for {name}")
            kind, is_list = self._types[name]
            if index is not None:
                items = parsed.setdefault(name, list(getattr(self, name)))
                items[index] = _parsed(name, texts[0], kind)
                continue
            if name in parsed:
                raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
            items = [_parsed(name, t, kind) for t in texts]
            if is_list != gives_list:
                raise ValueError(
                    f"Must{'' if is_list else ' not'} pass a list for the hyperparameter {name} in {values}"
                )
            parsed[name] = items if is_list else items[0]
        return self.override_from_dict(parsed)

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Replaces several values; see `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Replaces the values that a JSON object names."""
        return self.override_from_dict(json.loads(values_json))

    def values(self) -> dict[str, Any]:
        """All names and values."""
        return {name: getattr(self, name) for name in self._types}

    def to_json(
        self, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
    ) -> str:
        """All names and values as a JSON object; functions are left out."""
        plain = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(plain, indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key: str, default: HParamValue | None = None) -> object:
        """A value, or `default` where there is no such name.

        Raises:
            ValueError: the default has another type than the value.
        """
        if key not in self._types:
            return default
        kind, is_list = self._types[key]
        if default is not None and isinstance(default, list) != is_list:
            raise ValueError(f"Type of the default of {key} differs: expected {'list' if is_list else kind.__name__}")
        for one in default if isinstance(default, list) else [default]:
            _as_type(key, one, kind)
        return getattr(self, key)

    def set_model_structure(self, model_structure: object) -> None:
        """Keeps an object for the program."""
        self._model_structure = model_structure

    def get_model_structure(self) -> object:
        """The object kept for the program."""
        return self._model_structure

    def __contains__(self, key: object) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def parse_values(values: str, type_map: Mapping[str, type], ignore_unknown: bool = False) -> dict[str, Any]:
    """Reads ``"learning_rate=0.1,layers=[64,32],name=net"``.

    Args:
        values: the text.
        type_map: the type of each name, or of its items.
        ignore_unknown: whether names without a type are passed over.

    Returns:
        Values and lists by name; where single items are named (``layers[1]=3``), a dictionary of these.

    Raises:
        ValueError: the text is malformed, names what has no type or repeats a name, or a value has another type.

    Example:
        >>> tf.contrib.training.parse_values("rate=0.1,sizes=[2,3]", {"rate": float, "sizes": int})
        {'rate': 0.1, 'sizes': [2, 3]}
    """
    parsed: dict[str, Any] = {}
    for name, index, texts, is_list in _assignments(values):
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        items = [_parsed(name, text, type_map[name]) for text in texts]
        if index is None:
            if name in parsed:
                raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
            parsed[name] = items if is_list else items[0]
            continue
        if is_list:
            raise ValueError(f"Assignment of a list to a list index in {values}")
        known = parsed.setdefault(name, {})
        if not isinstance(known, dict):
            raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
        if index in known:
            raise ValueError(f"Multiple assignments to variable '{name}[{index}]' in {values}")
        known[index] = items[0]
    return parsed


def _assignments(text: str) -> Iterable[tuple[str, int | None, list[str], bool]]:
    at = 0
    while at < len(text):
        match = _ASSIGNMENT.match(text, at)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {text[at:]}")
        at = match.end()
        index = match["index"]
        one = match["one"]
        texts = [one] if one is not None else [t for t in match["list"].split(",") if t.strip()]
        yield match["name"], None if index is None else int(index), texts, one is None


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        try:
            return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]
        except KeyError:
            raise ValueError(f"Could not parse {text!r} as a boolean for the hyperparameter {name}") from None
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"Could not parse hparam {name!r} of type {kind.__name__} with value {text!r}") from error


def _as_type(name: str, value: HParamValue, kind: type) -> Any:
    """The value as `kind`; an integer may stand for a floating number."""
    if value is None or kind is type(None):
        return value
    if isinstance(value, bool) == (kind is bool) and isinstance(value, kind):
        return value
    if kind is not float or not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"Could not cast hparam {name!r} of type {kind.__name__} from value {value!r}")
    return kind(value)
