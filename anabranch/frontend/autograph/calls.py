"""Calls in converted code, and what `ag__` stands for there."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from anabranch.core import nest
from anabranch.core.values import PassedOn
from anabranch.frontend.autograph import conditionals, lists, loops, settings, undefined
from anabranch.frontend.autograph.builtin_functions import overload
from anabranch.frontend.autograph.settings import (
    ConversionOptions,
    ConversionStatus,
    Feature,
    in_status,
    is_marked,
    status,
)
from anabranch.frontend.autograph.state import is_symbolic
from anabranch.frontend.autograph.transpiler import ConversionError, converted, library
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.frontend.platform import logging
from anabranch.graph.copied_functions import has_effect
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw

#: packages whose functions are called as they are, beside Python's own library
_LEFT_ALONE: Final = frozenset(
    {
        "PIL",
        "absl",
        "anabranch",
        "jax",
        "keras",
        "malt",
        "matplotlib",
        "mock",
        "numpy",
        "pandas",
        "scipy",
        "tensorflow",
        "tensorflow_probability",
        "tf_slim",
    }
)


class FunctionScope:
    """The body of a converted function while it runs.

    Args:
        function_name: of the user's function.
        context_name: what the scope is called in converted code.
        options: with which the function was converted.
    """

    def __init__(self, function_name: str, context_name: str, options: ConversionOptions) -> None:
        self.name, self.callopts = context_name, options.call_options()
        self._function, self._options = function_name, options

    def __enter__(self) -> Self:
        graph = get_default_graph()
        self._open: list[Any] = [in_status(ConversionStatus.ENABLED)] if self._options.user_requested else []
        if self._options.uses(Feature.NAME_SCOPES):
            self._open.append(graph.name_scope(self._function.lstrip("_") or "fn"))
        for scope in self._open:
            scope.__enter__()
        self._graph, self._made_before = graph, len(graph.get_operations())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for scope in reversed(self._open):
            scope.__exit__(kind, value, traceback)

    def ret(self, value: PassedOn, did_return: PassedOn) -> Any:
        """What the function returns; where a tensor says whether it returns at all, the step sees to it.

        Args:
            did_return: whether a `return` was met.
        """
        if isinstance(value, undefined.UndefinedReturnValue):
            return None
        waits = []
        if is_symbolic(did_return) and value is not None:
            waits.append(
                Assert(did_return, [f"{self._function} ended without a `return`; return something after the loop"])
            )
        if self._options.uses(Feature.AUTO_CONTROL_DEPS):
            waits.extend(op for op in self._graph.get_operations()[self._made_before :] if has_effect(op))
        if not waits:
            return value
        with get_default_graph().control_dependencies(waits):
            return nest.map_structure(_passed_on, value)


def _passed_on(value: PassedOn) -> Any:
    return rebuilt(value, [raw.Identity(t) for t in components(value)]) if is_symbolic(value) else value


def with_function_scope(thunk: Callable[[FunctionScope], Any], scope_name: str, options: ConversionOptions) -> Any:
    """What a lambda's body gives in a scope of its own."""
    with FunctionScope("lambda_", scope_name, options) as scope:
        return thunk(scope)


def converted_call(
    f: Callable[..., Any],
    args: Iterable[Any],
    kwargs: Mapping[str, Any] | None,
    caller_fn_scope: FunctionScope | None = None,
    options: ConversionOptions | None = None,
) -> Any:
    """`f(*args, **kwargs)`, with `f` converted if that is what is wanted of it.

    Args:
        caller_fn_scope: of the converted function in which the call stands; its options hold unless some are given.
    """
    arguments, named = tuple(args), dict(kwargs or {})
    how = options or (caller_fn_scope.callopts if caller_fn_scope is not None else ConversionOptions())
    if status() is ConversionStatus.DISABLED or is_marked(f):
        return f(*arguments, **named)
    if isinstance(f, functools.partial):
        return converted_call(f.func, (*f.args, *arguments), {**f.keywords, **named}, caller_fn_scope, how)
    if any(f is known for known in _OF_THE_CALLER) and caller_fn_scope is not None:
        return _of_the_caller(f, arguments, caller_fn_scope)
    if isinstance(f, types.BuiltinFunctionType | type):
        return overload(f)(*arguments, **named)
    function, instance = _function_of(f)
    if function is None or not _is_wanted(f, function, how):
        return f(*arguments, **named)
    try:
        new = converted(function, how, OPERATORS)
    except ConversionError as error:
        _tell(function, error)
        return f(*arguments, **named)
    return new(*instance, *arguments, **named)


def _function_of(f: PassedOn) -> tuple[types.FunctionType | None, tuple[Any, ...]]:
    """The function that a call of something runs, and the object that it gets first."""
    if inspect.ismethod(f):
        return (f.__func__, (f.__self__,)) if isinstance(f.__func__, types.FunctionType) else (None, ())
    if isinstance(f, types.FunctionType):
        return f, ()
    call = getattr(type(f), "__call__", None)  # noqa: B004 - the function itself is wanted
    return (call, (f,)) if isinstance(call, types.FunctionType) else (None, ())


def _is_wanted(f: PassedOn, function: types.FunctionType, options: ConversionOptions) -> bool:
    if not options.internal_convert_user_code or is_marked(function):
        return False
    if function.__code__.co_filename == "<string>" or _makes_generators(function):
        return False
    return options.user_requested or not _is_left_alone(f, function)


def _makes_generators(function: types.FunctionType) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def _is_left_alone(f: PassedOn, function: types.FunctionType) -> bool:
    """Whether something is of a library that knows tensors, or of Python's own."""
    package = (function.__module__ or "").partition(".")[0]
    return package in _LEFT_ALONE or package in sys.stdlib_module_names - {"__main__"} or is_marked(f)


_told: set[types.CodeType] = set()


def _tell(function: types.FunctionType, error: ConversionError) -> None:
    """Says once that a function runs as it is."""
    if function.__code__ not in _told:
        _told.add(function.__code__)
        logging.warning(
            "%s; it runs as it is. To silence this warning, decorate it with @tf.autograph.experimental.do_not_convert",
            error,
        )


# ---------------------------------------------------------------------- functions that look at the caller
_OF_THE_CALLER: Final = (eval, super, globals, locals)


def _of_the_caller(f: Callable[..., Any], args: tuple[Any, ...], scope: FunctionScope) -> Any:
    """`super()`, `locals()` and their like, as seen from the user's function."""
    known = library().py_builtins
    if f is globals:
        return known.globals_in_original_context(scope)
    if f is locals:
        return known.locals_in_original_context(scope)
    if f is super:
        return known.super_in_original_context(f, args, scope)
    return known.eval_in_original_context(f, args, scope)


def caught_exception() -> BaseException | None:
    """The exception that is being handled."""
    return sys.exc_info()[1]


#: what `ag__` is in converted code: the names are those that the package malt writes
OPERATORS: Final = types.SimpleNamespace(
    ConversionOptions=ConversionOptions,
    Feature=Feature,
    FunctionScope=FunctionScope,
    GetItemOpts=lists.GetItemOpts,
    ListPopOpts=lists.ListPopOpts,
    ListStackOpts=lists.ListStackOpts,
    STD=ConversionOptions(),
    Undefined=undefined.Undefined,
    UndefinedReturnValue=undefined.UndefinedReturnValue,
    and_=conditionals.and_,
    assert_stmt=conditionals.assert_stmt,
    autograph_artifact=settings.marked,
    caught_exception=caught_exception,
    converted_call=converted_call,
    eq=conditionals.eq,
    for_stmt=loops.for_stmt,
    get_item=lists.get_item,
    if_exp=conditionals.if_exp,
    if_stmt=conditionals.if_stmt,
    ld=undefined.load,
    ldu=undefined.load_or_undefined,
    list_append=lists.list_append,
    list_pop=lists.list_pop,
    list_stack=lists.list_stack,
    new_list=lists.new_list,
    not_=conditionals.not_,
    not_eq=conditionals.not_eq,
    or_=conditionals.or_,
    set_item=lists.set_item,
    update_item_with_op=lists.update_item_with_op,
    while_stmt=loops.while_stmt,
    with_function_scope=with_function_scope,
)
