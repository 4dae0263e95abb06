"""Writes tests/fixtures/tensorflow/older_programs.npz: graphs and results of `tests/older_programs.py`.

Run in an environment that has TensorFlow, from the root of the repository. Entries are named ``<program>/graph`` (a
serialized GraphDef), ``<program>/setup`` and ``<program>/fetches`` (names), and ``<program>/<step>/<number>``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "tensorflow" / "older_programs.npz"
sys.path.insert(0, str(ROOT))

from tests.older_programs import STEPS, programs  # noqa: E402 - it stands in no package


def main() -> None:
    tf.disable_v2_behavior()
    # its optimizer takes reads of references for ones that may be moved
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    recorded: dict[str, Any] = {}
    for name, program in programs():
        with tf.Graph().as_default() as graph, tf.Session(config=config) as session:
            setup, fetches = program(tf)
            recorded[f"{name}/graph"] = np.frombuffer(graph.as_graph_def().SerializeToString(), np.uint8)
            recorded[f"{name}/setup"] = np.array([getattr(item, "op", item).name for item in setup], str)
            recorded[f"{name}/fetches"] = np.array([item.name for item in fetches], str)
            for item in setup:
                session.run(getattr(item, "op", item))
            for step in range(STEPS):
                for number, value in enumerate(session.run(list(fetches))):
                    value = np.asarray(value)
                    recorded[f"{name}/{step}/{number}"] = value.astype(bytes) if value.dtype == object else value
    np.savez_compressed(FIXTURE, **recorded)


if __name__ == "__main__":
    main()
