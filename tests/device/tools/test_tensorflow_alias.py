"""The module `tensorflow` as an alias."""

from __future__ import annotations

import importlib
import pydoc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import anabranch as tf
from anabranch.tools import tensorflow_alias


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "tensorflow"}
    for name in before:
        del sys.modules[name]
    tensorflow_alias.install()
    tensorflow_alias.install()
    yield
    tensorflow_alias.uninstall()
    assert "tensorflow" not in sys.modules
    sys.modules.update(before)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "attribute", "expected"),
    [
        ("tensorflow", "placeholder", tf.placeholder),
        ("tensorflow.compat.v1", "Session", tf.Session),
        ("tensorflow.compat.v1.nn", "relu", tf.nn.relu),
        ("tensorflow.train", "AdamOptimizer", tf.train.AdamOptimizer),
        ("tensorflow.python", "framework", None),
        ("tensorflow.python.framework.ops", "Graph", tf.Graph),
        ("tensorflow.python.framework.dtypes", "float32", tf.float32),
        ("tensorflow.python.framework.tensor_util", "constant_value", tf.get_static_value),
        ("tensorflow.python.framework.tensor_shape", "TensorShape", tf.TensorShape),
        ("tensorflow.python.ops.array_ops", "concat", tf.concat),
        ("tensorflow.python.ops.nn_ops", "conv2d", tf.nn.conv2d),
        ("tensorflow.python.platform.gfile", "Exists", tf.gfile.Exists),
        ("tensorflow.python.util.nest", "is_sequence", None),
        ("tensorflow.python.training.moving_averages", "assign_moving_average", None),
        ("tensorflow.core.framework.graph_pb2", "GraphDef", tf.GraphDef),
        ("tensorflow.contrib.eager.python.tfe", "run_all_tests_in_graph_and_eager_modes", None),
        ("tensorflow.contrib.eager.python.tfe", "defun", tf.function),
        ("tensorflow.python.framework.type_spec", "BatchableTypeSpec", None),
        ("tensorflow.python.framework.tensor_util", "constant_value_as_shape", None),
        ("tensorflow.python.util.tf_inspect", "_inspect", None),
        ("tensorflow.python.ops.random_ops", "parameterized_truncated_normal", None),
        ("tensorflow.core.framework.types_pb2", "DT_FLOAT", 1),
        ("tensorflow.examples.tutorials.mnist", "input_data", None),
        ("tensorflow.examples.tutorials.mnist.input_data", "read_data_sets", None),
        ("tensorflow.examples.tutorials.mnist.mnist", "IMAGE_PIXELS", 784),
        ("tensorflow.python.autograph.impl.api", "do_not_convert", tf.autograph.experimental.do_not_convert),
        ("tensorflow.contrib.framework", "deprecated_args", None),
        ("tensorflow.python.data.ops.dataset_ops", "DatasetV1", tf.data.Dataset),
        ("tensorflow.python.ops.inplace_ops", "alias_inplace_update", None),
        ("tensorflow.python.tpu.tpu_estimator", "TPUEstimator", tf.estimator.tpu.TPUEstimator),
        ("tensorflow.contrib.tpu.python.tpu.tpu_estimator", "TPUEstimator", tf.estimator.tpu.TPUEstimator),
    ],
)
def test_names_are_anabranchs(name: str, attribute: str, expected: object) -> None:
    found = getattr(module(name), attribute)
    assert found is expected or (expected is None and found is not None) or found == expected


def test_generated_modules_take_arguments_by_position_and_by_tensorflows_names() -> None:
    functions = module("tensorflow.python.ops.gen_math_ops")
    with tf.Session() as sess:
        assert sess.run(functions.mat_mul([[2.0]], [[3.0]])) == [[6.0]]
        assert sess.run(functions._sum([2.0, 3.0], axis=0)) == 5.0
    assert module("tensorflow.python.ops.gen_nn_ops").conv3d_backprop_input_v2
    with pytest.raises(AttributeError, match="mat_mull"):
        functions.mat_mull


def test_modules_of_operations_have_the_generated_functions_too(tmp_path: Path) -> None:
    """As TensorFlow's do, which import all of them."""
    io_ops, prefix = module("tensorflow.python.ops.io_ops"), str(tmp_path / "model")
    with tf.Session() as sess:
        sess.run(io_ops.save_v2(prefix, ["x"], [""], [tf.constant([1.0, 2.0])]))
        assert sess.run(io_ops.restore_v2(prefix, ["x"], [""], [tf.float32])[0]).tolist() == [1.0, 2.0]
        assert sess.run(module("tensorflow.python.ops.math_ops").mat_mul([[2.0]], [[3.0]])) == [[6.0]]
    with pytest.raises(AttributeError, match="has no tensorflow.python.ops.io_ops.restore_v9"):
        io_ops.restore_v9


def test_version_2_has_names_that_stand_for_nothing() -> None:
    assert module("tensorflow.compat.v2").newaxis is None
    with pytest.raises(AttributeError, match="has no .*newaxes"):
        module("tensorflow.compat.v2").newaxes


def test_private_modules_are_reached_from_the_top() -> None:
    assert module("tensorflow").python.framework.ops.Tensor is tf.Tensor


def test_every_row_of_the_table_names_modules_that_exist() -> None:
    for path, entry in tensorflow_alias.PRIVATE_MODULES.items():
        for word in entry.split():
            if word.startswith("anabranch."):
                assert importlib.import_module(word), path
            elif word.startswith("tf."):
                assert word.count(".") <= 3, path


def test_renamed_names_exist() -> None:
    for path, entry in tensorflow_alias.PRIVATE_MODULES.items():
        for word in entry.split():
            if "=" in word:
                assert hasattr(module(f"tensorflow.{path}"), word.split("=")[0]), path


def test_what_is_missing_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"anabranch has no tensorflow.python.nosuch"):
        module("tensorflow.python.nosuch")
    with pytest.raises(AttributeError, match="anabranch has no tensorflow.nosuch"):
        _ = module("tensorflow").nosuch


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("from tensorflow.keras import nosuch", "anabranch has no tensorflow.keras.nosuch"),
        ("from tensorflow.keras.backend import abs", "no tf.keras.backend.abs; .*tf.layers, tf.losses and tf.train"),
        ("from tensorflow.compat.v1.tpu import rewrite", "has no tf.tpu.rewrite; .*TPUEstimator"),
        ("from tensorflow.contrib import tensorrt", r"has no tf.contrib.tensorrt; every step is compiled"),
    ],
)
def test_imports_of_what_is_missing_say_what_to_do(statement: str, told: str) -> None:
    module("tensorflow.compat.v1")
    with pytest.raises(ModuleNotFoundError, match=told):
        exec(statement, {})  # noqa: S102 (one of the statements above)


def test_a_name_is_located_by_its_path_and_what_is_missing_is_none() -> None:
    """`pydoc.locate`, by which programs find classes that their settings name."""
    module("tensorflow")
    assert pydoc.locate("tensorflow.nn.relu") is tf.nn.relu
    assert pydoc.locate("tensorflow.train.AdamOptimizer") is tf.train.AdamOptimizer
    assert pydoc.locate("tensorflow.nn.nosuch") is pydoc.locate("tensorflow.nosuch.relu") is None
    with pytest.raises(ModuleNotFoundError) as caught:
        module("tensorflow.nn.nosuch")
    assert caught.value.name == "tensorflow.nn.nosuch"


def test_private_names_that_are_missing_say_what_is_near() -> None:
    with pytest.raises(AttributeError, match="has no tensorflow.python.util.nest.Session; tf.Session is there"):
        _ = module("tensorflow.python.util.nest").Session
    with pytest.raises(ModuleNotFoundError, match="ops.math_opz; python.ops.math_ops is there"):
        module("tensorflow.python.ops.math_opz")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("from tensorflow.python.ops.array_ops import stridded_slice", "; strided_slice is there"),
        ("from tensorflow.python.utl import nest", "; python.util is there"),
        ("from tensorflow.python.client import math_ops", "; python.ops.math_ops is there"),
        ("from tensorflow.python.ops import seq2seq", "; contrib.legacy_seq2seq.python.ops.seq2seq is there"),
        ("from tensorflow.nn import reluu", "; relu is there"),
        ("import tensorflow.nosuch", r"has no tensorflow.nosuch; dir\(tf\) lists what is there$"),
    ],
)
def test_what_is_near_is_told_of_all_that_is_missing(statement: str, told: str) -> None:
    module("tensorflow")
    with pytest.raises(ImportError, match=told):
        exec(statement, {})  # noqa: S102 (one of the statements above)


def test_what_is_near_a_public_name_is_told() -> None:
    with pytest.raises(AttributeError, match="has no tensorflow.zerros; zeros is there"):
        _ = module("tensorflow").zerros


def test_names_that_are_missing_say_what_to_do() -> None:
    for name in ("tensorflow", "tensorflow.compat.v1"):
        with pytest.raises(AttributeError, match="anabranch has no tf.load_library; .*tf.py_func"):
            _ = module(name).load_library
        with pytest.raises(AttributeError, match="anabranch has no tf.saved_model.save; "):
            _ = module(name).saved_model.save
        with pytest.raises(NotImplementedError, match="has no tf.distribute.MirroredStrategy; "):
            module(name).distribute.MirroredStrategy()


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2"])
def test_classes_that_are_refused_are_there_to_be_asked_for(name: str) -> None:
    """Nothing is one of them, which a program may ask; see `core.stand_ins`."""
    whole = module(name)
    strategy = whole.distribute.MirroredStrategy
    assert strategy is module(f"{name}.distribute").MirroredStrategy is tf.distribute.MirroredStrategy  # type: ignore[attr-defined]
    assert not isinstance(tf.constant(1), (strategy, whole.keras.Model, whole.lite.Interpreter))
    layers = module(f"{name}.keras.layers")
    assert layers.Dense is whole.keras.layers.Dense
    with pytest.raises(NotImplementedError, match="anabranch has no tf.keras.layers.Dense; .*anabranch run"):
        layers.Dense(3)


def test_the_whole_has_one_module_under_each_spelling() -> None:
    program = """
import tensorflow as tf
import tensorflow.compat.v1 as first
from tensorflow.compat import v1 as second
same = first is second is tf.compat.v1 and first.Session is tf.Session
"""
    names: dict[str, object] = {}
    exec(program, names)  # noqa: S102 (the program above)
    assert names["same"]


def test_the_version_is_that_of_the_interface() -> None:
    assert module("tensorflow").__version__ == "1.15.5"
    assert module("tensorflow").__git_version__ == tf.GIT_VERSION
    assert module("tensorflow.compat.v1").__version__ == "1.15.5"
    assert module("tensorflow.compat.v2").__version__ == "1.15.5"
    assert module("tensorflow").VERSION == module("tensorflow.compat.v1").VERSION == "1.15.5"
    assert module("tensorflow").version.VERSION == module("tensorflow.version").VERSION == "1.15.5"
    assert module("tensorflow.compat.v2").version.VERSION == "1.15.5"
    assert module("tensorflow.python.framework.versions").__version__ == "1.15.5"


def test_other_modules_are_left_alone() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'tensorflow_nosuch'"):
        module("tensorflow_nosuch")


def test_a_name_that_a_subpackage_of_slim_lacks() -> None:
    """The subpackage lies in another package, below which no module of ours is looked for."""
    assert tensorflow_alias.is_there("tensorflow.contrib.slim.metrics.streaming_mean")
    assert tensorflow_alias.absence_of("tensorflow.contrib.slim.metrics.no_such_name") is not None
