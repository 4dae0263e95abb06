"""What decides in conditionals and loops. These call function graphs, which a row of the op table cannot hold: other
files test them.
"""

from __future__ import annotations

import numpy as np

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = [
    OpCase("ToBool", (np.array(value),), expected=np.array(taken), label=label)
    for label, value, taken in (
        *(("zero", 0.0, False), ("number", -0.5, True), ("integer", 3, True), ("truth", True, True)),
        *(("empty", np.zeros([0, 2]), False), ("zeros", np.zeros([2]), True)),
        *(("no text", b"", False), ("text", b"0", True), ("texts", [b""], True)),
    )
]
