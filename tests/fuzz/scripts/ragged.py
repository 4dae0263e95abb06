"""Random calls with ragged tensors of numbers and texts, their slices, reductions, joins and conversions.

What is called stands in templates.txt, as for `calls`; `RAGGED` is one of the tensors that a script begins with.
"""

from __future__ import annotations

import re
from random import Random

from tests.fuzz.scripts import calls

_NAMES = ("ri", "rf", "r3", "rs", "ru", "rt")
_MORE = """
ri = tf.ragged.constant([[1, 2], [], [3], [0, 0, 2]])
rf = tf.RaggedTensor.from_row_splits(tf.constant([0.5, -1.0, 2.0, 3.5, 0.0, 1.0]) * s, [0, 2, 2, 3, 6])
r3 = tf.ragged.constant([[[1, 2], []], [], [[3]], [[], [4, 5, 6]]])
rs = tf.ragged.constant([['a', 'bc'], [], ['añ😀'], ['', 'x y', 'aa']])
ru = tf.ragged.constant([[[1, 2], [3, 4]], [], [[5, 6]]], ragged_rank=1)
rt = tf.RaggedTensor.from_row_lengths(tf.constant([7, 8, 9]), tf.placeholder_with_default(np.array([1, 0, 2]), [None]))
ws = tf.constant(['ab c', '', ' añ 😀b', 'b'])
"""
_TEMPLATES = calls.templates("ragged")
_NAME = re.compile("<RAGGED>")


def write(random: Random) -> str:
    """A script with some calls."""
    lines = [calls.beginning(random), _MORE.strip("\n"), ""]
    for i in range(10):
        template = _NAME.sub(lambda _: random.choice(_NAMES), random.choice(_TEMPLATES))
        lines.append(f"show('{i}', lambda: {calls.drawn(template, random)})")
    return "\n".join(lines) + "\n"
