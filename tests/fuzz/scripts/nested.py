"""Random control flow in control flow: conditionals, loops, arrays of tensors in each other, and their gradients.

A script is a function of a vector, a number and a count that is built by nested functions of Python; its value and its
gradients with respect to all three kinds of sources (what is fed, and a variable) are shown for several feeds.
"""

from __future__ import annotations

from random import Random

_BEGINNING = """
x = tf.placeholder_with_default(np.array([0.3, -0.7, 1.1]), [3])
s = tf.placeholder_with_default(np.float64(0.6), [])
n = tf.placeholder_with_default(np.int32(2), [])
v = tf.get_variable('v', initializer=np.array([0.5, -0.2, 0.9]), use_resource=True)
"""
#: how deep control flow goes into control flow
_DEPTH = 3
_ARITHMETIC = (
    "tf.tanh({a} + {b})",
    "{a} * tf.sigmoid({b})",
    "tf.sin({a}) * s",
    "{a} - 0.5 * {b}",
    "tf.cumsum({a}) * 0.3",
    "tf.reverse({a}, [0]) * 0.9",
    "tf.maximum({a}, {b}) * 0.7",
    "tf.where({a} > 0.1, {a} * 0.5, {b})",
    "v * tf.reduce_mean({a})",
    "tf.gather({a}, [2, 0, 0]) * 0.8",
    "tf.concat([{a}[1:], {b}[:1]], 0)",
    "tf.identity({a})",
    "tf.stop_gradient({a}) + {b} * 0.2",
    "tf.nn.softmax({a})",
    "tf.clip_by_value({a}, -0.5, 0.5)",
)
_FEEDS = ("{n: 0}", "{n: 1, s: -0.4}", "{n: 3}", "{x: [2.0, -1.5, 0.05], n: 2}")


class Nested:
    """Writes one script."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.count = 0

    def _fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def _write(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def script(self) -> str:
        self.lines = _BEGINNING.strip("\n").splitlines()
        vectors = ["x", "v"]
        for _ in range(self.random.randint(2, 4)):
            vectors.append(self._statement(0, 0, vectors, ["n"]))
        self.lines += [
            f"y = tf.reduce_sum({vectors[-1]}) + tf.reduce_sum({self.random.choice(vectors)} * {vectors[-2]})",
            f"sources = {self.random.choice(('[x, s, v]', '[x]', '[v, s]'))}",
            "slopes = tf.gradients(y, sources, unconnected_gradients='zero')",
            "with tf.Session() as session:",
            "    session.run(tf.global_variables_initializer())",
            f"    for feed in [{', '.join(self.random.sample(_FEEDS, 3))}]:",
            f"        attempt('values', lambda: session.run([{', '.join(vectors[2:])}], feed))",
            "        attempt('slopes', lambda: session.run([tf.convert_to_tensor(g) for g in slopes], feed))",
        ]
        return "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ statements
    def _statement(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        """Writes what makes a new vector, and gives its name."""
        r = self.random
        nested = (self._cond, self._case, self._while, self._collecting, self._reading, self._mapped, self._counted)
        if depth >= _DEPTH or r.random() < 0.25:
            return self._arithmetic(indent, vectors)
        return r.choice((*nested, self._while, self._cond))(indent, depth, vectors, counts)

    def _arithmetic(self, indent: int, vectors: list[str]) -> str:
        r, name = self.random, self._fresh("t")
        a, b = r.choice(vectors[-4:]), r.choice(vectors)
        self._write(indent, f"{name} = {r.choice(_ARITHMETIC).format(a=a, b=b)}")
        return name

    def _block(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        """Some statements of a function; gives the last vector."""
        inside = list(vectors)
        for _ in range(self.random.choice((1, 1, 2))):
            inside.append(self._statement(indent, depth + 1, inside, counts))
        return inside[-1]

    def _predicate(self, vectors: list[str], counts: list[str]) -> str:
        r, count = self.random, self.random.choice(counts)
        return r.choice(
            (
                f"{count} > 1",
                f"tf.equal({count} % 2, 0)",
                f"tf.reduce_sum({r.choice(vectors)}) > 0.137",
                f"tf.logical_or({count} < 1, s < 0.0)",
                "tf.constant(True)",
            )
        )

    def _cond(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        predicate, name = self._predicate(vectors, counts), self._fresh("t")
        pair = self.random.random() < 0.3
        functions = []
        for prefix in ("yes", "no"):
            function = self._fresh(prefix)
            functions.append(function)
            self._write(indent, f"def {function}():")
            plain = self.random.random() < 0.25
            result = self.random.choice(vectors) if plain else self._block(indent + 1, depth, vectors, counts)
            second = self.random.choice(vectors)
            self._write(indent + 1, f"return {result}, {second} * 0.5" if pair else f"return {result}")
        result = f"tf.cond({predicate}, {', '.join(functions)})"
        self._write(indent, f"{name} = tf.add(*{result})" if pair else f"{name} = {result}")
        return name

    def _case(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        functions = []
        for _ in range(3):
            function = self._fresh("case")
            functions.append(function)
            self._write(indent, f"def {function}():")
            self._write(indent + 1, f"return {self._block(indent + 1, depth, vectors, counts)}")
        name, count = self._fresh("t"), self.random.choice(counts)
        # TensorFlow cannot differentiate one in a loop of its first control flow
        if depth == 0 and self.random.random() < 0.5:
            self._write(indent, f"{name} = tf.switch_case({count} % 3, [{', '.join(functions)}])")
        else:
            first, second = self._predicate(vectors, counts), self._predicate(vectors, counts)
            pairs = f"[({first}, {functions[0]}), ({second}, {functions[1]})]"
            self._write(indent, f"{name} = tf.case({pairs}, default={functions[2]}, exclusive=False)")
        return name

    def _bound(self, counts: list[str]) -> str:
        return self.random.choice((f"{self.random.choice(counts)} + 1", "n", "3", "2"))

    def _while(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        r, name, body = self.random, self._fresh("t"), self._fresh("body")
        i, a, b = self._fresh("i"), self._fresh("a"), self._fresh("b")
        bound, start, other = self._bound(counts), r.choice(vectors), r.choice(vectors)
        self._write(indent, f"def {body}({i}, {a}, {b}):")
        result = self._block(indent + 1, depth, [*vectors, b, a], [*counts, i])
        self._write(indent + 1, f"return {i} + 1, {result}, {r.choice((a, b, f'{a} * 0.5', f'{b} + {a} * 0.1'))}")
        test = f"{i} < {bound}"
        if r.random() < 0.3:
            test = f"tf.logical_and({test}, tf.reduce_sum(tf.abs({a})) < 9.0)"
        options = r.choice(("", "", ", parallel_iterations=1", ", swap_memory=True", ", maximum_iterations=4"))
        loop = f"tf.while_loop(lambda {i}, {a}, {b}: {test}, {body}, (0, {start}, {other}){options})"
        self._write(indent, f"{name} = {loop}[{r.choice((1, 1, 2))}]")
        return name

    def _counted(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        """A loop over a structure, whose second part grows no longer than its first."""
        r, name, body = self.random, self._fresh("t"), self._fresh("body")
        i, a = self._fresh("i"), self._fresh("a")
        bound = self._bound(counts)
        self._write(indent, f"def {body}({i}, {a}):")
        result = self._block(indent + 1, depth, [*vectors, f"{a}['p']"], [*counts, i])
        self._write(indent + 1, f"return {i} + 1, {{'p': {result}, 'q': {a}['q'] + tf.reduce_sum({result})}}")
        start = f"{{'p': {r.choice(vectors)}, 'q': s}}"
        loop = f"tf.while_loop(lambda {i}, {a}: {i} < {bound}, {body}, (0, {start}))[1]"
        self._write(indent, f"{name} = (lambda found: found['p'] + 0.1 * found['q'])({loop})")
        return name

    def _collecting(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        """A loop that writes an array of tensors."""
        r, name, body, array = self.random, self._fresh("t"), self._fresh("body"), self._fresh("array")
        i, a, w = self._fresh("i"), self._fresh("a"), self._fresh("w")
        bound = self._bound(counts)
        size = r.choice(("0, dynamic_size=True", f"{bound}"))
        self._write(indent, f"{array} = tf.TensorArray(tf.float64, {size}, element_shape=[3], clear_after_read=False)")
        self._write(indent, f"def {body}({i}, {a}, {w}):")
        inside = [*vectors, a]
        if r.random() < 0.3:
            self._write(indent + 1, f"{w} = {w}.write({i}, {a} * 0.5)")
            result = f"{w}.read({i})"
        else:
            result = self._block(indent + 1, depth, inside, [*counts, i])
            self._write(indent + 1, f"{w} = {w}.write({i}, {result})")
        self._write(indent + 1, f"return {i} + 1, {result} * 0.9, {w}")
        start = r.choice(vectors)
        loop = f"tf.while_loop(lambda {i}, {a}, {w}: {i} < {bound}, {body}, (0, {start}, {array}))"
        end = r.choice(("stack()", "concat()", "stack()"))
        rows = f"tf.reshape({loop}[2].{end}, [-1, 3])"
        self._write(indent, f"{name} = tf.reduce_sum({rows} * 0.5, 0) + {start} * 0.1")
        return name

    def _reading(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        """A loop, or a branch, that reads an array of tensors that was filled before it."""
        r, name, array = self.random, self._fresh("t"), self._fresh("array")
        first, second = r.choice(vectors), r.choice(vectors)
        made = "tf.TensorArray(tf.float64, 3, element_shape=[3], clear_after_read=False)"
        self._write(indent, f"{array} = {made}.unstack(tf.stack([{first}, {second}, {first} * 0.3]))")
        if r.random() < 0.4:
            predicate = self._predicate(vectors, counts)
            branches = f"lambda: {array}.read({r.choice((0, 1))}), lambda: {array}.read(2) * 2.0"
            self._write(indent, f"{name} = tf.cond({predicate}, {branches})")
            return name
        body, i, a = self._fresh("body"), self._fresh("i"), self._fresh("a")
        self._write(indent, f"def {body}({i}, {a}):")
        element = self._fresh("e")
        self._write(indent + 1, f"{element} = {array}.read({r.choice((i, f'2 - {i}', '1'))})")
        result = self._block(indent + 1, depth, [*vectors, a, element], [*counts, i])
        self._write(indent + 1, f"return {i} + 1, {result} + {element} * 0.3")
        bound = r.choice(("3", "2", "tf.minimum(n, 3)"))
        loop = f"tf.while_loop(lambda {i}, {a}: {i} < {bound}, {body}, (0, {r.choice(vectors)}))"
        self._write(indent, f"{name} = {loop}[1]")
        return name

    def _mapped(self, indent: int, depth: int, vectors: list[str], counts: list[str]) -> str:
        r, name, function, e = self.random, self._fresh("t"), self._fresh("each"), self._fresh("e")
        over = f"tf.stack([{r.choice(vectors)}, {r.choice(vectors)}])"
        kind = r.choice(("map_fn", "scan", "foldl", "foldr"))
        a = self._fresh("a")
        self._write(indent, f"def {function}({e if kind == 'map_fn' else f'{a}, {e}'}):")
        inside = [*vectors, e] if kind == "map_fn" else [*vectors, a, e]
        self._write(indent + 1, f"return {self._block(indent + 1, depth, inside, counts)}")
        start = "" if kind == "map_fn" else f", {r.choice(vectors)}"
        call = f"tf.{kind}({function}, {over}{start})"
        self._write(indent, f"{name} = {call if kind.startswith('fold') else f'tf.reduce_sum({call}, 0)'}")
        return name


def write(random: Random) -> str:
    """A script of nested control flow."""
    return Nested(random).script()
