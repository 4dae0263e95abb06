"""Records what TensorFlow gives for the uses of operations in `generator_cases.py` and its neighbours.

Run it with the environment of genuine TensorFlow: `.venv-peers/bin/python tests/oracles/make_operation_fixture.py`.
"""

from __future__ import annotations

import gzip
import json

import generator_cases
import image_cases
import rare_cases
import sound_cases
import tensorflow.compat.v1 as tf
from make_public_function_fixture import FOLDER, result

#: name of a fixture -> its cases
FIXTURES = {
    "generators": generator_cases.CASES,
    "images": image_cases.CASES,
    "rare": rare_cases.CASES,
    "sounds": sound_cases.CASES,
}


def main() -> None:
    tf.disable_eager_execution()
    for name, cases in FIXTURES.items():
        recorded = {case: result(build) for case, build in cases.items()}
        with (
            open(FOLDER / f"{name}.json.gz", "wb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed,
        ):
            packed.write(json.dumps(recorded).encode())
        print(name, len(recorded), "cases,", sum(map(len, recorded.values())), "values")


if __name__ == "__main__":
    main()
