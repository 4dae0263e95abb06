"""Random programs with control flow, as Python text: what `tests.fuzz.gradients` differentiates.

Every value is a float64 matrix [2, 2] (`m1`, `m2`, ...) or a row [2] (`r1`, ...), and a smooth function of the inputs,
so that derivatives of all orders exist. Whatever decides a branch is an integer. A statement has a *path*, the numbers
of the statements around it and its own, and makes its choices by itself, from the seed and its path: a statement can be
left out (`dropped`) and the others stay much as they were, which is how a failing program is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Path = tuple[int, ...]

_INDENT = "    "

#: {m}, {r}: any matrix, any row; {i}: any integer scalar; {t}: a table of two rows
#: some are linear: what a loop computes matters to the second order through its iterations alone then
_MATRICES = (
    *("2.0 * {m}", "{m}", "{m} + {m}"),
    "tf.sin({m}) + {m}",
    "tf.tanh({m}) * {m}",
    "tf.matmul(tf.tanh({m}), tf.sin({m}), transpose_b=True)",
    "tf.exp(-tf.square({m}))",
    "tf.cos({m}) * {r}",
    "tf.stack([{r}, tf.sin({r})])",
    "tf.gather({t}, [1, 0])",
    "tf.concat([{m}[:1], 2.0 * tf.sin({m}[1:])], 0)",
    "tf.nn.softmax({m}) + tf.cast({i}, tf.float64)",
    "{m} / (1.0 + tf.square({m}))",
    "tf.expand_dims({r}, 1) * tf.tanh({r})",
    "tf.transpose(tf.sigmoid({m})) * tf.reduce_mean({m})",
    "tf.unsorted_segment_sum({m}, [1, {i} % 2], 2)",
    "tf.where(tf.constant([True, False]), {m}, tf.sin({m}))",
    "sine({m}) * {m}",
    "host_sine({m}) + {r}",
    "tf.stack(tf.split({m}, 2))[:, 0] * {m}",
)
_ROWS = (
    *("2.0 * {r}", "{r}", "{m}[1]"),
    "{m}[0] * tf.cos({r})",
    "{m}[{i} % 2]",
    "tf.gather({t}, {i} % 2) * {r}",
    "tf.reduce_sum(tf.tanh({m}), 0)",
    "tf.squeeze(tf.matmul([tf.sin({r})], {m}), 0)",
    "tf.unstack({m})[1] + {r}",
    "tf.reduce_mean(tf.nn.embedding_lookup({t}, [0, 1, 1, {i} % 2]), 0)",
    "sine({r}) + tf.square(tf.tanh({r}))",
    "host_sine({r})",
    "tf.diag_part(tf.cos({m})) * {r}",
)
_COUNTS = ("2", "3", "n", "{i} % 3 + 1", "n - 1", "0", "1")
_LOOP_OPTIONS = (
    "",
    ", parallel_iterations=1",
    ", swap_memory=True",
    ", maximum_iterations=2",
    ", maximum_iterations=n",
)


@dataclass
class Scope:
    """The names that a statement may use."""

    matrices: list[str]
    rows: list[str]
    integers: list[str]
    tables: list[str]
    depth: int
    inside: bool = False

    def inner(self, matrices: Sequence[str] = (), rows: Sequence[str] = (), integers: Sequence[str] = ()) -> Scope:
        """The scope of a body with parameters."""
        return Scope(
            [*self.matrices, *matrices],
            [*self.rows, *rows],
            [*self.integers, *integers],
            list(self.tables),
            self.depth - 1,
            True,
        )


@dataclass
class Writer:
    """Writes one program.

    Attributes:
        dropped: the paths of statements to leave out.
        paths: those of the statements that were written, in order.
    """

    seed: int
    dropped: frozenset[Path] = frozenset()
    depth: int = 2
    lines: list[str] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    _indent: int = 1
    _names: int = 0

    def program(self) -> str:
        """The text of a function ``build(x, w, r, n)`` that returns a matrix."""
        scope = Scope(["x", "w"], ["r"], ["n"], ["x", "w"], self.depth)
        self.lines.append("def build(x, w, r, n):")
        result = self._block(scope, (), "m", 1 + self._at(()).randrange(3))
        if self._at(()).random() < 0.5:
            result = scope.matrices[-1]
        self._line(f"return tf.identity({result})")
        return self.text

    @property
    def text(self) -> str:
        """What was written."""
        return "\n".join(self.lines)

    # ---- writing
    def _at(self, path: Path) -> random.Random:
        return random.Random(f"{self.seed}/{path}")

    def _line(self, text: str) -> None:
        self.lines.append(_INDENT * self._indent + text)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def _filled(self, choose: random.Random, template: str, scope: Scope) -> str:
        """A template with names in the places of its fields; the newest names are the likeliest."""
        pools = {"{m}": scope.matrices, "{r}": scope.rows, "{i}": scope.integers, "{t}": scope.tables}
        for place, names in pools.items():
            while place in template:
                newest = names[-1] if choose.random() < 0.7 else choose.choice(names)
                template = template.replace(place, newest, 1)
        return template

    def _expression(self, choose: random.Random, kind: str, scope: Scope) -> str:
        return self._filled(choose, choose.choice(_MATRICES if kind == "m" else _ROWS), scope)

    def _block(self, scope: Scope, path: Path, kind: str, count: int) -> str:
        """Some statements, and an expression of the last of them: the value of a block."""
        for number in range(count):
            self._statement(scope, (*path, number))
        return self._expression(self._at((*path, -1)), kind, scope)

    def _body(self, header: str, scope: Scope, path: Path, kinds: str) -> None:
        """A function that returns values of the given kinds, after `header`, which may end in `-> prefix, suffix`."""
        signature, _, form = header.partition(" -> ")
        self._line(f"def {signature}:")
        self._indent += 1
        for number in range(1 + self._at((*path, -2)).randrange(2)):
            self._statement(scope, (*path, number))
        values = [self._expression(self._at((*path, -3 - k)), kind, scope) for k, kind in enumerate(kinds)]
        joined = ", ".join(values)
        self._line("return " + (form or "{}").replace("{}", joined))
        self._indent -= 1

    def _statement(self, scope: Scope, path: Path) -> None:
        if path in self.dropped:
            return
        choose = self._at(path)
        self.paths.append(path)
        writers = _SIMPLE if scope.depth == 0 else _STATEMENTS
        choose.choice(writers)(self, choose, scope, path)

    def _bind(self, kind: str, text: str, scope: Scope) -> str:
        name = self._name(kind)
        self._line(f"{name} = {text}")
        (scope.matrices if kind == "m" else scope.rows).append(name)
        return name

    # ---- statements without bodies
    def assign(self, choose: random.Random, scope: Scope, path: Path) -> None:
        kind = choose.choice("mmr")
        self._bind(kind, self._expression(choose, kind, scope), scope)

    def held(self, choose: random.Random, scope: Scope, path: Path) -> None:
        """A value that counts as a constant: no gradient flows through it."""
        if scope.inside:
            return self.assign(choose, scope, path)
        self._bind("m", f"{choose.choice(['frozen', 'stopped'])}({self._expression(choose, 'm', scope)})", scope)
        return None

    def inner_gradient(self, choose: random.Random, scope: Scope, path: Path) -> None:
        kind = choose.choice("mr")
        by = self._filled(choose, f"{{{kind}}}", scope)
        y = self._expression(choose, choose.choice("mr"), scope)
        self._bind(kind, f"tf.gradients({y}, {by}, unconnected_gradients='zero')[0]", scope)

    def array(self, choose: random.Random, scope: Scope, path: Path) -> None:
        rows = self._name("a")
        matrix, other = self._expression(choose, "m", scope), self._expression(choose, "m", scope)
        row = self._expression(choose, "r", scope)
        made = choose.choice(
            [
                f"tf.TensorArray(tf.float64, 2).unstack({matrix})",
                f"tf.TensorArray(tf.float64, 2).unstack({matrix}).identity()",
                f"tf.TensorArray(tf.float64, 2, element_shape=[2]).scatter([1, 0], {matrix})",
                f"tf.TensorArray(tf.float64, 2, clear_after_read=False).write(1, {row}).write(0, ({matrix})[1])",
                f"tf.TensorArray(tf.float64, 0, dynamic_size=True, element_shape=[2]).write(1, {row}).write(0, {row})",
                f"tf.TensorArray(tf.float64, 1, dynamic_size=True, element_shape=[2]).scatter([1, 0], {matrix})",
            ]
        )
        self._line(f"{rows} = {made}")
        text = choose.choice(
            [
                f"tf.reshape({rows}.stack(), [2, 2])",
                f"{rows}.gather([1, 1])",
                f"{rows}.gather([1, 0]) * tf.sin({rows}.read(0))",
                f"tf.reshape({rows}.concat(), [2, 2]) * tf.reshape({rows}.stack(), [2, 2])",
                f"tf.reshape(tf.TensorArray(tf.float64, 2).split({other}, [1, 1]).concat(), [2, 2])",
                (
                    f"tf.reshape(tf.TensorArray(tf.float64, 2, infer_shape=False).split("
                    f"tf.concat([{other}, {matrix}], 0), [3, 1]).read(0)[:2], [2, 2])"
                ),
            ]
        )
        self._bind("m", text, scope)

    def recurrent(self, choose: random.Random, scope: Scope, path: Path) -> None:
        """A recurrent network over three steps; `Cell` has no variables of its own."""
        name = self._name("o")
        inputs = ", ".join(self._expression(choose, "m", scope) for _ in range(3))
        cell = self._filled(choose, "Cell({m}, {m})", scope)
        lengths = choose.choice(
            ["", ", sequence_length=[3, 1]", self._filled(choose, ", sequence_length=[{i} % 3, n]", scope)]
        )
        kind = choose.choice(["dynamic", "dynamic", "bidirectional", "raw"])
        if kind == "dynamic":
            self._line(
                f"{name}, {name}_state = tf.nn.dynamic_rnn({cell}, tf.stack([{inputs}], 1), dtype=tf.float64{lengths})"
            )
            self._bind("m", f"tf.reduce_sum({name}, 1) * {name}_state", scope)
        elif kind == "bidirectional":
            other = self._filled(choose, "Cell({m}, {m})", scope)
            self._line(f"({name}, {name}_back), ({name}_state, _) = tf.nn.bidirectional_dynamic_rnn(")
            self._line(f"{_INDENT}{cell}, {other}, tf.stack([{inputs}], 1), dtype=tf.float64{lengths}")
            self._line(")")
            self._bind("m", f"tf.reduce_sum(tf.sin({name}) * {name}_back, 1) + {name}_state", scope)
        else:
            self._line(f"{name}, {name}_state = raw({cell}, tf.stack([{inputs}]), [3, n])")
            self._bind("m", f"tf.reduce_sum({name}, 0) * {name}_state", scope)

    # ---- statements with bodies
    def conditional(self, choose: random.Random, scope: Scope, path: Path) -> None:
        kinds = choose.choice(["m", "r", "mr", "mm"])
        function = self._name("f")
        count = choose.choice([2, 2, 3])
        for k in range(count):
            self._body(f"{function}_{k}()", scope.inner(), (*path, k), kinds)
        functions = [f"{function}_{k}" for k in range(count)]
        index = self._filled(choose, "{i}", scope)
        if count == 2:
            text = f"tf.cond(tf.equal({index} % 2, {choose.randrange(2)}), {', '.join(functions)})"
        elif choose.random() < 0.5:
            text = f"tf.switch_case({index} % 3, [{', '.join(functions)}])"
        else:
            pairs = ", ".join(f"(tf.equal({index} % 3, {k}), {f})" for k, f in enumerate(functions[:-1]))
            text = f"tf.case([{pairs}], default={functions[-1]})"
        self._bind_all(kinds, text, scope)

    def _bind_all(self, kinds: str, text: str, scope: Scope) -> None:
        names = [self._name(kind) for kind in kinds]
        self._line(f"{', '.join(names)} = {text}")
        for kind, name in zip(kinds, names, strict=True):
            (scope.matrices if kind == "m" else scope.rows).append(name)

    def loop(self, choose: random.Random, scope: Scope, path: Path) -> None:
        kinds = choose.choice(["m", "r", "mr", "mm"])
        function, count, i = self._name("f"), self._filled(choose, choose.choice(_COUNTS), scope), self._name("i")
        names = [self._name(kind) for kind in kinds]
        starts = [self._expression(choose, kind, scope) for kind in kinds]
        inner = scope.inner([n for n in names if n[0] == "m"], [n for n in names if n[0] == "r"], [i])
        options, result = choose.choice(_LOOP_OPTIONS), self._name("o")
        size, write, entering = "", "", ""
        if choose.random() < 0.7:
            size = choose.choice(["3", "n + 1", "0, dynamic_size=True"])
            rows, kept = self._name("a"), choose.choice(["", ", clear_after_read=False"])
            self._line(f"{rows} = tf.TensorArray(tf.float64, {size}, element_shape=[2]{kept})")
            write, entering = f"a.write({i}, {self._expression(choose, 'r', inner)})", f", {rows}"
            write = f", again({write}, {i})" if choose.random() < 0.4 else f", {write}"
        parameters = ", ".join([i, *names, *(["a"] if size else [])])
        self._body(f"{function}({parameters}) -> {i} + 1, {{}}{write}", inner, path, kinds)
        limit = count if size[:1] in ("", "0") else f"tf.minimum({size}, {count})"
        variables = f"[0, {', '.join(starts)}{entering}]"
        self._line(f"{result} = tf.while_loop(lambda i, *_: i < {limit}, {function}, {variables}{options})")
        for k, kind in enumerate(kinds):
            self._bind(kind, f"{result}[{k + 1}]", scope)
        if size:
            self._bind("r", f"tf.reduce_sum(tf.sin({result}[-1].stack()), 0)", scope)

    def mapped(self, choose: random.Random, scope: Scope, path: Path) -> None:
        function, row, matrix = self._name("f"), self._name("r"), self._expression(choose, "m", scope)
        self._body(f"{function}({row})", scope.inner(rows=[row]), path, "r")
        self._bind("m", f"tf.map_fn({function}, {matrix})", scope)

    def mapped_pairs(self, choose: random.Random, scope: Scope, path: Path) -> None:
        function, pair = self._name("f"), self._name("p")
        one, other = self._expression(choose, "m", scope), self._expression(choose, "m", scope)
        self._body(f"{function}({pair})", scope.inner(rows=[f"{pair}[0]", f"{pair}[1]"]), path, "rr")
        self._bind_all("mm", f"tf.map_fn({function}, ({one}, {other}))", scope)

    def mapped_dictionaries(self, choose: random.Random, scope: Scope, path: Path) -> None:
        function, given, result = self._name("f"), self._name("d"), self._name("o")
        inner = scope.inner(rows=[f"{given}['r']"], integers=[f"{given}['i']"])
        self._body(f"{function}({given}) -> {{'y': {{}}}}", inner, path, "m")
        elements = f"{{'r': {self._expression(choose, 'm', scope)}, 'i': tf.constant([2, 1])}}"
        self._line(f"{result} = tf.map_fn({function}, {elements}, dtype={{'y': tf.float64}})")
        self._bind("m", f"tf.reduce_sum({result}['y'], 0)", scope)

    def folded(self, choose: random.Random, scope: Scope, path: Path) -> None:
        function, total, row = self._name("f"), self._name("c"), self._name("r")
        start = choose.choice(["", ", " + self._expression(choose, "r", scope)])
        matrix = self._expression(choose, "m", scope)
        self._body(f"{function}({total}, {row})", scope.inner(rows=[total, row]), path, "r")
        kind, form = choose.choice(
            [("m", "scan({}, reverse=True)"), ("m", "scan({})"), ("r", "foldl({})"), ("r", "foldr({})")]
        )
        self._bind(kind, "tf." + form.replace("{}", f"{function}, {matrix}{start}"), scope)

    def scanned_pairs(self, choose: random.Random, scope: Scope, path: Path) -> None:
        function, state, row, result = (self._name(kind) for kind in "fcro")
        start = f"({self._expression(choose, 'm', scope)}, {self._expression(choose, 'r', scope)})"
        matrix, reverse = self._expression(choose, "m", scope), choose.choice(["", ", reverse=True"])
        self._body(f"{function}({state}, {row})", scope.inner([f"{state}[0]"], [f"{state}[1]", row]), path, "mr")
        self._line(f"{result} = tf.scan({function}, {matrix}, {start}{reverse})")
        self._bind("m", f"tf.reduce_sum({result}[0], 0) * {result}[1]", scope)


_SIMPLE: tuple[Callable[..., None], ...] = (Writer.assign, Writer.assign, Writer.assign, Writer.array)
_STATEMENTS: tuple[Callable[..., None], ...] = (
    *(Writer.assign, Writer.held, Writer.array, Writer.inner_gradient, Writer.recurrent),
    *(Writer.conditional,) * 3,
    *(Writer.loop,) * 4,
    *(Writer.mapped, Writer.mapped_pairs, Writer.mapped_dictionaries, Writer.folded, Writer.scanned_pairs),
)


def smaller(seed: int, depth: int, fails: Callable[[frozenset[Path]], bool]) -> frozenset[Path]:
    """Statements to leave out of a program that fails: as many as can be, so that it still does."""
    dropped: frozenset[Path] = frozenset()
    progress = True
    while progress:
        progress = False
        for path in _outermost_first(written(seed, depth, dropped).paths):
            if fails(dropped | {path}):
                dropped, progress = dropped | {path}, True
                break
    return dropped


def _outermost_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=len)


def written(seed: int, depth: int, dropped: frozenset[Path]) -> Writer:
    """A writer that has written its program."""
    writer = Writer(seed, dropped, depth)
    writer.program()
    return writer
