"""Random calls of the public interface: losses, metrics, pictures, sound, matrices, sparse and ragged tensors.

What is called stands in templates.txt, in which `<a|b|c>` is one of these, drawn at random, from the inside
outwards. Each call shows its values, its static shape and, where it has one, a gradient.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

_CHOICE = re.compile(r"<([^<>]*)>")

_BEGINNING = """
tf.set_random_seed(1)
draw = np.random.RandomState({seed})
s = tf.placeholder_with_default(np.float32(0.7), [], 's')
v = tf.constant(draw.randn(6).astype(np.float32)) * s
m = tf.constant(draw.randn(4, 3).astype(np.float32)) * s
p = tf.constant(draw.rand(4, 3).astype(np.float32)) * s
q = tf.constant(draw.rand(4, 3).astype(np.float32))
b = tf.constant((draw.rand(4, 3) > 0.5).astype(np.float32))
t3 = tf.constant(draw.randn(2, 5, 3).astype(np.float32)) * s
sq = tf.constant(draw.randn(2, 3, 3).astype(np.float32)) * s
pd = tf.matmul(sq, sq, transpose_b=True) + 2.0 * tf.eye(3)
im = tf.constant(draw.rand(2, 5, 6, 3).astype(np.float32)) * s
im8 = tf.constant(draw.randint(0, 256, (5, 6, 3)).astype(np.uint8))
im5 = tf.constant(draw.randn(2, 4, 4, 3, 2).astype(np.float32)) * s
labels = tf.constant(draw.randint(0, 3, 4))
ids = tf.constant(draw.randint(0, 4, 6).astype(np.int32))
ordered = tf.constant(np.sort(draw.randint(0, 4, 6)).astype(np.int32))
i3 = tf.constant(draw.randint(-5, 6, (2, 3)).astype(np.int32))
sp = tf.SparseTensor([[0, 1], [1, 0], [2, 2], [3, 0]], tf.stack([s, 2.0 * s, -1.0, 0.5]), [4, 3])
sp2 = tf.SparseTensor([[0, 0], [1, 0], [3, 2]], [1.0, 2.0, 3.0], [4, 3])
si = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([3, 1, 2], tf.int64), [3, 2])
si2 = tf.SparseTensor([[0, 0], [1, 0], [2, 0], [2, 1]], tf.constant([1, 5, 2, 4], tf.int64), [3, 2])
rg = tf.ragged.constant([[1.0, 2.0], [], [3.0], [4.0, 5.0, -6.0]])
ri = tf.ragged.constant([[1, 2], [], [3], [0, 0, 2]])
z = tf.complex(m, tf.reverse(m, [0]))


def show(name, make, differentiate=True):
    try:
        value = make()
    except Exception as error:
        return attempt(name, lambda: raised(error))
    flat = [part for part in tf.nest.flatten(value) if part is not None]
    tensors = [part for part in flat if isinstance(part, tf.Tensor)]
    for part in tensors:
        see(name + ' shape', part.shape)
        see(name + ' type', part.dtype)
    if attempt(name, lambda: session.run(value)) is not None and differentiate:
        floats = [part for part in tensors if part.dtype.base_dtype == tf.float32]
        if floats:
            attempt(name + ' gradient', lambda: session.run(slope(floats[0])))


def slope(y):
    try:
        return tf.round(1000.0 * tf.gradients(y, s, unconnected_gradients='zero')[0]) / 1000.0 + 1.0
    except LookupError:
        # TensorFlow refuses to differentiate some operations through which nothing flows
        return tf.ones([])


def raised(error):
    raise error


session = tf.Session()
"""


def templates(section: str) -> list[str]:
    """The templates that stand under `[section]` in templates.txt."""
    text = (Path(__file__).parent / "templates.txt").read_text()
    return text.partition(f"[{section}]\n")[2].partition("\n\n")[0].splitlines()


def drawn(template: str, random: Random) -> str:
    """The template with each of its choices made."""
    while (found := _CHOICE.search(template)) is not None:
        template = template[: found.start()] + random.choice(found[1].split("|")) + template[found.end() :]
    return template


_TABLES = [templates(section) for section in ("losses", "images", "matrices", "sparse")]
_METRICS = templates("metrics")


def beginning(random: Random) -> str:
    """What the calls of a script are about, and the function that shows one."""
    return _BEGINNING.format(seed=random.randrange(1000)).strip("\n")


def write(random: Random) -> str:
    """A script with some calls, or with streaming metrics over some steps."""
    lines = [beginning(random), ""]
    if random.random() < 0.25:
        return "\n".join([*lines, *_streams(random)]) + "\n"
    for i in range(8):
        call = drawn(random.choice(random.choice(_TABLES)), random)
        lines.append(f"show('{i}', lambda: {call})")
    return "\n".join(lines) + "\n"


def _streams(random: Random) -> list[str]:
    lines = ["A = tf.argmax(m, 1)", "found = {}"]
    for i, template in enumerate(random.sample(_METRICS, 4)):
        lines.append(f"attempt('made {i}', lambda: found.update({{{i}: tf.metrics.{drawn(template, random)}}}))")
    lines += [
        "session.run(tf.local_variables_initializer())",
        "for i, (value, update) in sorted(found.items()):",
        "    see('%d shape' % i, value.shape)",
        "    attempt('%d first' % i, lambda: session.run(value))",
        "    for x in (0.7, 0.2, 1.3):",
        "        attempt('%d update' % i, lambda: session.run(update, {s: x}))",
        "    attempt('%d last' % i, lambda: session.run(value))",
    ]
    return lines
