"""Which names of TensorFlow a Python source uses, read from its syntax; nothing of it is run.

Imports bind names to paths, ``import tensorflow as tf``, ``from tensorflow.contrib import slim``, and so do assignments
of such paths, ``layers = tf.layers``. An attribute of a bound name is a use. A name that a scope binds to something
else as well (a parameter, a loop's variable) is not followed there; None beside an import is, since programs write
``tf = None`` where the import failed. What objects hold is not followed: of ``tf.Session().run``, only `tf.Session`
is a use.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

ROOT: Final = "tensorflow"
_CAUGHT: Final = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES: Final = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name at one place of a source.

    Attributes:
        name: the whole path, "tensorflow.nn.relu".
        line: where, from 1.
        guarded: whether the program expects that the name may be absent: it stands under a `try` that catches that,
            under a `hasattr` that asks for it, or in a `getattr` with a default.
        asked_of: whether it is asked alone whether something is of that class, by `isinstance` or `issubclass`.
    """

    name: str
    line: int
    guarded: bool
    asked_of: bool = False


@dataclass(slots=True)
class _NameScope:
    """Bindings of a module, class, function or comprehension: paths, or expressions that may be paths; None: others."""

    is_class: bool
    bound: dict[str, list[str | ast.expr | None]] = field(default_factory=dict)

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        self.bound.setdefault(name, []).append(value)


def uses_in(source: bytes, known: frozenset[str] = frozenset()) -> list[NameUse]:
    """The uses of names of TensorFlow in a source, in the order of lines.

    Args:
        source: the text of a module, in the encoding that its first lines declare.
        known: names that ``from tensorflow import *`` brings.

    Raises:
        SyntaxError, ValueError: it is no Python of this version.
        RecursionError: it is nested too deep.
    """
    reader = _NameReader(known)
    reader.read(ast.parse(source))
    return sorted(reader.uses, key=lambda use: (use.line, use.name))


class _NameReader(ast.NodeVisitor):
    def __init__(self, known: frozenset[str]) -> None:
        self.uses: set[NameUse] = set()
        self._known = known - set(dir(builtins))
        self._scopes: list[_NameScope] = []
        self._all_imported = False
        self._caught = 0
        self._asked: list[str] = []
        self._classes = False

    def read(self, module: ast.Module) -> None:
        self._enter(module, module.body)

    def _enter(self, scope: ast.AST, body: Iterable[ast.AST]) -> None:
        self._scopes.append(_scope_of(scope, body))
        # a function's body runs later, when nothing is caught any more
        caught, self._caught = self._caught, 0 if isinstance(scope, _FUNCTIONS) else self._caught
        for node in body:
            self.visit(node)
        self._caught = caught
        self._scopes.pop()

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _SCOPES):
            super().visit(node)
            return
        inside = set(map(id, _body_of(node)))
        for child in _children_outside(node):
            if id(child) not in inside:
                self.visit(child)
        self._enter(node, _body_of(node))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if _is_tensorflow(alias.name):
                self._use(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not _is_tensorflow(node.module or ""):
            return
        for alias in node.names:
            if alias.name == "*":
                self._use(node.module or "", node.lineno)
                self._all_imported |= node.module == ROOT
            else:
                self._use(f"{node.module}.{alias.name}", node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and (path := self._path(node)) is not None:
            self._use(path, node.lineno)
        else:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        anywhere = any(node.id in scope.bound for scope in self._scopes)
        if self._all_imported and node.id in self._known and not anywhere:
            self._use(f"{ROOT}.{node.id}", node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        asked = self._asked_by(node, "getattr")
        if asked is not None:
            self._use(asked, node.lineno, guarded=len(node.args) > 2)
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[what, classes]):
                self.visit(what)
                self._classes = True
                self.visit(classes)
                self._classes = False
            case _:
                self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        catches = any(_catches(handler.type) for handler in node.handlers)
        self._caught += catches
        for child in node.body:
            self.visit(child)
        self._caught -= catches
        for other in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(other)

    def visit_If(self, node: ast.If) -> None:
        self._visit_condition(node.test, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._visit_condition(node.test, [node.body], [node.orelse])

    def _visit_condition(self, test: ast.expr, body: Iterable[ast.AST], otherwise: Iterable[ast.AST]) -> None:
        asked = [path for call in ast.walk(test) if (path := self._asked_by(call, "hasattr")) is not None]
        self.visit(test)
        # either branch: `if not hasattr(tf, "x")` is as usual as the other
        self._asked.extend(asked)
        for child in (*body, *otherwise):
            self.visit(child)
        del self._asked[len(self._asked) - len(asked) :]

    def _asked_by(self, node: ast.AST, function: str) -> str | None:
        """The path that `hasattr(tf.x, "y")` asks for, or `getattr`; None where the node is no such call."""
        match node:
            case ast.Call(func=ast.Name(id=called), args=[holder, ast.Constant(value=str(name)), *_]):
                path = self._path(holder) if called == function else None
                return None if path is None else f"{path}.{name}"
        return None

    def _use(self, path: str, line: int, guarded: bool = False) -> None:
        if path == ROOT:
            return
        asked = any(path == name or path.startswith(f"{name}.") for name in self._asked)
        self.uses.add(NameUse(path, line, guarded or asked or self._caught > 0, self._classes))

    def _path(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> str | None:
        """The path of TensorFlow that an expression names; None where it names something else."""
        if isinstance(node, ast.Attribute):
            holder = self._path(node.value, seen)
            return None if holder is None else f"{holder}.{node.attr}"
        if not isinstance(node, ast.Name) or node.id in seen:
            return None
        # `tf = tf.compat.v1` is followed by what `tf` was before
        values = [value for value in self._binding(node.id) if _first_name(value) != node.id]
        paths = [
            value if isinstance(value, str) else None if value is None else self._path(value, seen | {node.id})
            for value in values
        ]
        return paths[0] if paths and None not in paths else None

    def _binding(self, name: str) -> list[str | ast.expr | None]:
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.bound and (depth == 0 or not scope.is_class):
                return scope.bound[name]
        return []


def _is_tensorflow(module: str) -> bool:
    return module == ROOT or module.startswith(f"{ROOT}.")


def _first_name(value: str | ast.expr | None) -> str | None:
    """The name that an expression of names and attributes begins with."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def _catches(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    return any(isinstance(node, ast.Name) and node.id in _CAUGHT for node in ast.walk(kind))


def _body_of(node: ast.AST) -> list[ast.AST]:
    """What runs in a scope of its own: not the decorators, defaults and bases, which run outside."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return list(node.body)
    return list(ast.iter_child_nodes(node))


def _children_outside(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, _COMPREHENSIONS):
        yield from ast.iter_child_nodes(node)


def _scope_of(scope: ast.AST, body: Iterable[ast.AST]) -> _NameScope:
    result = _NameScope(is_class=isinstance(scope, ast.ClassDef))
    if isinstance(scope, _FUNCTIONS):
        for argument in ast.walk(scope.args):
            if isinstance(argument, ast.arg):
                result.bind(argument.arg, None)
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        _bind(result, node)
        if isinstance(node, ast.Assign) and _assigned_name(node) is not None:
            waiting.append(node.value)  # the name is bound already, to the value
        elif not isinstance(node, _SCOPES):  # decorators and defaults bind nothing
            waiting.extend(ast.iter_child_nodes(node))
    return result


def _assigned_name(node: ast.Assign) -> str | None:
    """The name in ``name = value``; None for other assignments."""
    target = node.targets[0]
    return target.id if len(node.targets) == 1 and isinstance(target, ast.Name) else None


def _bind(scope: _NameScope, node: ast.AST) -> None:
    """Adds what one node binds."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                bound = alias.asname or alias.name.partition(".")[0]
                path = alias.name if alias.asname else bound
                scope.bind(bound, path if _is_tensorflow(path) else None)
        case ast.ImportFrom(names=names):
            module = "" if node.level else node.module or ""
            for alias in names:
                scope.bind(alias.asname or alias.name, f"{module}.{alias.name}" if _is_tensorflow(module) else None)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                scope.bind(name, value if isinstance(value, ast.Attribute | ast.Name) else None)
        case ast.Name(id=name, ctx=ast.Store()):
            scope.bind(name, None)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bind(name, None)
        case ast.ExceptHandler(name=str(name)):
            scope.bind(name, None)
