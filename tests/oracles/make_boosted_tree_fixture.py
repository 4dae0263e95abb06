"""Writes tests/fixtures/tensorflow/boosted_trees.json: what boosted trees of tensorflow-estimator 1.15 come to; and
boosted_tree_boundaries.json: the boundaries of buckets that its operations find; and the folder boosted_trees: a
checkpoint and an exported model.

Run in an environment that has TensorFlow 2.15 and tensorflow-estimator 2.15, from this folder, with the folders in
which tensorflow-estimator 1.15.1 and the wheel of TensorFlow 2.8.4 (for CPython 3.10 on Linux) are unpacked:
`python make_boosted_tree_fixture.py ESTIMATOR TENSORFLOW`. The estimators of trees are those of 1.15.1, which later
versions do not have. TensorFlow 2.15 builds their graphs, and the kernels are those of 2.8.4, the last that has them.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import tensorflow as tf
from boosted_tree_cases import CASES, boundaries, data, estimator, export, result
from google.protobuf import descriptor_pool, json_format
from google.protobuf.internal import builder
from older_kernels import OlderTensorFlow, run_sessions_in
from tensorflow.python.ops import array_ops, variable_scope
from tensorflow.python.util import tf_export
from tensorflow_estimator.python.estimator import canned

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "tensorflow" / "boosted_trees.json"
#: the model after so many steps
MODELS, STEPS = FIXTURE.with_suffix(""), 5
BOUNDARIES = FIXTURE.with_name("boosted_tree_boundaries.json")


def _messages() -> Any:
    """The messages of trees, which that TensorFlow has no Python classes for."""
    tree = ast.parse((ROOT / "anabranch" / "proto" / "boosted_trees_pb2.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (added,) = [call for call in calls if getattr(call.func, "attr", "") == "AddSerializedFile"]
    descriptor = descriptor_pool.Default().AddSerializedFile(ast.literal_eval(added.args[0]))
    package = types.ModuleType("tensorflow.core.kernels.boosted_trees")
    module = types.ModuleType(f"{package.__name__}.boosted_trees_pb2")
    builder.BuildMessageAndEnumDescriptors(descriptor, module.__dict__)
    builder.BuildTopDescriptorsAndMessages(descriptor, module.__name__, module.__dict__)
    package.boosted_trees_pb2 = module
    sys.modules[package.__name__], sys.modules[module.__name__] = package, module
    return module


def _estimators(folder: Path) -> Any:
    # what they call by names of that time
    tf_export.estimator_export = lambda *names, **more: lambda named: named
    variable_scope.variable = tf.compat.v1.Variable
    array_ops.stack, array_ops.unstack = tf.stack, tf.unstack
    made: Any = None
    for name in ("boosted_trees_utils", "boosted_trees"):
        path = folder / "tensorflow_estimator" / "python" / "estimator" / "canned" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"{canned.__name__}.{name}", path)
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        setattr(canned, name, made)
        spec.loader.exec_module(made)
    return made


def _write_models(v1: Any, estimators: Any) -> None:
    """Writes the case "classes" after some steps: its checkpoint, an exported model, what that says of examples."""
    shutil.rmtree(MODELS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder, case = Path(name), CASES["classes"]
        model = estimator(v1, estimators, case, folder)
        model.train(data(v1, case, None), steps=STEPS)
        said = export(v1, model, case, folder)
        (exported,) = (folder / "export").iterdir()
        shutil.copytree(exported, MODELS / "exported")
        for path in folder.glob(f"model.ckpt-{STEPS}.[di]*"):
            shutil.copy(path, MODELS)
    (MODELS / "said.json").write_text(json.dumps(said) + "\n")


def main() -> None:
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    run_sessions_in(OlderTensorFlow(Path(sys.argv[2]) / "tensorflow"))
    messages = _messages()
    estimators = _estimators(Path(sys.argv[1]))

    def to_dict(serialized: bytes) -> dict[str, Any]:
        return json_format.MessageToDict(messages.TreeEnsemble.FromString(serialized))

    BOUNDARIES.write_text(json.dumps(boundaries(v1)) + "\n")
    _write_models(v1, estimators)
    lines = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            found = result(v1, estimators, to_dict, name, Path(folder))
        lines.append(f"{json.dumps(name)}: {json.dumps(found)}")
        FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(lines), "cases")


if __name__ == "__main__":
    main()
