"""Writes tests/fixtures/tensorflow/sdca.json: what linear models come to that LinearSDCA trains.

Run in an environment that has TensorFlow 2.15 and tensorflow-estimator 2.15, whose `LinearSDCA` is that of 1.15, from
this folder: `python make_sdca_fixture.py`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import tensorflow as tf
from sdca_cases import CASES, result

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "sdca.json"


def main() -> None:
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    lines = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(f"{json.dumps(name)}: {json.dumps(result(v1, name, Path(folder)))}")
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(lines), "cases")


if __name__ == "__main__":
    main()
