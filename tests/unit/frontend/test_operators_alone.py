"""Operators of tensors need no name of the package but those that the program uses."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import anabranch as tf
sparse = tf.SparseTensor([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
for product in (tf.constant([[1.0, 2.0], [5.0, 6.0]]) * sparse, sparse * [[1.0, 2.0], [5.0, 6.0]], sparse / 2.0):
    assert product.values.shape == [2], product
"""


def test_sparse_tensors_have_operators_from_the_start() -> None:
    """In a process of its own: here, other tests have loaded whatever there is."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
