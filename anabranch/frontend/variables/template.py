"""Templates: functions that make their variables once and share them in every later call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.trackables import Trackable
from anabranch.core.values import PassedOn
from anabranch.frontend.variables.policy import variable_creator_scope
from anabranch.frontend.variables.scope import VariableScope, variable_scope
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph


class Template(Trackable):
    """A function in a variable scope of its own, where variables are made by the first call and shared by all others.

    Made by `make_template`.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        create_scope_now: bool = False,
        unique_name: str | None = None,
        custom_getter: Callable[..., Any] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("name cannot be None.")
        self._func = func
        self._name = name
        self._unique_name = unique_name
        self._custom_getter = custom_getter
        self._scope: VariableScope | None = None
        self._variables_created = False
        if create_scope_now:
            # the name scope is opened by the first call, which so gets the name of the variables' scope
            with variable_scope(unique_name, name, custom_getter=custom_getter, auxiliary_name_scope=False) as scope:
                self._scope = scope

    def __call__(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Calls the function.

        Raises:
            ValueError: a later call makes a trainable variable (with `tf.Variable`) or asks for one that was not made.
        """
        if self._scope is None:
            with variable_scope(self._unique_name, self._name, custom_getter=self._custom_getter) as scope:
                self._scope = scope
                return self._first_call(args, kwargs)
        if not self._variables_created:
            with variable_scope(self._scope):
                return self._first_call(args, kwargs)
        with variable_scope(self._scope, reuse=True):
            return self._later_call(args, kwargs)

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with capture_dependencies(self):
            result = self._func(*args, **kwargs)
        self._variables_created = True
        return result

    def _later_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trainable = get_default_graph().get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        before = len(trainable)
        result = self._func(*args, **kwargs)
        if len(trainable) != before:
            names = [v.name for v in trainable[before:]]
            raise ValueError(
                f"Trainable variable created when calling the template {self._name!r} after the first time, perhaps "
                f"you used tf.Variable when you meant tf.get_variable: {names}"
            )
        return result

    @property
    def name(self) -> str:
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        return self._func

    @property
    def variable_scope(self) -> VariableScope | None:
        """The scope; None before the first call."""
        return self._scope

    @property
    def variable_scope_name(self) -> str | None:
        """The scope's name, which ends with a slash; None before the first call."""
        if self._scope is None:
            return None
        name = self._scope.name
        return name if not name or name.endswith("/") else name + "/"

    @property
    def var_scope(self) -> VariableScope | None:
        """The old name of `variable_scope`."""
        return self._scope

    def _collection(self, key: str) -> list[Any]:
        return [] if self._scope is None else get_default_graph().get_collection(key, self.variable_scope_name)

    @property
    def trainable_variables(self) -> list[Any]:
        return self._collection(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def global_variables(self) -> list[Any]:
        return self._collection(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        return self._collection(GraphKeys.LOCAL_VARIABLES)

    @property
    def variables(self) -> list[Any]:
        return [*self.global_variables, *self.local_variables]

    weights = variables
    trainable_weights = trainable_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        trainable = self.trainable_variables
        return [v for v in self.variables if all(v is not t for t in trainable)]

    non_trainable_weights = non_trainable_variables


class _Capturing(threading.local):
    """The objects in this thread that variables are made for, the innermost last."""

    def __init__(self) -> None:
        self.open: list[Any] = []


_capturing = _Capturing()


@contextlib.contextmanager
def capture_dependencies(template: Template | Any) -> Iterator[None]:
    """A block in which variables are made that `template` holds in checkpoints, by their names in its variable scope.

    Where a block is open inside this one, its object holds what is made there, and `template` holds that object.
    """

    def create(next_creator: Callable[..., Any], **kwargs: PassedOn) -> Any:
        made = next_creator(**kwargs)
        if _capturing.open[-1] is template and isinstance(made, Trackable):
            for outer, inner in itertools.pairwise(_capturing.open):
                _hold(outer, inner, inner.variable_scope.name)
            _hold(template, made, kwargs.get("name") or "")
        return made

    _capturing.open.append(template)
    try:
        with variable_creator_scope(create):
            yield
    finally:
        _capturing.open.pop()


def _hold(holder: PassedOn, held: Trackable, name: str) -> None:
    """Lets `holder` hold an object by its name below the variable scope; what is elsewhere is not its own."""
    scope = holder.variable_scope.name
    if name.startswith(scope):
        holder._track_trackable(held, name[len(scope) + 1 :], overwrite=True)


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Callable[..., Any] | None = None,
    **kwargs: PassedOn,
) -> Template:
    """A function that makes its variables (by `get_variable`) in its first call and shares them in all later ones.

    Args:
        name_: of its variable scope, made unique; the scope is opened by the first call.
        func_: the function.
        create_scope_now_: open the scope now.
        unique_name_: a name for the scope that is used as it is.
        custom_getter_: of the scope.
        kwargs: passed to every call.

    Raises:
        ValueError: no name.
    """
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, unique_name_, custom_getter_)
