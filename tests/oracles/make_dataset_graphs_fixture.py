"""Writes tests/fixtures/tensorflow/dataset_graphs.json.gz: datasets as TensorFlow writes them, and their elements.

Run in an environment that has TensorFlow (`make bench-env`), from this folder. With a folder as argument it reads what
`anabranch` wrote there instead (files NAME.pb), and fails unless the datasets have the same elements.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from dataset_graph_cases import CASES
from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "dataset_graphs.json.gz"


def elements(dataset: Any) -> list[Any]:
    return [[np.asarray(part).tolist() for part in tf.nest.flatten(element)] for element in dataset.as_numpy_iterator()]


def written(dataset: Any) -> bytes:
    return bytes(gen_dataset_ops.dataset_to_graph_v2(dataset._variant_tensor).numpy())


def read(text: bytes, like: Any) -> Any:
    variant = gen_experimental_dataset_ops.dataset_from_graph(text)
    return tf.data.experimental.from_variant(variant, tf.data.experimental.get_structure(like))


def main() -> None:
    if len(sys.argv) > 1:
        for name, build in CASES.items():
            like = build(tf)
            ours = read((Path(sys.argv[1]) / f"{name}.pb").read_bytes(), like)
            assert elements(ours) == elements(like), name
            print(name, "is read by TensorFlow")
        return
    recorded = {}
    for name, build in CASES.items():
        dataset = build(tf)
        recorded[name] = {"graph": base64.b64encode(written(dataset)).decode(), "elements": elements(dataset)}
    with open(FIXTURE, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
        packed.write(json.dumps(recorded).encode())
    print(len(recorded), "datasets")


if __name__ == "__main__":
    main()
