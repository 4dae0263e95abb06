"""Static shapes of random calls whose inputs are partly known, and the classes of errors where they do not fit.

Axes and places that no shape has are left out: TensorFlow refuses most of them in the step only, which no script runs.
"""

from __future__ import annotations

from random import Random

from tests.fuzz.scripts.calls import drawn, templates

_BEGINNING = """
def tensor(name, dtype, shape):
    return tf.placeholder(dtype, shape, name)


def show(name, make):
    def shapes():
        value = make()
        parts = tf.nest.flatten(value, expand_composites=False)
        return [[p.shape, p.dtype] for p in parts if isinstance(p, tf.Tensor)]

    attempt(name, shapes)

"""
_CALLS = templates("shapes")
_TWO = (
    "None",
    "[None, None]",
    "[2, 3]",
    "[None, 4]",
    "[3, 4]",
    "[3, None]",
    "[4]",
    "[2, 3, 4]",
    "[]",
    "[None]",
    "[1, 4]",
    "[3, 3]",
    "[0, 4]",
)
_IMAGES = ("[2, 5, 6, 3]", "[None, None, 6, 3]", "[None, 5, 6, None]", "None", "[5, 6, 3]", "[4, 8, 8, 4]")


def write(random: Random) -> str:
    """A script that builds some operations, and runs nothing."""
    lines = [_BEGINNING.strip("\n"), "", ""]
    for i in range(15):
        a, b = random.choice(_TWO), random.choice(_TWO)
        lines.append(
            f"A, B = tensor('a', tf.float32, {a}), tensor('b', "
            f"tf.{random.choice(('float32',) * 6 + ('int32', 'string'))}, {b})"
        )
        lines.append(
            f"J, I, V, C = tensor('j', tf.{random.choice(('int32', 'int64'))}, "
            f"{random.choice(('None', '[None]', '[3]', '[2, 1]', '[]'))}), "
            f"tensor('i', tf.int32, {random.choice(('[]', '[]', 'None', '[1]'))}), "
            f"tensor('v', tf.int32, {random.choice(('[2]', '[None]', '[3]', 'None'))}), "
            "tensor('c', tf.float32, "
            f"{random.choice(_IMAGES)})"
        )
        call = drawn(
            random.choice(_CALLS)
            .replace("A > 0.0", "tf.greater(A, 0.0)")
            .replace("A[:, 0] > 0.0", "tf.greater(A[:, 0], 0.0)")
            .replace("i < 3", "tf.less(i, 3)"),
            random,
        )
        lines.append(f"show('{i}', lambda: {call})")
    return "\n".join(lines) + "\n"
