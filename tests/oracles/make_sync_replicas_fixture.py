"""Writes tests/fixtures/tensorflow/sync_replicas.json: what TensorFlow's replicas do in step (`sync_replicas_cases`).

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root, as
``PYTHONPATH=. .venv-peers/bin/python tests/oracles/make_sync_replicas_fixture.py``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import tensorflow.compat.v1 as tf

from tests.oracles.sync_replicas_cases import CASES, run


def main() -> None:
    tf.disable_eager_execution()
    target = tf.train.Server.create_local_server().target
    found = {name: run(tf, target, name) for name in CASES}
    path = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "sync_replicas.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    os._exit(0)  # the server's threads would go on


if __name__ == "__main__":
    main()
