"""Writes tests/fixtures/tensorflow/loss_scale.json: how TensorFlow trains with loss scales (`loss_scale_cases`).

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root, as
``PYTHONPATH=. .venv-peers/bin/python tests/oracles/make_loss_scale_fixture.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow.compat.v1 as tf

from tests.oracles.loss_scale_cases import CASES, run


def main() -> None:
    tf.disable_eager_execution()
    recorded = {name: run(tf, tf.mixed_precision, name) for name in CASES}
    path = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "loss_scale.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
