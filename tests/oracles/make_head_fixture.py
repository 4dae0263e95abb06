"""Writes tests/fixtures/tensorflow/heads.json: what the heads of tensorflow-estimator give for some cases.

Run in an environment that has TensorFlow (`make bench-env`), from this folder, with the folder in which
tensorflow-estimator 2.15.0 is unpacked: `TF_USE_LEGACY_KERAS=1 python make_head_fixture.py FOLDER`. Its heads are those
of 1.15, but that its `MultiLabelHead` predicts classes too, which are left out here. The package is older than that
TensorFlow, so that some modules, which heads do not use, are handed in empty.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import tensorflow as tf
from head_cases import CASES, result
from tensorflow.python import distribute

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "heads.json"


class _Exporter:
    """A decorator that names nothing."""

    def __init__(self, *names: Any, **more: Any) -> None:
        pass

    def __call__(self, named: Any) -> Any:
        return named


def _import_heads(folder: Path) -> types.SimpleNamespace:
    distribute.estimator_training = types.ModuleType("estimator_training")
    exporting = types.ModuleType("tensorflow_estimator.python.estimator.estimator_export")
    exporting.estimator_export = _Exporter
    sys.modules[exporting.__name__] = exporting
    sys.modules["tensorflow.python.tpu.tpu_embedding"] = types.ModuleType("tpu_embedding")
    # the packages without what they import themselves, which is all there is
    for name in ("tensorflow_estimator", "tensorflow_estimator.python", "tensorflow_estimator.python.estimator"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    from tensorflow_estimator.python.estimator.head import (
        binary_class_head,
        multi_class_head,
        multi_head,
        multi_label_head,
        regression_head,
    )

    return types.SimpleNamespace(
        BinaryClassHead=binary_class_head.BinaryClassHead,
        LogisticRegressionHead=regression_head.LogisticRegressionHead,
        MultiClassHead=multi_class_head.MultiClassHead,
        MultiHead=multi_head.MultiHead,
        MultiLabelHead=multi_label_head.MultiLabelHead,
        PoissonRegressionHead=regression_head.PoissonRegressionHead,
        RegressionHead=regression_head.RegressionHead,
    )


def _as_of_version_1(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Without the classes that `MultiLabelHead` predicts in later versions."""
    for what, tensors in {"predictions": found["predictions"], **found["outputs"]}.items():
        tensors.pop("tags/classes", None)
        if what == "tags/predict" or (CASES[name].head == "MultiLabelHead" and what in ("predictions", "predict")):
            tensors.pop("classes", None)
    return found


def main() -> None:
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    heads = _import_heads(Path(sys.argv[1]))
    lines = [f"{json.dumps(name)}: {json.dumps(_as_of_version_1(name, result(v1, heads, name)))}" for name in CASES]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(lines), "cases")


if __name__ == "__main__":
    main()
