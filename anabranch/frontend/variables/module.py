"""Modules: objects that hold variables and other modules, and can list them."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from anabranch.core import nest
from anabranch.core.trackables import AutoTrackable
from anabranch.core.values import PassedOn
from anabranch.frontend.framework import name_scope
from anabranch.frontend.variables.variables import Variable

Method = TypeVar("Method", bound=Callable[..., Any])


class Module(AutoTrackable):
    """The base of classes that hold variables: layers, distributions, whole models.

    What an attribute of a module holds, also in lists, tuples and dicts, belongs to the module: variables, and other
    modules with theirs.

    Args:
        name: a Python identifier; by default that of the class in lower case, with underscores.

    Raises:
        ValueError: `name` is no identifier.

    Example:
        >>> class Dense(tf.Module):
        ...     def __init__(self, width, name=None):
        ...         super().__init__(name)
        ...         with self.name_scope:
        ...             self.w = tf.Variable(tf.ones([2, width]), name="w")
        ...             self.b = tf.Variable(tf.zeros([width]), trainable=False, name="b")
        >>> dense = Dense(3)
        >>> [v.name for v in dense.variables]
        ['dense/b:0', 'dense/w:0']
        >>> [v.name for v in dense.trainable_variables]
        ['dense/w:0']
    """

    #: attributes that `variables` and `submodules` do not look into; subclasses add theirs
    _TF_MODULE_IGNORED_PROPERTIES: frozenset[str] = frozenset()

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = _snake_case(type(self).__name__)
        elif not name.isidentifier():
            raise ValueError(
                f"{name!r} is not a valid module name. Module names must be valid Python identifiers (e.g. a valid "
                "class name)."
            )
        self._name = name
        with name_scope(name) as scope:
            self._scope_name = scope

    @property
    def name(self) -> str:
        """The name of the module, without scopes."""
        return self._name

    @property
    def name_scope(self) -> contextlib.AbstractContextManager[str]:
        """A block in which operations and variables are named after the module."""
        return name_scope(self._scope_name)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of this module and of those in it: by the names of attributes, its own before those."""
        return tuple(self._flatten(predicate=lambda value: isinstance(value, Variable)))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those of the variables that are trained, in the same order."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """The modules in this one, and those in them."""
        return tuple(self._flatten(predicate=lambda value: isinstance(value, Module)))

    @classmethod
    def with_name_scope(cls, method: Method) -> Method:
        """Decorates a method, which then runs in the module's name scope."""

        @functools.wraps(method)
        def scoped(self: Module, *args: PassedOn, **kwargs: PassedOn) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return scoped  # type: ignore[return-value]

    def _flatten(
        self,
        recursive: bool = True,
        predicate: Callable[[Any], bool] | None = None,
        attribute_traversal_key: Callable[[str], Any] | None = None,
        with_path: bool = False,
    ) -> Iterator[Any]:
        """The values of attributes of which a predicate holds, each once.

        Args:
            recursive: whether modules in this one are looked into.
            predicate: all values by default.
            attribute_traversal_key: attributes are sorted by this of their names.
            with_path: whether to give pairs: names of attributes and places on the way, and the value.
        """
        seen = {id(self)}
        queue: list[tuple[tuple[Any, ...], Module]] = [((), self)]
        while queue:
            path, module = queue.pop(0)
            held: list[tuple[tuple[Any, ...], Module]] = []
            for key in sorted(vars(module), key=attribute_traversal_key):
                if key in type(module)._TF_MODULE_IGNORED_PROPERTIES:
                    continue
                for inside, value in _leaves(vars(module)[key]):
                    if id(value) in seen:
                        continue
                    seen.add(id(value))
                    place = (*path, key, *inside)
                    if predicate is None or predicate(value):
                        yield (place, value) if with_path else value
                    if recursive and isinstance(value, Module):
                        held.append((place, value))
            queue[:0] = held


def _snake_case(name: str) -> str:
    """The class name `BatchNorm2D` as `batch_norm2d`."""
    return re.sub(r"((?<=[a-z0-9])[A-Z]|(?!^)(?<!_)[A-Z](?=[a-z]))", r"_\1", name).lower()


def _leaves(value: nest.Structure) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What a value holds in lists, tuples and dicts, each with its place; a value that is none of them itself."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from (((key, *path), leaf) for path, leaf in _leaves(inside))
    elif isinstance(value, list | tuple):
        for at, inside in enumerate(value):
            yield from (((at, *path), leaf) for path, leaf in _leaves(inside))
    else:
        yield (), value
