"""Writes tests/fixtures/tensorflow/strings.json: what TensorFlow's operations on strings give for random arguments.

Run in an environment that has TensorFlow (`make bench-env`), from this folder. An entry is a case of `string_cases.py`
with its "result": nested lists with strings in Latin-1, or null where TensorFlow raises InvalidArgumentError.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from string_cases import cases

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "strings.json"
SEED = 7


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as the characters of their numbers."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return value


def result(op: str, arguments: dict[str, Any]) -> Any:
    if "reduction_indices" in arguments:
        arguments = {**arguments, "reduction_indices": tf.constant(arguments["reduction_indices"], tf.int32)}
    try:
        found = getattr(tf.raw_ops, op)(**arguments)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # the message repeats a pattern that is no UTF-8
        return None
    outputs = found if isinstance(found, tuple) else [found]
    return plain([output.numpy() for output in outputs])


def main() -> None:
    found = [
        {"op": op, **{name: plain(value) for name, value in case.items()}, "result": result(op, case)}
        for case in cases(SEED)
        for op in [case.pop("op")]
    ]
    lines = ",\n".join(json.dumps(entry) for entry in found)
    FIXTURE.write_text(f"[\n{lines}\n]\n")
    print(len(found), "cases,", sum(entry["result"] is None for entry in found), "refused")


if __name__ == "__main__":
    main()
