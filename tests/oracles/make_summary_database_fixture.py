"""Records what TensorFlow writes into a database of summaries, for the cases in `summary_database_cases.py`.

Run it with the environment of genuine TensorFlow (`make bench-env`), from this folder.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import summary_database_cases
import tensorflow.compat.v1 as tf

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "summary_database.json"


def main() -> None:
    tf.disable_eager_execution()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "summaries.sqlite"
        summary_database_cases.write(tf, path)
        FIXTURE.write_text(json.dumps(summary_database_cases.facts(path), indent=1) + "\n")


if __name__ == "__main__":
    main()
