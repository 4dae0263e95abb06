"""Random checkpoints: what one system saves, the other one restores, with variables added, renamed, partitioned.

A script has two halves. The first builds variables and saves them; the second runs in the folder that the other side's
first half has left. It builds other variables, partly of the same names, and restores, reads, or begins from the files.
"""

from __future__ import annotations

from random import Random

#: parts the halves of a script
OTHERS_FOLDER = "# ---- what follows runs in the other side's folder\n"

_DTYPES = ("float32", "float32", "float64", "int32", "int64", "bool", "string", "complex64", "float16", "uint8")
_SHAPES = ((), (1,), (3,), (4, 2), (5, 3), (0, 2), (2, 1, 3))
_NAMES = ("w", "b", "a/w", "a/b", "a/inner/w", "table", "a_1/w", "step", "w_1")
_PARTITIONERS = (
    "tf.fixed_size_partitioner({n})",
    "tf.fixed_size_partitioner({n}, axis=1)",
    "tf.variable_axis_size_partitioner({m})",
    "tf.min_max_variable_partitioner({n}, min_slice_size=4)",
)


class Savers:
    """Writes one script."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        #: names of the first half -> dtype, shape
        self.saved: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: the second half's variables that have parts
        self.parted: set[str] = set()
        #: those that have another shape than what is saved
        self.misfits: set[str] = set()

    def script(self) -> str:
        first = self._first()
        self.lines = []
        self._second()
        return first + OTHERS_FOLDER + "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ variables
    def _value(self, dtype: str, shape: tuple[int, ...]) -> str:
        seed = self.random.randrange(1000)
        numbers = f"np.random.RandomState({seed}).randint(0, 100, {shape})"
        if dtype == "string":
            return f"np.array({numbers}, dtype=object).astype(str).astype(object)"
        if dtype == "bool":
            return f"({numbers} > 50)"
        return f"np.array({numbers}, np.{dtype})"

    def _variable(
        self, python: str, name: str, dtype: str, shape: tuple[int, ...], may_be_resource: bool = True
    ) -> None:
        r = self.random
        value = self._value(dtype, shape)
        parts = len(shape) > 0 and shape[0] > 1 and r.random() < 0.35
        if parts:
            axes = [p for p in _PARTITIONERS if "axis=1" not in p or len(shape) > 1]
            partitioner = r.choice(axes).format(n=r.choice((1, 2, 3)), m=r.choice((8, 16, 24)))
            initializer = f"lambda shape, dtype=None, partition_info=None: tf.zeros(shape, tf.{dtype})"
            if dtype in {"string", "bool", "float16"}:  # TensorFlow knows no slices of these
                parts = False
        if parts:
            self.lines.append(
                f"{python} = tf.get_variable({name!r}, {list(shape)}, tf.{dtype}, {initializer}, "
                f"partitioner={partitioner})"
            )
            self.lines.append(f"starts.append(({python}, {value}))")
            self.parted.add(python)
            return
        resource = ", use_resource=True" if r.random() < 0.5 and may_be_resource else ""
        self.lines.append(
            f"{python} = tf.get_variable({name!r}, "
            f"initializer=tf.constant({value}, tf.{dtype}, {list(shape)}){resource})"
        )

    _LOADING = (
        "def start(session):",
        "    session.run(tf.global_variables_initializer())",
        "    for variable, value in starts:",
        "        for part in variable:",
        "            info = part._get_save_slice_info()",
        "            begin, size = info.var_offset, info.var_shape",
        "            part.load(value[tuple(slice(b, b + n) for b, n in zip(begin, size))], session)",
    )

    def _first(self) -> str:
        r = self.random
        self.lines = ["starts = []"]
        names = r.sample(_NAMES, r.randint(1, 5))
        for i, name in enumerate(names):
            dtype, shape = r.choice(_DTYPES), r.choice(_SHAPES)
            self.saved[name] = (dtype, shape)
            self._variable(f"v{i}", name, dtype, shape)
        self.lines += self._LOADING
        options = r.choice(("", "", ", sharded=True", ", max_to_keep=2"))
        if r.random() < 0.3:
            pairs = ", ".join(f"'other/{name}': v{i}" for i, name in enumerate(names))
            self.lines.append(f"saver = tf.train.Saver({{{pairs}}}{options})")
            self.saved = {f"other/{name}": kind for name, kind in self.saved.items()}
        else:
            self.lines.append(f"saver = tf.train.Saver({options.removeprefix(', ')})")
        self.lines += ["with tf.Session() as session:", "    start(session)"]
        if r.random() < 0.3:
            # a file cannot be written anew
            self.lines += [
                "    for i in (1, 2, 3):",
                "        save(saver, session, f'm{i}')",
                "    os.rename('m3.index', 'x')",
            ]
            self.lines += ["    os.rename('x', 'm3.index')"]
        self.lines.append("    attempt('saved', lambda: save(saver, session, 'model') and None)")
        return "import os\n" + "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ the other half
    def _second(self) -> None:
        r = self.random
        self.lines = ["starts = []"]
        self.lines += [
            "attempt('listed', lambda: [[name, list(shape)] for name, shape in tf.train.list_variables('model')])",
            "reader = tf.train.NewCheckpointReader('model')",
            "see('dtypes', sorted((k, t.name) for k, t in reader.get_variable_to_dtype_map().items()))",
        ]
        for name in r.sample(sorted(self.saved), min(2, len(self.saved))):
            self.lines.append(f"attempt('read {name}', lambda: reader.get_tensor({name!r}))")
        self.lines.append(f"attempt('absent', lambda: reader.get_tensor({r.choice(('nothing', 'a', 'W'))!r}))")
        pairs = self._restored()
        self.lines += self._LOADING
        kind = r.randrange(4)
        if kind == 0:
            self._begin(pairs)
            return
        given = ", ".join(f"{name!r}: {python}" for name, python in pairs)
        options = r.choice(("", "", "", ", reshape=True", ", sharded=True"))
        saver = (
            f"tf.train.Saver({{{given}}}{options})"
            if kind > 1
            else f"tf.train.Saver([{', '.join(p for _, p in pairs)}])"
        )
        self.lines += [
            f"saver = {saver}",
            "with tf.Session() as session:",
            "    start(session)",
            *self._once("    ", "restored", "saver.restore(session, 'model')"),
            "    for v in sorted(tf.global_variables(), key=lambda v: v.op.name):",
            "        attempt(v.op.name, lambda: session.run(v))",
        ]

    def _restored(self) -> list[tuple[str, str]]:
        """Builds variables; gives the names that they are to have in the file."""
        r, pairs, taken = self.random, [], set()
        chosen = r.sample(sorted(self.saved), r.randint(1, len(self.saved)))
        for i, saved in enumerate(chosen):
            dtype, shape = self.saved[saved]
            change = r.random()
            name = saved if change < 0.7 else f"renamed/{saved}"
            other = r.random() < 0.08
            shape = r.choice(_SHAPES) if other else shape
            if r.random() < 0.06:
                dtype = r.choice(_DTYPES)
            # into a resource TensorFlow takes any shape
            self._variable(f"u{i}", name, dtype, shape, may_be_resource=not other)
            taken.add(name)
            pairs.append((saved, f"u{i}"))
            if shape != self.saved[saved][1]:
                self.misfits.add(f"u{i}")
        if r.random() < 0.15:
            self.lines.append("added = tf.get_variable('added', initializer=[1.0, 2.0])")
            pairs.append(("added", "added"))
        return pairs

    def _once(self, indent: str, name: str, call: str) -> list[str]:
        """A call after which the script ends where it fails: what it has done before is each system's own."""
        return [
            f"{indent}if attempt({name!r}, lambda: {call} is None) is None:",
            f"{indent}    raise SystemExit",
        ]

    def _begin(self, pairs: list[tuple[str, str]]) -> None:
        # TensorFlow looks at the shape of what has parts in the step (docs/differences.md)
        pairs = [pair for pair in pairs if pair[1] not in self.parted & self.misfits]
        which = ", ".join(
            f"{name!r}: {f'list({python})' if python in self.parted else python}" for name, python in pairs
        )
        self.lines += [
            *self._once("", "begun", f"tf.train.init_from_checkpoint('model', {{{which}}})"),
            "with tf.Session() as session:",
            *self._once("    ", "initialized", "session.run(tf.global_variables_initializer())"),
            "    for v in sorted(tf.global_variables(), key=lambda v: v.op.name):",
            "        attempt(v.op.name, lambda: session.run(v))",
        ]


def write(random: Random) -> str:
    """A script of two halves."""
    return Savers(random).script()
