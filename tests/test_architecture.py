"""The plan of the house, enforced on the source text. There is no list of exceptions.

Rooms are the folders and files directly under `anabranch/`. A file imports from its own room and from rooms that stand
before it in `ROOMS`; modules form no import cycle; imports stand at the top of the file; a few packages may be imported
in a few rooms only; what begins with an underscore stays in its file; nothing that was read is executed; what plans and
runs graphs keeps no lists of operation types; a parameter says what it is.
"""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.core.registry import all_op_defs
from anabranch.ops import vocabulary as _vocabulary  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "anabranch"

#: From the ground up: a room imports from those before it.
ROOMS = (
    "errors",
    "core",
    "proto",
    "io",
    "state",
    "graph",
    "ops",
    "kernels",
    "autodiff",
    "frontend",
    "passes",
    "placement",
    "xla",
    "pipeline",
    "runtime",
    "distributed",
    "session",
    "train",
    "serving",
    "testing",
    "api",
    "__init__",
    "compat",
    "contrib",
    "feature_column",
    "estimator",
    "tfkeras",
    "onnx",
    "tools",
    "__main__",
)

#: Packages with a place of their own: the prefixes of the modules that may import them.
HOMES = {
    "jax": ("anabranch.ops", "anabranch.kernels", "anabranch.xla", "anabranch.runtime"),
    "jaxlib": ("anabranch.ops", "anabranch.kernels", "anabranch.xla", "anabranch.runtime"),
    "malt": ("anabranch.frontend.autograph",),
    "onnx": ("anabranch.onnx",),
    "ray": ("anabranch.distributed.ray_cluster", "anabranch.distributed.ray_machines"),
    "zmq": ("anabranch.distributed.transport",),
}

#: Neither the package nor a test may need what anabranch stands in for.
PEERS = frozenset({"tensorflow", "tensorflow_core", "tf_slim", "keras", "tf_keras", "torch"})

#: What stands beside the package.
AT_THE_ROOT = frozenset(
    {".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "pyproject.toml"}
    | {"anabranch", "benchmarks", "docs", "examples", "requirements", "tests"}
)

#: Folders of `tests` with scripts that other interpreters or `anabranch run` execute, which pytest never imports.
SCRIPT_FOLDERS = ("oracles", "programs")

#: What plans and runs graphs: whole rooms, or some modules of a room. (What reads messages knows types by name only.)
ENGINE_ROOMS = {
    "graph": "constants function_def function_graph graph graph_copy loop_bodies loop_structure operation ordering "
    "step_nodes",
    "autodiff": "",
    "passes": "",
    "placement": "",
    "xla": "",
    "pipeline": "",
    "runtime": "",
}

#: Where no parameter is a bare `Any`: whole rooms, or some modules of a room.
TYPED_ROOMS = {
    "errors": "",
    "core": "",
    "io": "",
    "state": "",
    "graph": "",
    "ops": "",
    "kernels": "",
    "autodiff": "",
    "frontend": "",
    "passes": "",
    "placement": "",
    "xla": "",
    "pipeline": "",
    "runtime": "",
    "distributed": "",
    "session": "",
    "train": "",
    "serving": "",
    "testing": "",
    "api": "",
    "compat": "",
    "contrib": "",
    "feature_column": "",
    "estimator": "",
    "tfkeras": "",
    "onnx": "",
    "tools": "",
}

#: Modules that run code while they read data.
EXECUTING_READERS = frozenset(
    {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"}
)


@dataclass(frozen=True)
class Import:
    """One imported module, as a file names it."""

    module: str
    #: For `from module import name`, the name: perhaps a module too.
    name: str | None
    line: int
    #: At the top level of the file, or in an `if TYPE_CHECKING:` there.
    at_top: bool
    #: Seen by type checkers only.
    for_types: bool


@dataclass(frozen=True)
class Source:
    """One file of the package."""

    module: str
    path: Path
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """All that the file consists of, in no particular order."""
        return list(nodes_under(self.tree))

    @functools.cached_property
    def imports(self) -> list[Import]:
        return list(find_imports(self.tree))

    @property
    def room(self) -> str:
        return room_of(self.module)


def room_of(module: str) -> str:
    """The room of a module; the package itself is the room `__init__`."""
    return module.split(".")[1] if "." in module else "__init__"


def is_in(source: Source, rooms: Mapping[str, str]) -> bool:
    """Whether a file belongs to some rooms, or is one of the modules of them that are named."""
    named = rooms.get(source.room)
    return named is not None and (not named or source.module.rpartition(".")[2] in named.split())


# ---------------------------------------------------------------------------------------------------- reading
def nodes_under(root: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it but for contexts (`Load`), in a third of the time that `ast.walk` takes."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                todo += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                todo.append(value)


def find_imports(tree: ast.Module) -> Iterator[Import]:
    """The imports of a file, including `importlib.import_module` and `__import__` of a literal name."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for child in node.body:
                yield from _imports_under(child, at_top=isinstance(child, ast.Import | ast.ImportFrom), for_types=True)
            for child in node.orelse:
                yield from _imports_under(child, at_top=False, for_types=False)
        else:
            yield from _imports_under(node, at_top=isinstance(node, ast.Import | ast.ImportFrom), for_types=False)


def _imports_under(statement: ast.stmt, *, at_top: bool, for_types: bool) -> Iterator[Import]:
    for node in nodes_under(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, at_top, for_types)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, at_top, for_types)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"} and node.args:
            target = node.args[0]
            if isinstance(target, ast.JoinedStr):
                target = target.values[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield Import(target.value.rstrip("."), None, node.lineno, at_top=False, for_types=False)


def _called(node: ast.Call) -> str:
    """The last part of the called name: `import_module` for `importlib.import_module(...)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


@functools.cache
def sources() -> dict[str, Source]:
    """All files of the package by module name, without the message classes that protoc generates."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[module] = Source(module, path, path.read_text("utf-8"))
    # millions of nodes, all of which stay: to look for garbage among them takes four times as long as reading them
    was_on = gc.isenabled()
    gc.disable()
    try:
        for source in found.values():
            assert source.nodes
    finally:
        if was_on:
            gc.enable()
    return found


def target_of(imported: Import) -> str:
    """The module of ours that an import reads: `a.b` for `from a import b` where b is a module, else `a`."""
    inner = f"{imported.module}.{imported.name}"
    return inner if imported.name is not None and inner in sources() else imported.module


def is_ours(module: str) -> bool:
    return module.split(".")[0] == PACKAGE


# ------------------------------------------------------------------------------------------------------ rules
def misplaced_rooms(source: Source) -> Iterator[str]:
    if source.room not in ROOMS:
        yield f"{source.path}: {source.room!r} is not a room of the house"


def downward_imports(source: Source) -> Iterator[str]:
    for imported in source.imports:
        target = target_of(imported)
        if not is_ours(target) or source.room not in ROOMS:
            continue
        room = room_of(target)
        if room not in ROOMS:
            yield f"{source.path}:{imported.line}: imports {target}, which is in no room of the house"
        elif ROOMS.index(room) > ROOMS.index(source.room):
            yield f"{source.path}:{imported.line}: room {source.room!r} may not import {target}: {room!r} stands later"


def late_imports(source: Source) -> Iterator[str]:
    for imported in source.imports:
        if imported.module.startswith("."):
            yield f"{source.path}:{imported.line}: relative import; name the module in full"
        elif is_ours(imported.module) and not imported.at_top:
            yield f"{source.path}:{imported.line}: imports {imported.module} below the top of the file"


def private_imports(source: Source) -> Iterator[str]:
    for imported in source.imports:
        if is_ours(imported.module) and imported.name is not None and _is_private(imported.name):
            yield f"{source.path}:{imported.line}: imports {imported.name} of {imported.module}, which is its own"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def homeless_imports(source: Source) -> Iterator[str]:
    for imported in source.imports:
        package = imported.module.split(".")[0]
        homes = HOMES.get(package)
        if homes is not None and not any(f"{source.module}.".startswith(f"{home}.") for home in homes):
            yield f"{source.path}:{imported.line}: {package} may be imported in {', '.join(homes)} only"


def contributed_imports(source: Source) -> Iterator[str]:
    """What was contributed is written as a user would write it: with the public package and its submodules."""
    if source.room != "contrib":
        return
    for imported in source.imports:
        target = target_of(imported)
        public = target == PACKAGE or f"{target}.".startswith((f"{PACKAGE}.api.", f"{PACKAGE}.contrib."))
        if is_ours(imported.module) and not public:
            yield f"{source.path}:{imported.line}: imports {target}, which is not public"


def peer_imports(source: Source) -> Iterator[str]:
    for imported in source.imports:
        if imported.module.split(".")[0] in PEERS:
            yield f"{source.path}:{imported.line}: imports {imported.module}"


def execution_of_data(source: Source) -> Iterator[str]:
    for imported in source.imports:
        if imported.module.split(".")[0] in EXECUTING_READERS:
            yield f"{source.path}:{imported.line}: imports {imported.module}, which executes what it reads"
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func) if _called(node) in {"eval", "exec"} else ""
        if name.removeprefix("builtins.") in {"eval", "exec"}:
            yield f"{source.path}:{node.lineno}: calls {name}()"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                yield f"{source.path}:{node.lineno}: allow_pickle is not False"


def eager_annotations(source: Source) -> Iterator[str]:
    has_code = len(source.tree.body) > (ast.get_docstring(source.tree) is not None)
    if has_code and not any(i.module == "__future__" and i.name == "annotations" for i in source.imports):
        yield f"{source.path}:1: lacks `from __future__ import annotations`"


def names_said_again(source: Source) -> Iterator[str]:
    """The stub of a public module says its names, and `api.publish` makes `__all__` of them."""
    if "__all__" not in source.text:
        return
    for statement in source.tree.body:
        if ast.unparse(statement).startswith("__all__"):
            yield f"{source.path}:{statement.lineno}: says names in `__all__`; the stub of a public module says them"


def operations_by_name(source: Source) -> Iterator[str]:
    """An engine room asks an operation type for its role and properties (`OpDef`), so that any type may have them.

    It may compare with one type, which it made itself or whose attributes it reads, but not look into a list of types.
    """
    if not is_in(source, ENGINE_ROOMS):
        return
    for node in source.nodes:
        if _asks_for_one_of_several_types(node) or not operation_types().isdisjoint(_listed_texts(node)):
            line = getattr(node, "lineno", 0)
            yield f"{source.path}:{line}: lists operation types: {ast.unparse(node)}; ask for a property of `OpDef`"


def untyped_parameters(source: Source) -> Iterator[str]:
    """A parameter says what it is: by a type, by a protocol, or by a name for what type checkers cannot know."""
    if not is_in(source, TYPED_ROOMS):
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for parameter in _parameters(node.args):
                if parameter.annotation is not None and ast.unparse(parameter.annotation) in {
                    "Any",
                    "typing.Any",
                    "Any | None",
                }:
                    name = getattr(node, "name", "lambda")
                    yield f"{source.path}:{parameter.lineno}: parameter {parameter.arg!r} of {name} may be `Any`thing"


def _parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)


def _asks_for_one_of_several_types(node: ast.AST) -> bool:
    """Whether something is `op.type in ...`, or `op.type.startswith(...)`."""
    if isinstance(node, ast.Compare):
        sides = [node.left] if any(isinstance(o, ast.In | ast.NotIn) for o in node.ops) else []
    else:
        called = node.func if isinstance(node, ast.Call) else None
        sides = [called.value] if isinstance(called, ast.Attribute) and called.attr == "startswith" else []
    return any(ast.unparse(side).endswith((".type", ".op_def.name")) for side in sides)


def _listed_texts(node: ast.AST) -> list[str]:
    """The members of a literal collection of texts, the keys of a dictionary."""
    members = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    texts = [m.value for m in members if isinstance(m, ast.Constant) and isinstance(m.value, str)]
    return texts if len(texts) == len(members) else []


@functools.cache
def operation_types() -> frozenset[str]:
    return frozenset(all_op_defs())


RULES: tuple[Callable[[Source], Iterator[str]], ...] = (
    misplaced_rooms,
    downward_imports,
    late_imports,
    private_imports,
    homeless_imports,
    contributed_imports,
    peer_imports,
    execution_of_data,
    eager_annotations,
    names_said_again,
    operations_by_name,
    untyped_parameters,
)


def import_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of an import graph, as the modules along it, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


# ------------------------------------------------------------------------------------------------------ tests
@pytest.mark.parametrize("rule", RULES)
def test_every_file_of_the_package_keeps(rule: Callable[[Source], Iterator[str]]) -> None:
    assert len(sources()) > 1
    broken = [problem for source in sources().values() for problem in rule(source)]
    assert not broken, "\n" + "\n".join(broken)


def test_modules_form_no_import_cycle() -> None:
    graph = {
        module: {target_of(i) for i in source.imports if is_ours(i.module) and not i.for_types} - {module}
        for module, source in sources().items()
    }
    cycle = import_cycle(graph)
    assert not cycle, " imports ".join(reversed(cycle))


def test_no_two_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, source in sources().items():
        for statement in source.tree.body:
            if isinstance(statement, ast.ClassDef):
                homes.setdefault(statement.name, []).append(module)
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert not shared, f"classes that share a name: {shared}"


def test_tests_need_neither_tensorflow_nor_torch() -> None:
    folder = ROOT / "tests"
    broken = []
    for path in sorted(folder.rglob("*.py")):
        is_script = not set(SCRIPT_FOLDERS).isdisjoint(path.relative_to(folder).parts[:-1])
        if is_script and not path.name.startswith("test_") and path.name != "conftest.py":
            continue
        broken += peer_imports(Source(f"tests.{path.stem}", path, path.read_text("utf-8")))
    assert not broken, "\n" + "\n".join(broken)


def test_the_documents_list_the_rooms_in_order() -> None:
    table = re.findall(r"^\| `(\w+)[/.]", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE)
    assert [*table, "__main__"] == [room for room in ROOMS if room != "__init__"]
    house = (ROOT / "README.md").read_text("utf-8").partition("\nanabranch/\n")[2].partition("```")[0].splitlines()
    rows = [re.findall(r"(?:^  |    )(\w+)(?:/|\.py) ", line) for line in house]
    columns = [row[0] for row in rows if len(row) == 2] + [row[-1] for row in rows]
    assert columns == [room for room in ROOMS if room in columns]
    assert set(columns) == {source.room for source in sources().values()} - {"__init__", "__main__"}


def test_the_root_holds_nothing_that_a_program_wrote() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert {path.partition("/")[0] for path in listed.splitlines()} <= AT_THE_ROOT


def test_the_readme_says_how_much_there_is_to_read() -> None:
    """To a tenth: all lines of the package, and those of the files of the core that it names."""
    text = " ".join((ROOT / "README.md").read_text("utf-8").partition("## How to read the code")[2].split())
    numbers = re.search(r"about ([\d,]+) lines.*? is about ([\d,]+),", text)
    assert numbers is not None
    said = [int(number.replace(",", "")) for number in numbers.groups()]
    whole = sum(len(source.text.splitlines()) for source in sources().values())
    places = [ROOT / place for place in re.findall(r"\]\((anabranch/[\w/.]+)\)", text)]
    files = {file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])}
    core = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    assert said == pytest.approx([whole, core], rel=0.1)


def long_lines(text: str) -> Iterator[str]:
    """Lines that a reader has to scroll for. Tables, pictures and what programs printed are as wide as they are."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if len(line) > 130 and not fenced and not line.lstrip().startswith(("|", "![", "<")):
            yield f"{number}: {len(line)} columns"


def test_no_line_of_a_document_is_longer_than_130_columns() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [f"{path}:{problem}" for path in documents for problem in long_lines(path.read_text("utf-8"))]
    assert len(documents) > 10
    assert not broken, "\n" + "\n".join(broken)
    assert list(long_lines("short\n" + "x" * 131)) == ["2: 131 columns"]


# ------------------------------------------------------------------------------------- the rules find offenders
@pytest.mark.parametrize(
    ("rule", "module", "text"),
    [
        (misplaced_rooms, "anabranch.attic.trunk", ""),
        (private_imports, "anabranch.train.x", "from anabranch.session import _PartialRun"),
        (downward_imports, "anabranch.core.x", "from anabranch.graph import graph"),
        (downward_imports, "anabranch.session", "import anabranch.train.saver"),
        (downward_imports, "anabranch.train.x", "from anabranch import placeholder"),
        (downward_imports, "anabranch.ops.x", "if TYPE_CHECKING:\n    from anabranch.session import Session"),
        (late_imports, "anabranch.graph.x", "def f():\n    import anabranch.core.shapes"),
        (late_imports, "anabranch.graph.x", "try:\n    import anabranch.core\nexcept ImportError:\n    pass"),
        (late_imports, "anabranch.graph.x", "importlib.import_module(f'anabranch.ops.{name}')"),
        (late_imports, "anabranch.graph.x", "from . import graph"),
        (homeless_imports, "anabranch.graph.x", "import jax.numpy as jnp"),
        (homeless_imports, "anabranch.xlax", "from jax import lax"),
        (homeless_imports, "anabranch.distributed.worker", "def f():\n    import zmq"),
        (homeless_imports, "anabranch.distributed.transport", "import ray"),
        (contributed_imports, "anabranch.contrib.x", "from anabranch.frontend.nn.rnn import static_rnn"),
        (contributed_imports, "anabranch.contrib.x", "from anabranch.train import saver"),
        (peer_imports, "anabranch.tools.x", "from tensorflow.python import ops"),
        (peer_imports, "anabranch.tools.x", "importlib.import_module('torch')"),
        (execution_of_data, "anabranch.io.x", "import pickle"),
        (execution_of_data, "anabranch.io.x", "eval(text)"),
        (execution_of_data, "anabranch.io.x", "builtins.exec(text)"),
        (execution_of_data, "anabranch.io.x", "np.load(path, allow_pickle=True)"),
        (eager_annotations, "anabranch.io.x", "import os"),
        (names_said_again, "anabranch.io.x", "__all__ = ['x']"),
        (names_said_again, "anabranch.io.x", "__all__: list[str] = []"),
        (untyped_parameters, "anabranch.core.x", "def f(x: Any) -> int: ..."),
        (untyped_parameters, "anabranch.frontend.x", "class A:\n    def f(self, *xs: Any) -> int: ..."),
        (untyped_parameters, "anabranch.contrib.x", "def f(x: Any | None = None) -> int: ..."),
        (untyped_parameters, "anabranch.ops.x", "async def f(*, x: int, **attrs: typing.Any) -> int: ..."),
        (operations_by_name, "anabranch.passes.x", "LOOPS = frozenset({'While', 'StatelessWhile'})"),
        (operations_by_name, "anabranch.xla.x", "PASSING = ('Identity', 'OfAnotherPackage')"),
        (operations_by_name, "anabranch.xla.x", "KINDS = {'_Recv': 1, 'Island': 2}"),
        (operations_by_name, "anabranch.autodiff.x", "if op.type in READS: pass"),
        (operations_by_name, "anabranch.runtime.item_graph", "if tensor.op.op_def.name not in SWITCHES: pass"),
        (operations_by_name, "anabranch.placement.cost_model", "op.type.startswith(('Conv', 'Depthwise'))"),
    ],
)
def test_a_rule_finds(rule: Callable[[Source], Iterator[str]], module: str, text: str) -> None:
    assert len(list(rule(Source(module, Path("x.py"), text)))) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("anabranch.session", "from anabranch import errors\nfrom anabranch.graph import graph\nimport numpy as np"),
        ("anabranch.kernels.pallas.x", "import jax\nfrom anabranch.kernels import choice"),
        ("anabranch.contrib.x", "import anabranch as tf\nfrom anabranch.api.nn import static_rnn"),
        ("anabranch.distributed.transport", "import zmq"),
        ("anabranch.io.x", "tensor.eval(session)\nast.literal_eval(text)\nnp.load(path, allow_pickle=False)"),
        ("anabranch.passes.x", "if op.type == 'Const': add('Switch', {'T': 1}, ['a', 'b'])"),
        ("anabranch.ops.x", "for name in ('Add', 'Sub'): pass"),
        ("anabranch.core.x", "def f(x: dict[str, Any], *y: object, z: Callable[..., Any], t: TensorLike) -> Any: ..."),
        ("anabranch", ""),
    ],
)
def test_the_rules_accept(module: str, text: str) -> None:
    text = text and f"from __future__ import annotations\n{text}"
    source = Source(module, Path("x.py"), text)
    assert [problem for rule in RULES for problem in rule(source)] == []


def test_a_cycle_is_found_with_its_path() -> None:
    cycle = import_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert sorted(cycle[1:]) == ["a", "b", "c"]
