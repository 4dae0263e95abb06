"""Random networks of `tf.layers` and recurrent cells: their variables, values, gradients, and some steps of training.

Variables get values that follow from their names and shapes, so that both sides compute the same numbers.
"""

from __future__ import annotations

from random import Random

from tests.fuzz.scripts.calls import drawn, templates

_BEGINNING = """
from zlib import crc32
cells = tf.nn.rnn_cell
draw = np.random.RandomState({seed})
x = tf.placeholder_with_default(draw.randn({batch}, {time}, 3).astype(np.float32), {shape})
lengths = tf.placeholder_with_default(np.array({lengths}, np.int32), [{batch}])
im = tf.placeholder_with_default(draw.randn(2, 6, 5, 2).astype(np.float32), [None, 6, 5, 2])
training = tf.placeholder_with_default(False, [])


def given(variable):
    numbers = np.random.RandomState(crc32(variable.op.name.encode()) % 1000)
    return (numbers.uniform(-0.2, 0.4, variable.shape.as_list())).astype(np.float32)


def initialize(session):
    session.run(tf.global_variables_initializer())
    for variable in tf.global_variables():
        if variable.dtype.base_dtype == tf.float32 and 'power' not in variable.op.name:
            variable.load(given(variable), session)


def show(name, tensors):
    for part in tf.nest.flatten(tensors):
        see(name + ' shape', part.shape)
        see(name + ' type', part.dtype)

"""
_CELLS = templates("cells")
_WRAPPERS = templates("wrappers")
_LAYERS = templates("layers")
_FLAT_LAYERS = templates("flat layers")
_OPTIMIZERS = ("GradientDescentOptimizer(0.002)", "AdamOptimizer(0.002)", "MomentumOptimizer(0.002, 0.5)")


class Recurrent:
    """Writes one script."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.batch, self.time = random.choice((1, 3)), random.choice((1, 4, 5))

    def script(self) -> str:
        r = self.random
        sizes = {"batch": self.batch, "time": self.time, "seed": r.randrange(1000)}
        known = r.choice((f"[{self.batch}, {self.time}, 3]", f"[None, {self.time}, 3]", "[None, None, 3]"))
        lengths = [r.randint(0, self.time) for _ in range(self.batch)]
        self.lines = [_BEGINNING.strip("\n").format(shape=known, lengths=lengths, **sizes)]
        self.lines.append("made = {}")
        r.choice((self._dynamic, self._dynamic, self._static, self._bidirectional, self._pictures, self._raw))(known)
        self.lines += [
            "outputs = tf.nest.flatten(made['y'])",
            "show('outputs', outputs)",
            "see('names', sorted(v.op.name for v in tf.trainable_variables()))",
            "see('shapes', [v.shape for v in sorted(tf.trainable_variables(), key=lambda v: v.op.name)])",
            "see('updates', len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)))",
            "penalty = tf.losses.get_regularization_loss()",
            "loss = tf.add_n([tf.reduce_mean(tf.square(tf.cast(y, tf.float32))) for y in outputs]) + penalty",
            "ordered = sorted(tf.trainable_variables(), key=lambda v: v.op.name)",
            f"train = tf.train.{r.choice(_OPTIMIZERS)}.minimize(loss)",
            "slopes = [g for g in tf.gradients(loss, [x, im] + ordered) if g is not None]",
            "updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)",
            "with tf.Session() as session:",
            "    initialize(session)",
            "    attempt('values', lambda: session.run(outputs))",
            "    attempt('slopes', lambda: session.run([tf.convert_to_tensor(g) for g in slopes]))",
            "    for i in range(3):",
            "        attempt('train', lambda: session.run([train, updates, loss], {training: i == 1})[2])",
            "    attempt('state', lambda: session.run(ordered))",
            "    attempt('after', lambda: session.run(outputs))",
        ]
        return "\n".join(self.lines) + "\n"

    def _cell(self, depth: int = 0) -> str:
        r = self.random
        if depth < 2 and r.random() < 0.35:
            wrapper = r.choice(_WRAPPERS)
            while "CELL" in wrapper:
                wrapper = wrapper.replace("CELL", self._cell(depth + 1), 1)
            return drawn(wrapper, r)
        return drawn(r.choice(_CELLS), r)

    def _input(self, known: str) -> str:
        r = self.random
        if r.random() < 0.3:
            size = 3 if r.random() < 0.3 else 4
            self.lines.append(
                f"inner = {drawn(r.choice(_FLAT_LAYERS), r).replace('INPUT', 'x').replace('SIZE', str(size))}"
            )
            return "inner"
        return "x"

    def _state(self) -> str:
        return self.random.choice(("", ", initial_state=cell.zero_state(tf.shape(x)[0], tf.float32)"))

    def _dynamic(self, known: str) -> None:
        r, given = self.random, self._input(known)
        self.lines.append(f"cell = {self._cell()}")
        options = r.choice(("", ", sequence_length=lengths", ", sequence_length=lengths", ", swap_memory=True"))
        major = r.random() < 0.25
        given = f"tf.transpose({given}, [1, 0, 2])" if major else given
        options += ", time_major=True" if major else ""
        call = f"tf.nn.dynamic_rnn(cell, {given}{options}{self._state()}, dtype=tf.float32)"
        self.lines.append(f"attempt('made', lambda: made.update(y={call}))")
        if r.random() < 0.3:
            layer = drawn(r.choice(_FLAT_LAYERS), r).replace("SIZE", "2").replace("INPUT", "made['y'][0]")
            self.lines.append(f"made['y'] = (made['y'], {layer})")

    def _static(self, known: str) -> None:
        self.lines.append(f"cell = {self._cell()}")
        steps = f"tf.unstack(x, {self.time}, 1)"
        options = self.random.choice(("", ", sequence_length=lengths"))
        call = f"tf.nn.static_rnn(cell, {steps}, dtype=tf.float32{options})"
        self.lines.append(f"attempt('made', lambda: made.update(y={call}))")

    def _bidirectional(self, known: str) -> None:
        self.lines += [f"cell = {self._cell()}", f"other = {self._cell()}"]
        options = self.random.choice(("", ", sequence_length=lengths"))
        if self.random.random() < 0.5:
            call = f"tf.nn.bidirectional_dynamic_rnn(cell, other, x, dtype=tf.float32{options})"
        else:
            steps = f"tf.unstack(x, {self.time}, 1)"
            call = f"tf.nn.static_bidirectional_rnn(cell, other, {steps}, dtype=tf.float32{options})"
        self.lines.append(f"attempt('made', lambda: made.update(y={call}))")

    def _raw(self, known: str) -> None:
        self.lines += [
            f"cell = {self._cell()}",
            "array = tf.TensorArray(tf.float32, tf.shape(x)[1]).unstack(tf.transpose(x, [1, 0, 2]))",
            "",
            "",
            "def following(time, output, state, loop_state):",
            "    done = time >= lengths",
            "    if state is None:",
            f"        state = cell.zero_state({self.batch}, tf.float32)",
            f"    given = tf.cond(tf.reduce_all(done), lambda: tf.zeros([{self.batch}, 3]), lambda: array.read(time))",
            f"    given.set_shape([{self.batch}, 3])",
            "    return done, given, state, output, loop_state",
            "",
            "",
            "attempt('made', lambda: made.update(raw=tf.nn.raw_rnn(cell, following)))",
            "made['y'] = [made['raw'][0].stack(), made['raw'][1]]",
        ]

    def _pictures(self, known: str) -> None:
        r = self.random
        self.lines.append("made['y'] = im")
        for i in range(r.randint(1, 4)):
            layer = drawn(r.choice(_LAYERS), r).replace("INPUT", "made['y']")
            self.lines.append(f"attempt('layer {i}', lambda: made.update(y={layer}))")
        if r.random() < 0.5:
            layer = (
                drawn(r.choice(_FLAT_LAYERS), r).replace("SIZE", "2").replace("INPUT", "tf.layers.flatten(made['y'])")
            )
            self.lines.append(f"attempt('last', lambda: made.update(y={layer}))")


def write(random: Random) -> str:
    """A script with one network."""
    return Recurrent(random).script()
