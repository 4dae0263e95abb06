"""Writes tests/fixtures/tensorflow/feature_columns.json: what TensorFlow makes of the feature columns of some cases.

Run in an environment that has TensorFlow (`make bench-env`), from this folder.
"""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf
from feature_column_cases import DENSE, LINEAR, SPECS, result, spec

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "feature_columns.json"


def main() -> None:
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    cases = {name: result(v1, name) for name in (*DENSE, *LINEAR)}
    specs = {name: spec(v1, name) for name in SPECS}
    lines = [f"{json.dumps(name)}: {json.dumps({**case, 'spec': specs[name]})}" for name, case in cases.items()]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
