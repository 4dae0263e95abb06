"""Records in which structures TensorFlow returns the results of loops, conditionals and functions over rows.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_structure_fixtures.py

`tests/fixtures/tensorflow/structures.json` then holds, for each case, the form under both versions of control flow,
or null where TensorFlow raises.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import tensorflow.compat.v1 as tf
from structure_cases import cases, form

FILE = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "structures.json"


def _form(make: Callable[[], Any]) -> str | None:
    with tf.Graph().as_default():
        try:
            return form(make())
        except (TypeError, ValueError, AttributeError):
            return None


def main() -> None:
    """Writes the file."""
    tf.disable_eager_execution()
    found: dict[str, list[str | None]] = {}
    for switch in (tf.disable_control_flow_v2, tf.enable_control_flow_v2):
        switch()
        for label, make in cases(tf):
            found.setdefault(label, []).append(_form(make))
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
