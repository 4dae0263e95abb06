"""Random pipelines of `tf.data`: sources, transformations and iterators, with their types, shapes and elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

_RECORDS = """
with tf.io.TFRecordWriter('records') as writer:
    for i in range({count}):
        writer.write(('r%d' % i).encode() * (i % 3))
"""
_LINES = """
with open('lines', 'w') as file:
    file.write('alpha\\nbeta\\n\\ngamma 1,2\\r\\n{last}')
"""
_FIXED = """
with open('fixed', 'wb') as file:
    file.write(bytes(range({count})))
"""
_BEGINNING = "config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)\n"


@dataclass(frozen=True)
class Leaf:
    """A component of an element: its dtype, and for each axis the length, None where that varies."""

    dtype: str
    shape: tuple[int | None, ...]
    kind: str = "tensor"


#: a component, or components by name, or several
Element = Leaf | tuple["Element", ...] | dict[str, "Element"]


class Pipeline:
    """Writes one pipeline.

    Attributes:
        endless: whether there is no last element.
        stateful: whether functions are on the way that TensorFlow takes for stateful: it saves no position of these.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.element: Element = Leaf("int64", ())
        self.endless = False
        self.stateful = False

    # ------------------------------------------------------------------ the whole
    def script(self) -> str:
        pick = self.random.choice
        self.lines = [_BEGINNING]
        self._source()
        for _ in range(self.random.randint(1, 7)):
            pick(_TRANSFORMATIONS)(self)
            if self.random.random() < 0.1:
                self._add("see('types so far', tf.data.get_output_types(ds))")
        if self.endless:
            self._add(f"ds = ds.take({self.random.randint(0, 40)})")
        self._add("ds = as_written(ds)")
        for what in ("types", "shapes", "classes"):
            self._add(f"see('{what}', tf.data.get_output_{what}(ds))")
        # TensorFlow saves no iterator that has Python's functions on its way
        last = _initializable if self.stateful else _saved
        pick((_one_shot, _initializable, _reinitializable, _feedable, last))(self)
        return "\n".join(self.lines) + "\n"

    def _add(self, text: str) -> None:
        self.lines.append(text)

    def _number(self) -> int:
        return self.random.choice((1, 2, 2, 3, 3, 4, 5, 7))

    # ------------------------------------------------------------------ sources
    def _source(self, deep: bool = False) -> None:
        r = self.random
        n = r.choice((0, 1, 2, 3, 5, 8, 12))
        kind = r.randrange(10)
        if kind == 0:
            self._add(f"ds = tf.data.Dataset.range({r.choice((str(n), f'2, {n + 2}', f'{n}, 0, -2', '10, 0, -3'))})")
            self.element = Leaf("int64", ())
        elif kind in (1, 2, 3):
            text, self.element = self._slices(max(n, 1))
            self._add(f"ds = tf.data.Dataset.from_tensor_slices({text})")
        elif kind == 4:
            text, self.element = self._slices(max(n, 1))
            self._add(f"ds = tf.data.Dataset.from_tensors({text})")
            self.element = _batched(self.element, max(n, 1))
        elif kind == 5:
            self.stateful = True
            self._add(f"ds = tf.data.Dataset.from_generator(lambda: iter(range({n})), tf.int64)")
            self.element = Leaf("int64", ())
        elif kind == 6:
            self.stateful = True
            shape = r.choice(
                ("([None], [])", "(tf.TensorShape([None]), tf.TensorShape([]))", "(tf.TensorShape(None), [])")
            )
            self._add(
                f"ds = tf.data.Dataset.from_generator(lambda: (([i] * (i % 3), 'k%d' % i) for i in range({n})), "
                f"(tf.int32, tf.string), {shape})"
            )
            self.element = (Leaf("int32", (None,)), Leaf("string", ()))
        elif kind == 7:
            self._add(_RECORDS.format(count=n).strip("\n"))
            files = r.choice(("'records'", "['records', 'records']"))
            self._add(f"ds = tf.data.TFRecordDataset({files})")
            self.element = Leaf("string", ())
        elif kind == 8:
            last = r.choice(("", "last", "last\\n"))
            self._add(_LINES.format(last=last).strip("\n"))
            files = r.choice(("'lines'", "['lines', 'lines']"))
            self._add(f"ds = tf.data.TextLineDataset({files})")
            self.element = Leaf("string", ())
        else:
            record, header, footer = r.choice((2, 3, 4)), r.choice((0, 1, 2)), r.choice((0, 1))
            self._add(_FIXED.format(count=header + footer + record * r.choice((0, 1, 4))).strip("\n"))
            arguments = f"'fixed', {record}, {header or None}, {footer}"
            self._add(f"ds = tf.data.FixedLengthRecordDataset({arguments})")
            self.element = Leaf("string", ())

    def _slices(self, n: int) -> tuple[str, Element]:
        r = self.random
        kind = r.randrange(9)
        if kind == 0:
            return f"np.arange({n}, dtype=np.int64)", Leaf("int64", ())
        if kind == 1:
            return f"np.arange({2 * n}, dtype=np.float32).reshape({n}, 2) / 3", Leaf("float32", (2,))
        if kind == 2:
            return f"['s%d' % i for i in range({n})]", Leaf("string", ())
        if kind == 3:
            a, b = self._slices(n), self._slices(n)
            return f"({a[0]}, {b[0]})", (a[1], b[1])
        if kind == 4:
            a, b = self._slices(n), self._slices(n)
            return f"{{'x': {a[0]}, 'a': {b[0]}}}", {"x": a[1], "a": b[1]}
        if kind == 5:
            rows = sorted({(r.randrange(n), r.randrange(3)) for _ in range(n)})
            values = [f"{i}.5" for i in range(len(rows))]
            indices = [list(row) for row in rows]
            text = f"tf.SparseTensor(np.array({indices}, np.int64), [{', '.join(values)}], [{n}, 3])"
            return text, Leaf("float32", (3,), "sparse")
        if kind == 6:
            rows_text = [[i] * (i % 3) for i in range(n)]
            return f"tf.ragged.constant({rows_text}, dtype=tf.int32)", Leaf("int32", (None,), "ragged")
        if kind == 7:
            return f"np.arange({n}) % 2 == 0", Leaf("bool", ())
        return f"np.arange({n * 6}, dtype=np.int32).reshape({n}, 2, 3)", Leaf("int32", (2, 3))

    # ------------------------------------------------------------------ transformations
    def parameters(self) -> tuple[str, list[tuple[str, Leaf]]]:
        """Names for the arguments of a function of an element, and expressions for its leaves."""
        if isinstance(self.element, tuple):
            names = [f"e{i}" for i in range(len(self.element))]
            found = [leaf for name, part in zip(names, self.element, strict=True) for leaf in _leaves(name, part)]
            return ", ".join(names), found
        return "e", _leaves("e", self.element)

    def whole(self) -> str:
        """The element as one expression of the parameters."""
        if isinstance(self.element, tuple):
            return "(" + "".join(f"e{i}, " for i in range(len(self.element))) + ")"
        return "e"


def _leaves(name: str, element: Element) -> list[tuple[str, Leaf]]:
    if isinstance(element, Leaf):
        return [(name, element)]
    if isinstance(element, dict):
        return [leaf for key, part in element.items() for leaf in _leaves(f"{name}['{key}']", part)]
    return [leaf for i, part in enumerate(element) for leaf in _leaves(f"{name}[{i}]", part)]


def _changed(element: Element, function: Callable[[Leaf], Leaf]) -> Element:
    if isinstance(element, Leaf):
        return function(element)
    if isinstance(element, dict):
        return {key: _changed(part, function) for key, part in element.items()}
    return tuple(_changed(part, function) for part in element)


def _batched(element: Element, n: int | None = None) -> Element:
    return _changed(element, lambda leaf: Leaf(leaf.dtype, (n, *leaf.shape), leaf.kind))


def _map(p: Pipeline) -> None:
    r = p.random
    parameters, leaves = p.parameters()
    results: list[tuple[str, Element]] = []
    for name, leaf in r.sample(leaves, min(len(leaves), r.randint(1, 2))):
        results.append(r.choice(_expressions(name, leaf)))
    kind = r.randrange(4)
    if kind == 0 or len(results) == 1:
        text, element = results[0]
    elif kind == 1:
        text, element = f"{{'m': {results[0][0]}, 'n': {results[-1][0]}}}", {"m": results[0][1], "n": results[-1][1]}
    elif kind == 2:
        text = f"({results[0][0]}, ({results[-1][0]}, {p.whole()}))"
        element = (results[0][1], (results[-1][1], p.element))
    else:
        text, element = f"({results[0][0]}, {results[-1][0]})", (results[0][1], results[-1][1])
    more = r.choice(("", "", "", ", num_parallel_calls=2", ", num_parallel_calls=tf.data.experimental.AUTOTUNE"))
    p.lines.append(f"ds = ds.map(lambda {parameters}: {text}{more})")
    p.stateful = p.stateful or "py_func" in text or "check_numerics" in text
    p.element = element


def _expressions(name: str, leaf: Leaf) -> list[tuple[str, Element]]:
    found: list[tuple[str, Element]] = [(name, leaf)]
    if leaf.kind == "sparse":
        return [
            *found,
            (f"tf.sparse.to_dense({name})", Leaf(leaf.dtype, leaf.shape)),
            (f"{name}.values", Leaf(leaf.dtype, (None,))),
        ]
    if leaf.kind == "ragged":
        return [*found, (f"{name}.to_tensor()", Leaf(leaf.dtype, leaf.shape))] if len(leaf.shape) > 1 else found
    found += [
        (f"({name}, tf.shape({name}))", (leaf, Leaf("int32", (len(leaf.shape),)))),
        (f"tf.expand_dims({name}, 0)", Leaf(leaf.dtype, (1, *leaf.shape))),
        (f"tf.stack([{name}, {name}])", Leaf(leaf.dtype, (2, *leaf.shape))),
    ]
    if leaf.dtype in ("int32", "int64", "float32"):
        found += [
            (f"{name} * 2 + 1", leaf),
            (f"tf.cast({name}, tf.float32) / 7", Leaf("float32", leaf.shape)),
            (f"tf.as_string({name})", Leaf("string", leaf.shape)),
            (f"tf.reduce_sum({name})", Leaf(leaf.dtype, ())),
            (f"tf.py_func(lambda x: x * x, [{name}], tf.{leaf.dtype})", leaf),
            (f"{{'b': {name}, 'a': -{name}}}", {"b": leaf, "a": leaf}),
            (f"tf.cond(tf.reduce_any({name} > 2), lambda: {name} - 2, lambda: {name})", leaf),
        ]
        if leaf.dtype != "float32" and not leaf.shape:
            found += [
                (f"tf.range({name} % 4)", Leaf(leaf.dtype, (None,))),
                (f"tf.fill([tf.cast({name} % 3, tf.int32), 2], {name})", Leaf(leaf.dtype, (None, 2))),
                (f"tf.debugging.check_numerics(6.0 / tf.cast({name} - 3, tf.float32), 'wrong')", Leaf("float32", ())),
                (f"tf.sparse.from_dense(tf.stack([{name}, 0, {name} % 2]))", Leaf(leaf.dtype, (3,), "sparse")),
            ]
    if leaf.dtype == "string":
        found += [
            (f"tf.strings.length({name})", Leaf("int32", leaf.shape)),
            (f"tf.strings.join([{name}, {name}], '-')", leaf),
            (f"tf.strings.substr({name}, 0, 1)", leaf),
            (f"tf.strings.to_hash_bucket_fast({name}, 10)", Leaf("int64", leaf.shape)),
        ]
        if not leaf.shape:
            found += [
                (f"tf.string_split([{name}], 'a').values", Leaf("string", (None,))),
                (f"tf.decode_raw({name}, tf.uint8)", Leaf("uint8", (None,))),
            ]
    return found


def _filter(p: Pipeline) -> None:
    parameters, leaves = p.parameters()
    name, leaf = p.random.choice(leaves)
    if leaf.kind != "tensor":
        return
    text = {"string": f"tf.reduce_any(tf.strings.length({name}) > 2)", "bool": f"tf.reduce_any({name})"}.get(
        leaf.dtype,
        f"tf.reduce_sum(tf.cast({name}, tf.int32)) % {p.random.choice((2, 3))} {p.random.choice(('<', '=='))} 1",
    )
    p.lines.append(f"ds = ds.filter(lambda {parameters}: {text})")


def _batch(p: Pipeline) -> None:
    n = p._number()
    keep = p.random.choice(("", "", ", drop_remainder=True"))
    p.lines.append(f"ds = ds.batch({n}{keep})")
    p.element = _batched(p.element, n if keep else None)


def _padded_batch(p: Pipeline) -> None:
    r = p.random
    if any(leaf.kind != "tensor" for _, leaf in p.parameters()[1]) and r.random() < 0.9:
        return
    n = p._number()
    keep = r.choice(("", ", drop_remainder=True"))
    shapes = _text(
        p.element, lambda leaf: repr(r.choice(([None] * len(leaf.shape), [4 if d is None else d for d in leaf.shape])))
    )
    values = ""
    if r.random() < 0.3:
        values = ", padding_values=" + _text(p.element, _padding)
    p.lines.append(f"ds = ds.padded_batch({n}, {shapes}{values}{keep})")
    p.element = _batched(
        _changed(p.element, lambda leaf: Leaf(leaf.dtype, (None,) * len(leaf.shape))), n if keep else None
    )


def _padding(leaf: Leaf) -> str:
    if leaf.dtype == "string":
        return "'pad'"
    return (
        "False" if leaf.dtype == "bool" else f"tf.constant(-1 if tf.{leaf.dtype} != tf.uint8 else 9, tf.{leaf.dtype})"
    )


def _text(element: Element, function: Callable[[Leaf], str]) -> str:
    if isinstance(element, Leaf):
        return function(element)
    if isinstance(element, dict):
        return "{" + ", ".join(f"'{key}': {_text(part, function)}" for key, part in element.items()) + "}"
    return "(" + "".join(f"{_text(part, function)}, " for part in element) + ")"


def _flat_map(p: Pipeline) -> None:
    r = p.random
    parameters, leaves = p.parameters()
    name, leaf = r.choice(leaves)
    if leaf.kind == "tensor" and leaf.dtype in ("int32", "int64") and not leaf.shape and r.random() < 0.6:
        text, element = f"tf.data.Dataset.range(tf.cast({name} % 4, tf.int64))", Leaf("int64", ())
    elif leaf.shape:
        text, element = f"tf.data.Dataset.from_tensor_slices({name})", Leaf(leaf.dtype, leaf.shape[1:], leaf.kind)
    else:
        text, element = f"tf.data.Dataset.from_tensors({name}).repeat({r.choice((0, 1, 2, 3))})", leaf
    kind = r.randrange(4)
    if kind == 0:
        p.lines.append(f"ds = ds.flat_map(lambda {parameters}: {text})")
    elif kind == 3:
        p.lines.append(
            "ds = ds.apply(tf.data.experimental.parallel_interleave("
            f"lambda {parameters}: {text}, cycle_length={p._number()}, block_length={r.choice((1, 2))}, sloppy=False))"
        )
    else:
        cycle = p._number()
        more = r.choice(("", f", num_parallel_calls={min(cycle, 2)}"))
        p.lines.append(
            f"ds = ds.interleave(lambda {parameters}: {text}, "
            f"cycle_length={cycle}, block_length={r.choice((1, 2, 3))}{more})"
        )
    p.element = element


def _window(p: Pipeline) -> None:
    r = p.random
    leaves = p.parameters()[1]
    size = p._number()
    arguments = (
        f"{size}, shift={r.choice(('None', '1', '2', '3'))}, "
        f"stride={r.choice((1, 1, 2))}, drop_remainder={r.choice((True, False))}"
    )
    p.lines.append(f"ds = ds.window({arguments})")
    if isinstance(p.element, Leaf) and p.element.kind == "tensor":
        if r.random() < 0.8:
            p.lines.append(f"ds = ds.flat_map(lambda w: w.batch({r.choice((size, 2))}))")
            p.element = _batched(p.element)
        else:
            p.lines.append("ds = ds.flat_map(lambda w: w)")
    elif (
        isinstance(p.element, tuple)
        and all(leaf.kind == "tensor" for _, leaf in leaves)
        and all(isinstance(x, Leaf) for x in p.element)
    ):
        names = [f"w{i}" for i in range(len(p.element))]
        p.lines.append(f"ds = ds.flat_map(lambda {', '.join(names)}: tf.data.Dataset.zip(({', '.join(names)},)))")
    else:
        p.lines.pop()


def _group(p: Pipeline) -> None:
    r = p.random
    parameters, leaves = p.parameters()
    found = [(n, x) for n, x in leaves if x.kind == "tensor" and x.dtype in ("int32", "int64") and not x.shape]
    if not found or any(x.kind != "tensor" for _, x in leaves):
        return
    name = r.choice(found)[0]
    size = r.choice((f"window_size={p._number()}", "window_size_func=lambda key: key + 1"))
    shapes = _text(p.element, lambda leaf: repr([None] * len(leaf.shape)))
    reduce = r.choice((f"w.padded_batch({p._number()}, {shapes})", f"w.batch({p._number()})"))
    if any(None in x.shape for _, x in leaves):
        reduce = f"w.padded_batch({p._number()}, {shapes})"
    p.lines.append(
        f"ds = ds.apply(tf.data.experimental.group_by_window(lambda {parameters}: "
        f"tf.cast({name} % 3, tf.int64), lambda key, w: {reduce}, {size}))"
    )
    p.element = _batched(_changed(p.element, lambda leaf: Leaf(leaf.dtype, (None,) * len(leaf.shape))))


def _bucket(p: Pipeline) -> None:
    r = p.random
    parameters, leaves = p.parameters()
    found = [(n, x) for n, x in leaves if x.kind == "tensor" and len(x.shape) == 1]
    if not found or any(x.kind != "tensor" for _, x in leaves):
        return
    name = r.choice(found)[0]
    more = r.choice(("", ", pad_to_bucket_boundary=True", ", drop_remainder=True", ", no_padding=True"))
    p.lines.append(
        "ds = ds.apply(tf.data.experimental.bucket_by_sequence_length(lambda "
        f"{parameters}: tf.shape({name})[0], [1, 3], [2, 3, {p._number()}]{more}))"
    )
    p.element = _batched(_changed(p.element, lambda leaf: Leaf(leaf.dtype, (None,) * len(leaf.shape))))


def _scan(p: Pipeline) -> None:
    leaves = p.parameters()[1]
    name, leaf = leaves[0]
    if leaf.kind != "tensor" or leaf.dtype not in ("int32", "int64", "float32") or leaf.shape:
        return
    name = "e" + name.removeprefix("e0") if isinstance(p.element, tuple) else name
    first = f"e[0]{name[1:]}" if isinstance(p.element, tuple) else name
    p.lines.append(
        "ds = ds.apply(tf.data.experimental.scan(tf.constant(1, "
        f"tf.{leaf.dtype}), lambda s, e: (s + {first}, (s, {first}))))"
    )
    p.element = (leaf, leaf)


def _zip(p: Pipeline) -> None:
    r = p.random
    kind = r.randrange(4)
    if kind == 0:
        p.lines.append("ds = tf.data.Dataset.zip((ds, tf.data.Dataset.range(5)))")
        p.element = (p.element, Leaf("int64", ()))
    elif kind == 1:
        p.lines.append("ds = tf.data.Dataset.zip({'z': ds, 'y': ds.skip(1)})")
        p.element = {"z": p.element, "y": p.element}
    elif kind == 2:
        p.lines.append(f"ds = ds.concatenate(ds.take({p._number()}))")
    else:
        start = r.choice(("0", "3", "-1"))
        p.lines.append(
            r.choice((f"ds = ds.enumerate({start})", f"ds = ds.apply(tf.data.experimental.enumerate_dataset({start}))"))
        )
        p.element = (Leaf("int64", ()), p.element)


def _unbatch(p: Pipeline) -> None:
    leaves = p.parameters()[1]
    if any(not leaf.shape for _, leaf in leaves) and p.random.random() < 0.9:
        return
    p.lines.append(p.random.choice(("ds = ds.unbatch()", "ds = ds.apply(tf.data.experimental.unbatch())")))
    p.element = _changed(p.element, lambda leaf: Leaf(leaf.dtype, leaf.shape[1:], leaf.kind))


def _select(p: Pipeline) -> None:
    r = p.random
    n = r.choice((0, 1, 2, 3, 5, 9))
    shards = p._number()
    p.lines.append(
        r.choice(
            (
                f"ds = ds.take({r.choice((n, n, -1))})",
                f"ds = ds.skip({r.choice((n, n, -1))})",
                f"ds = ds.repeat({r.choice((0, 1, 2, 3))})",
                f"ds = ds.shard({shards}, {r.randrange(shards)})",
                "ds = ds.cache()",
                "ds = ds.prefetch(2)",
                "ds = ds.apply(tf.data.experimental.ignore_errors())",
                "ds = ds.apply(tf.data.experimental.take_while(lambda *e: tf.constant(True)))",
                "ds = ds.with_options(tf.data.Options())",
            )
        )
    )


def _repeat_forever(p: Pipeline) -> None:
    if not p.endless:
        p.lines.append(p.random.choice(("ds = ds.take(6).repeat()", "ds = ds.repeat(-1)")))
        p.endless = True


def _shuffle(p: Pipeline) -> None:
    """Elements in an order of each side's own: only what does not depend on it follows."""
    if p.endless or p.random.random() < 0.6:
        return
    p.lines.append(p.random.choice(("ds = ds.shuffle(1)", "ds = ds.shuffle(1, seed=3)")))


_TRANSFORMATIONS: tuple[Callable[[Pipeline], None], ...] = (
    _map,
    _map,
    _map,
    _filter,
    _batch,
    _batch,
    _padded_batch,
    _flat_map,
    _flat_map,
    _window,
    _group,
    _bucket,
    _scan,
    _zip,
    _unbatch,
    _select,
    _select,
    _select,
    _repeat_forever,
    _shuffle,
)


# ------------------------------------------------------------------ iterators
def _one_shot(p: Pipeline) -> None:
    p.lines.append(
        """following = tf.data.make_one_shot_iterator(ds).get_next()
with tf.Session(config=config) as session:
    session.run(tf.tables_initializer())
    walk('one shot', session, following)"""
    )


def _initializable(p: Pipeline) -> None:
    p.lines.append(
        """iterator = tf.data.make_initializable_iterator(ds)
following = iterator.get_next()
see('next types', tf.nest.map_structure(lambda x: x.dtype, tf.nest.flatten(following)))
with tf.Session(config=config) as session:
    attempt('too early', lambda: session.run(following))
    session.run(iterator.initializer)
    walk('first', session, following, most=3)
    session.run(iterator.initializer)
    walk('again', session, following)
    attempt('after the end', lambda: session.run(following))"""
    )


def _reinitializable(p: Pipeline) -> None:
    p.lines.append(
        """iterator = tf.data.Iterator.from_structure(
    tf.data.get_output_types(ds), tf.data.get_output_shapes(ds), output_classes=tf.data.get_output_classes(ds))
first, second = iterator.make_initializer(ds), iterator.make_initializer(ds.skip(1))
following = iterator.get_next()
with tf.Session(config=config) as session:
    session.run(first)
    walk('first', session, following)
    session.run(second)
    walk('second', session, following)"""
    )


def _feedable(p: Pipeline) -> None:
    p.lines.append(
        """handle = tf.placeholder(tf.string, [])
types, shapes, classes = tf.data.get_output_types(ds), tf.data.get_output_shapes(ds), tf.data.get_output_classes(ds)
fed = tf.data.Iterator.from_string_handle(handle, types, shapes, classes)
following = fed.get_next()
one, other = tf.data.make_one_shot_iterator(ds), tf.data.make_initializable_iterator(ds.take(2))
with tf.Session(config=config) as session:
    handles = session.run([one.string_handle(), other.string_handle()])
    session.run(other.initializer)
    for i in (0, 1, 0, 1, 1, 0, 0, 1):
        attempt('fed %d' % i, lambda: session.run(following, {handle: handles[i]}))"""
    )


def _saved(p: Pipeline) -> None:
    skipped = p.random.choice((0, 1, 3))
    p.lines.append(
        f"""iterator = tf.data.make_initializable_iterator(ds)
following = iterator.get_next()
tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
saver = tf.train.Saver()
with tf.Session(config=config) as session:
    session.run(iterator.initializer)
    walk('before', session, following, most={skipped})
    path = attempt('path', lambda: saver.save(session, './saved'))
    walk('between', session, following, most=2)
    session.run(iterator.initializer)
    attempt('restored', lambda: saver.restore(session, './saved'))
    walk('after', session, following)"""
    )


def write(random: Random) -> str:
    """A script with one random pipeline."""
    return Pipeline(random).script()
