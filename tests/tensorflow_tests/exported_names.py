"""Which public name stands behind each name of TensorFlow's own modules, read from the sources of a checkout.

`tensorflow.python.ops.math_ops.add` is `tf.math.add`, because its definition carries `@tf_export("math.add", "add")`.
Nothing is imported: modules are parsed, and names are followed through imports, assignments and generated modules to a
definition that is exported. What no export leads to is private, and is not in the table.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.tensorflow_tests.operation_types import OperationType, function_name, generated_modules

#: Module -> name -> what it is: `tf math.add`, `raw MatMul` (an operation type without a public function),
#: `module python.framework.dtypes`. Modules are named as below `tensorflow`; all that exist are in the table.
Table = Mapping[str, Mapping[str, str]]

_ROOT: Final = "tensorflow."
_DECORATORS: Final = ("tf_export", "keras_export", "estimator_export")
_GENERATED: Final = "gen_"


@dataclass
class _Module:
    """What a module says of its names.

    Attributes:
        exported: name -> (names of version 1, names of version 2), as its exports give them.
        aliases: name -> a name, or a name in an imported module (`gen_math_ops.neg`), that it is assigned from.
        imported: name -> the module and the name in it, which is "" where the module itself is meant.
        stars: modules of which all names are imported.
        defined: names with a definition here, which hides what `stars` have of that name.
    """

    exported: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)


def cached_table(tensorflow: Path, cache: Path) -> Table:
    """The table of a checkout's folder `tensorflow`, kept in the file `cache` for the next time.

    What is kept is used while the checkout's path, the times of its folders and the code that reads it are the same.
    """
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    times = [path.stat().st_mtime_ns for path in (tensorflow, *(p for p in tensorflow.glob("*/*") if p.is_dir()))]
    key = hashlib.sha256(code + repr((str(tensorflow), times)).encode()).hexdigest()
    if cache.is_file():
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return dict(kept["table"])
    table = read_table(tensorflow)
    cache.parent.mkdir(parents=True, exist_ok=True)
    new = cache.with_suffix(".new")
    new.write_text(json.dumps({"key": key, "table": table}), encoding="utf-8")
    new.replace(cache)
    return table


def read_table(tensorflow: Path) -> Table:
    """Reads a checkout's folder `tensorflow`; tests are not read."""
    modules = {"python": _Module()}
    for path in sorted((tensorflow / "python").rglob("*.py")):
        if not path.name.endswith("_test.py"):
            name = ".".join(path.relative_to(tensorflow).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = _parse(path.read_text(encoding="utf-8"))
    for path in sorted((tensorflow / "python").rglob("*")):
        if path.is_dir():  # a package may have no file of its own
            modules.setdefault(".".join(path.relative_to(tensorflow).parts), _Module())
    return _Resolver(modules, generated_modules(tensorflow / "core")).table()


def _parse(source: str) -> _Module:
    module = _Module()
    for statement in _statements(ast.parse(source).body):
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                module.defined.add(name)
                for decorator in statement.decorator_list:
                    _export(module, name, decorator)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                module.defined.add(name)
                _assign(module, name, value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=export, attr="export_constant"), args=args)):
                if isinstance(args[-1], ast.Constant):
                    _export(module, str(args[-1].value), export)
            case ast.Expr(value=ast.Call(func=export, args=[exported])):
                _export(module, _dotted(exported), export)
            case ast.ImportFrom(module=str(source_module), names=names) if source_module.startswith(_ROOT):
                _import(module, source_module.removeprefix(_ROOT), names)
            case ast.Import(names=names):
                _import_modules(module, names)
    return module


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in its conditions and attempts included."""
    for statement in body:
        match statement:
            case ast.If():
                yield from _statements(statement.body)
                yield from _statements(statement.orelse)  # after it: where the two define a name, it is for Python 3
            case ast.Try():
                yield from _statements(statement.body)
            case _:
                yield statement


def _assign(module: _Module, name: str, value: ast.expr) -> None:
    """`name = other`, `name = gen_math_ops.neg`, `name = tf_export("a.b")(other)`."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and _export(module, name, value.func):
        value = value.args[0]
    if source := _dotted(value):
        module.aliases[name] = source


def _export(module: _Module, name: str, call: ast.expr) -> bool:
    """Enters an export, if the expression is one (`tf_export("math.add", v1=["math.add", "add"])`)."""
    if not name or not isinstance(call, ast.Call) or _dotted(call.func).rpartition(".")[2] not in _DECORATORS:
        return False
    names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
    of_version_1 = names
    for keyword in call.keywords:
        if keyword.arg == "v1" and isinstance(keyword.value, ast.List):
            of_version_1 = [str(one.value) for one in keyword.value.elts if isinstance(one, ast.Constant)]
    before = module.exported.get(name, ([], []))
    module.exported[name] = (before[0] + of_version_1, before[1] + names)
    return True


def _import(module: _Module, source: str, names: list[ast.alias]) -> None:
    for alias in names:
        if alias.name == "*":
            module.stars.append(source)
        else:
            module.imported[alias.asname or alias.name] = (source, alias.name)


def _import_modules(module: _Module, names: list[ast.alias]) -> None:
    for alias in names:
        if alias.asname and alias.name.startswith(_ROOT):
            module.imported[alias.asname] = (alias.name.removeprefix(_ROOT), "")


def _dotted(expression: ast.expr) -> str:
    """`a.b` of such an expression; "" of any other."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=holder), attr=name):
            return f"{holder}.{name}"
        case _:
            return ""


class _Resolver:
    """Follows names to what is exported."""

    def __init__(self, modules: dict[str, _Module], generated: dict[str, list[OperationType]]) -> None:
        self._modules = modules
        self._generated = {module: {one.function: one for one in types} for module, types in generated.items()}
        self._of_version_1 = {name for module in modules.values() for v1, _ in module.exported.values() for name in v1}
        self._public: dict[str, str] = {}
        for path, module in modules.items():
            self._exported_elsewhere(path, module)

    def _exported_elsewhere(self, path: str, module: _Module) -> None:
        """Enters functions of generated modules that a module exports: `tf_export("a.b")(gen_math_ops.b)`."""
        for name, (v1, _) in module.exported.items():
            holder, _, function = module.aliases.get(name, name).rpartition(".")
            source = module.imported.get(holder, ("", ""))[1] or holder
            if source.startswith(_GENERATED) and v1:
                self._public.setdefault(f"{source}.{function}", v1[0])

    def table(self) -> dict[str, dict[str, str]]:
        table = {path: self._names(path) for path in self._modules}
        for generated in self._generated:
            table[f"python.ops.{generated}"] = self._names(f"python.ops.{generated}")
        return table

    def _names(self, path: str) -> dict[str, str]:
        """All names of a module that lead somewhere."""
        found: dict[str, str] = {}
        for name in self._all_names(path, ()):
            if target := self._resolve(path, name, ()):
                found[name] = target
        return found

    def _all_names(self, path: str, seen: tuple[str, ...]) -> set[str]:
        generated = self._generated.get(path.rpartition(".")[2])
        if generated is not None:
            hidden = {f"_{one.function}" for one in generated.values() if not one.public}
            return {*generated, *hidden, *(one.name for one in generated.values())}
        module = self._modules.get(path)
        if module is None or path in seen:
            return set()
        names = {*module.exported, *module.aliases, *module.imported}
        for star in module.stars:
            names |= {name for name in self._all_names(star, (*seen, path)) if not name.startswith("_")}
        return {name for name in names if "." not in name}

    def _resolve(self, path: str, name: str, seen: tuple[tuple[str, str], ...]) -> str:
        """What a name of a module is; "" where it is private."""
        if (path, name) in seen:
            return ""
        seen = (*seen, (path, name))
        last = path.rpartition(".")[2]
        if last in self._generated:
            return self._operation(last, name)
        module = self._modules.get(path)
        if module is None:
            return ""
        if name in module.exported:
            return self._chosen(*module.exported[name])
        if name in module.aliases:
            return self._alias(path, module.aliases[name], seen)
        if name in module.imported:
            return self._imported(*module.imported[name], seen)
        if name in module.defined:
            return ""
        return next(filter(None, (self._resolve(star, name, seen) for star in module.stars)), "")

    def _chosen(self, v1: list[str], v2: list[str]) -> str:
        """The first name of version 1; for what version 2 alone has, one under which version 1 has its counterpart.

        A name elsewhere goes before one in `tf.keras`, which is another package here.
        """
        names = [*v1, *(n for n in v2 if n in self._of_version_1)]
        return next((f"tf {name}" for name in sorted(names, key=lambda name: name.startswith("keras."))), "")

    def _alias(self, path: str, source: str, seen: tuple[tuple[str, str], ...]) -> str:
        holder, _, name = source.rpartition(".")
        if not holder:
            return self._resolve(path, name, seen)
        module, inside = self._modules[path].imported.get(holder, ("", ""))
        return self._resolve(f"{module}.{inside}" if inside else module, name, seen)

    def _imported(self, module: str, name: str, seen: tuple[tuple[str, str], ...]) -> str:
        inside = f"{module}.{name}" if name else module
        if inside in self._modules or inside.rpartition(".")[2] in self._generated:
            return f"module {inside}"
        return self._resolve(module, name, seen)

    def _operation(self, module: str, name: str) -> str:
        """A function of a generated module."""
        if exported := self._public.get(f"{module}.{name}"):
            return f"tf {exported}"
        types = self._generated[module]
        if name in types and types[name].public:
            return f"tf {types[name].public[0]}"
        # beside its function, a type has one of its own name; those of hidden types may begin with an underscore
        one = types.get(function_name(name)) or types.get(name.removeprefix("_"))
        return f"raw {one.name}" if one is not None else ""
