"""Converted functions: the syntax tree of a function, rewritten and compiled again.

What rewrites the tree is the package diastatic-malt, which is TensorFlow's AutoGraph without TensorFlow: it makes calls
of operators (`ag__.if_stmt(...)`) of Python's statements. What the operators do is ours.

The tree is compiled as it is, with the user's file and line numbers in it: error messages, tracebacks, debuggers and
the sites of operations show what the user wrote, and no file is written. Nothing is executed but functions that the
process has already: the source is that from which Python made the function, found where Python found it, and the new
function has the globals, the closure and the defaults of the old one (docs/decisions/0071).
"""

from __future__ import annotations

import ast
import functools
import importlib
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from anabranch.core.values import PassedOn
from anabranch.frontend.autograph.settings import ConversionOptions, Feature

#: of Python: which `from __future__` a code was compiled with
_FUTURE_FLAGS: Final = 0xFFF0000
_CONVERTERS: Final = (
    "asserts break_statements call_trees conditional_expressions continue_statements control_flow functions lists "
    "logical_expressions return_statements slices variables"
)
_MODULES: Final = (
    "core.unsupported_features_checker lang.directives operators.py_builtins pyct.anno pyct.cfg pyct.errors "
    "pyct.inspect_utils pyct.naming pyct.origin_info pyct.parser pyct.qual_names pyct.transformer "
    "pyct.static_analysis.activity pyct.static_analysis.reaching_definitions"
)


#: the modules of the package malt, which has no types
_Library: TypeAlias = Any
#: a node with the notes of that package
_Tree: TypeAlias = Any


class ConversionError(ValueError):
    """A function that cannot be converted."""


@functools.cache
def library() -> Any:
    """The modules of the package malt by their last names; imported when something is converted for the first time."""
    paths = [*(f"converters.{name}" for name in _CONVERTERS.split()), *_MODULES.split()]
    return types.SimpleNamespace(**{path.rpartition(".")[2]: importlib.import_module(f"malt.{path}") for path in paths})


class _Template:
    """A function as converted code, for any closure.

    Attributes:
        source: the converted code as text.
    """

    def __init__(self, name: str, source: str, code: types.CodeType) -> None:
        self.name, self.source, self._code = name, source, code

    def made(self, like: types.FunctionType, operators: PassedOn) -> types.FunctionType:
        """The converted function with the globals, the closure and the defaults of the one it comes from."""
        cells = dict(zip(like.__code__.co_freevars, like.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in self._code.co_freevars)
        function: types.FunctionType = types.FunctionType(self._code, like.__globals__, self.name, (), closure)(
            operators
        )
        function.__defaults__, function.__kwdefaults__ = like.__defaults__, like.__kwdefaults__
        function.__annotations__ = dict(like.__annotations__)
        function.__module__, function.__doc__ = like.__module__, like.__doc__
        function.__qualname__ = like.__qualname__
        return function


_Kind = tuple[str, ConversionOptions]
_LOCK: Final = threading.Lock()
_MADE: Final[weakref.WeakKeyDictionary[types.CodeType, dict[_Kind, _Template]]] = weakref.WeakKeyDictionary()


def converted(function: types.FunctionType, options: ConversionOptions, operators: PassedOn) -> types.FunctionType:
    """The function with operators in place of conditionals, loops, calls and logical operators.

    Args:
        operators: what the name `ag__` stands for in converted code.

    Raises:
        ConversionError: its source is not to be had, or has something in it that cannot be converted.
    """
    return _template(function, options).made(function, operators)


def converted_source(function: types.FunctionType, options: ConversionOptions) -> str:
    """The converted code of a function as text.

    Raises:
        ConversionError: as `converted`.
    """
    return _template(function, options).source


def _template(function: types.FunctionType, options: ConversionOptions) -> _Template:
    code = function.__code__
    kind = (code.co_filename, options)
    with _LOCK:
        known = _MADE.setdefault(code, {})
        if kind not in known:
            known[kind] = _built(function, options)
        return known[kind]


def _built(function: types.FunctionType, options: ConversionOptions) -> _Template:
    malt = library()
    try:
        node, context = _rewritten(malt, function, options)
    except Exception as error:  # what the library makes of a tree that it does not know
        text = str(error).split(" Note that functions")[0]
        raise ConversionError(f"{function.__qualname__} ({_place(function)}) cannot be converted: {text}") from error
    name = context.info.name
    if isinstance(node, ast.Lambda):
        node = ast.Assign([ast.Name(name, ast.Store())], node)
    else:
        node.name = name
    source = ast.unparse(ast.fix_missing_locations(node))
    return _Template(name, source, _compiled(malt, node, name, function))


def _rewritten(malt: _Library, function: types.FunctionType, options: ConversionOptions) -> tuple[Any, Any]:
    """The rewritten tree, and what the library knows of it."""
    futures = malt.inspect_utils.getfutureimports(function)
    node, source = malt.parser.parse_entity(function, future_features=futures)
    malt.origin_info.resolve_entity(node, source, function)
    namespace = malt.inspect_utils.getnamespace(function)
    namer = malt.naming.Namer(namespace)
    name = namer.new_symbol(f"tf__{'lam' if isinstance(node, ast.Lambda) else node.name}", ())
    info = malt.transformer.EntityInfo(name, source, "<fragment>", futures, namespace)
    context = malt.transformer.Context(info, namer, types.SimpleNamespace(options=options))
    _forget_outside(node)
    _name_exceptions(node)
    malt.unsupported_features_checker.verify(node)
    node = _analysed(malt, node, context)
    node = malt.functions.transform(node, context)
    _note_loop_options(malt, node, namespace)
    for step in _steps(options):
        node = getattr(malt, step).transform(node, context)
    while any(isinstance(part, ast.IfExp) for part in ast.walk(node)):  # one inside another takes another turn
        node = malt.conditional_expressions.transform(node, context)
    return node, context


def _steps(options: ConversionOptions) -> Iterator[str]:
    """The library's rewritings in the order in which they build on one another."""
    yield "break_statements"
    if options.uses(Feature.ASSERT_STATEMENTS):
        yield "asserts"
    yield from ("continue_statements", "return_statements")
    if options.uses(Feature.LISTS):
        yield from ("lists", "slices")
    yield from ("call_trees", "control_flow", "conditional_expressions", "logical_expressions", "variables")


def _analysed(malt: _Library, node: ast.AST, context: object) -> Any:
    """The tree with notes: names, scopes, and which assignments reach a place."""
    graphs = malt.cfg.build(node)
    node = malt.qual_names.resolve(node)
    node = malt.activity.resolve(node, context, None)
    node = malt.reaching_definitions.resolve(node, context, graphs)
    malt.anno.dup(node, {malt.anno.Static.DEFINITIONS: malt.anno.Static.ORIG_DEFINITIONS})
    return node


def _forget_outside(node: _Tree) -> None:
    """Drops what is computed where a function is defined, not where it is called: defaults, annotations, decorators."""
    arguments = node.args
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    if isinstance(node, ast.FunctionDef):
        node.decorator_list, node.returns = [], None


def _name_exceptions(node: ast.AST) -> None:
    """Makes `name = ...` at the beginning of a handler of `except E as name`, which the library cannot read."""
    for handler in ast.walk(node):
        if isinstance(handler, ast.ExceptHandler) and handler.name is not None:
            value = ast.parse("ag__.caught_exception()", mode="eval").body
            named = ast.copy_location(ast.Assign([ast.Name(handler.name, ast.Store())], value), handler)
            handler.body.insert(0, ast.fix_missing_locations(named))
            handler.name = None


# ---------------------------------------------------------------------- tf.autograph.experimental.set_loop_options
def _note_loop_options(malt: _Library, node: ast.AST, namespace: Mapping[str, Any]) -> None:
    """Makes notes at loops of the calls of set_loop_options with which they begin, and takes the calls out."""
    for loop in ast.walk(node):
        if not isinstance(loop, ast.While | ast.For) or not isinstance(loop.body[0], ast.Expr):
            continue
        call = loop.body[0].value
        if isinstance(call, ast.Call) and getattr(_static(call.func, namespace), "sets_loop_options", False):
            names = ("parallel_iterations", "back_prop", "swap_memory", "maximum_iterations", "shape_invariants")
            given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
            malt.anno.setanno(loop, malt.anno.Basic.DIRECTIVES, {malt.directives.set_loop_options: given})
            loop.body = loop.body[1:] or [ast.Pass()]


def _static(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    """What a name of modules such as `tf.autograph.experimental.x` stands for; None where that is not plain."""
    if isinstance(node, ast.Name):
        return namespace.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_static(node.value, namespace), node.attr, None)
    return None


# ---------------------------------------------------------------------- compiling
def _compiled(malt: _Library, node: ast.stmt, name: str, function: types.FunctionType) -> types.CodeType:
    """The code of a function that takes the operators and returns the converted function."""
    variables = function.__code__.co_freevars
    tree = ast.parse(
        "def outer():\n"
        + "".join(f"    {variable} = None\n" for variable in variables)
        + f"    def inner(ag__):\n        pass\n        return {name}\n    return inner\n"
    )
    outer = tree.body[0]
    assert isinstance(outer, ast.FunctionDef)
    inner = outer.body[-2]
    assert isinstance(inner, ast.FunctionDef)
    inner.body[0] = node
    _put_lines(malt, tree, function.__code__.co_firstlineno)
    flags = function.__code__.co_flags & _FUTURE_FLAGS
    code = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    return _code_in(_code_in(code))


def _code_in(code: types.CodeType) -> types.CodeType:
    """The code of the one function that is defined in some code."""
    return next(constant for constant in code.co_consts if isinstance(constant, types.CodeType))


def _put_lines(malt: _Library, tree: ast.AST, first: int) -> None:
    """Gives every node the line of the user's file that it comes from, or that what it stands in comes from."""
    waiting: list[tuple[ast.AST, int]] = [(tree, first)]
    while waiting:
        node, line = waiting.pop()
        origin = malt.anno.getanno(node, malt.anno.Basic.ORIGIN, default=None)
        if origin is not None:
            line = origin.loc.lineno
        if "lineno" in node._attributes:
            # negative columns stand for none: tracebacks then show the line without marks in it
            node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = -1  # type: ignore[attr-defined]
        waiting.extend((child, line) for child in ast.iter_child_nodes(node))


def _place(function: types.FunctionType) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
