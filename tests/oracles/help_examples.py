"""Runs the examples of the help in genuine TensorFlow, and shows where it prints something else.

    .venv/bin/python tests/oracles/help_examples.py > examples.json
    .venv-peers/bin/python tests/oracles/help_examples.py examples.json

What TensorFlow 2's `compat.v1` lacks (`tf.contrib`, and names of anabranch's own) is left out.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.example_checker import run_example

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def write_examples() -> None:
    from anabranch.tools.docstrings import parse
    from anabranch.tools.public_names import public_functions, public_names

    public = {name.name: name.value for name in [*public_functions(), *public_names()]}
    names = [row["name"] for row in csv.DictReader((FIXTURES / "most_used_names.csv").read_text("utf-8").splitlines())]
    names += (FIXTURES / "most_used_methods.txt").read_text("utf-8").split()
    print(json.dumps({name: parse(public[name]).sections["Example"] for name in names}))


def check_examples(path: Path) -> None:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # the one that has `tf.layers`
    import numpy as np
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    same = other = 0
    for name, text in json.loads(path.read_text("utf-8")).items():
        if ".contrib." in name:
            continue
        os.chdir(tempfile.mkdtemp())
        tf.reset_default_graph()
        with contextlib.closing(tf.Session()) as sess, sess.as_default():
            failed, said = run_example(name, text, {"tf": tf, "np": np, "sess": sess})
        same, other = same + (not failed), other + bool(failed)
        if failed:
            print(f"#### {name}\n{said}")
    print(f"{same} examples print the same, {other} something else")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write_examples()
    else:
        check_examples(Path(sys.argv[1]).resolve())
