"""What leads the imports of TensorFlow's test files to the public interface, on a small tree of made-up sources."""

from __future__ import annotations

import importlib
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import anabranch as tf
from anabranch.proto.training_pb2 import CheckpointState
from anabranch.tools import tensorflow_alias
from tests.tensorflow_tests import exported_names, led_modules, old_calls
from tests.tensorflow_tests.exported_names import Table, cached_table, read_table
from tests.tensorflow_tests.helpers import HELPERS
from tests.tensorflow_tests.operation_types import function_name
from tests.tensorflow_tests.private_names import Placeholder, placeholder

MATH_OPS = """
from __future__ import absolute_import
import numpy as np
from tensorflow.python.framework import dtypes
from tensorflow.python.ops import gen_math_ops
from tensorflow.python.ops import state_ops as state
from tensorflow.python.ops.gen_math_ops import *
from tensorflow.python.util.tf_export import tf_export

@tf_export("math.add", v1=["math.add", "add"])
@other.decorator
def add_v1(x, y, name=None): ...

@tf_export("linalg.matmul", "matmul")
def matmul(a, b): ...

@tf_export("math.argmax", "argmax", v1=[])
def argmax_v2(x): ...

@tf_export(v1=["argmax", "math.argmax"])
def argmax(x): ...

@tf_export(v1=["keras.layers.Spec", "layers.Spec"])
class Spec: ...

@tf_export("math.only_in_version_2", v1=[])
def later(x): ...

def _shape(x): ...
def sub(x, y): ...  # hides the generated one

negative = gen_math_ops.neg
product = matmul
rounded = tf_export("math.rint")(gen_math_ops.rint)
tf_export(v1=["sparse_matmul"])(gen_math_ops.sparse_mat_mul)
PI = 3
tf_export("math.PI").export_constant(__name__, "PI")
if six.PY2:
  tf_export("compat.old")(_shape)
else:
  tf_export("compat.new")(product)
loop = other_loop
other_loop = loop
"""
#: what declares operation types, as far as it is read
DECLARATIONS = """
REGISTER_OP("Neg").Input("x: T").Output("y: T");
REGISTER_OP("SparseMatMul");
REGISTER_OP("Rint");
REGISTER_OP("Sub");
REGISTER_OP("Hidden");
REGISTER_OP("MatMul").Input("a: T");
REGISTER_STATEFUL_OP("FFT2D", DT_FLOAT);
"""
FILES = {
    "python/__init__.py": "",
    "python/ops/math_ops.py": MATH_OPS,
    "python/ops/state_ops.py": "import tensorflow.python.ops.math_ops as m\nassign = m.add_v1",
    "python/ops/math_ops_test.py": "this is not read",
    "python/framework/dtypes.py": 'float32 = DType()\ntf_export("dtypes.float32", "float32")(float32)',
    "core/ops/math_ops.cc": DECLARATIONS,
    "core/ops/nothing.cc": "",
    "core/api_def/base_api/api_def_Neg.pbtxt": 'op {\n  endpoint {\n    name: "Neg"\n  }\n}\n',
    "core/api_def/python_api/api_def_Neg.pbtxt": 'op {\n  endpoint {\n    name: "math.negative"\n  }\n}\n',
    "core/api_def/base_api/api_def_Hidden.pbtxt": 'op {\n  graph_op_name: "Hidden"\n  visibility: HIDDEN\n}\n',
    "core/api_def/python_api/api_def_MatMul.pbtxt": 'op {\n  graph_op_name: "MatMul"\n  visibility: HIDDEN\n}\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tmp_path /= "tensorflow"
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def table(tree: Path) -> Table:
    return read_table(tree)


@pytest.fixture
def python(table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that stands for `tensorflow.python`."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    led_modules.install(tf, table)
    yield importlib.import_module(f"{led_modules.PREFIX}.python")
    for name in [name for name in sys.modules if name.startswith(led_modules.PREFIX)]:
        del sys.modules[name]


def test_exports_are_read(table: Table) -> None:
    assert table["python.ops.math_ops"] == {
        "add_v1": "tf math.add",
        "matmul": "tf linalg.matmul",
        "argmax_v2": "tf math.argmax",  # version 1 has one of that name
        "argmax": "tf argmax",
        "Spec": "tf layers.Spec",
        "negative": "tf math.negative",
        "product": "tf compat.new",
        "rounded": "tf math.rint",
        "PI": "tf math.PI",
        "_shape": "tf compat.old",
        "dtypes": "module python.framework.dtypes",
        "gen_math_ops": "module python.ops.gen_math_ops",
        "state": "module python.ops.state_ops",
        # by the star
        "neg": "tf math.negative",
        "sparse_mat_mul": "tf sparse_matmul",
        "rint": "tf math.rint",
        "hidden": "raw Hidden",
        "mat_mul": "raw MatMul",
        "fft2d": "tf fft2d",
        **{name: f"raw {name}" for name in ("Neg", "SparseMatMul", "Rint", "Sub", "Hidden", "MatMul", "FFT2D")},
    }
    assert table["python.framework.dtypes"] == {"float32": "tf dtypes.float32"}
    assert table["python.ops.state_ops"] == {"assign": "tf math.add", "m": "module python.ops.math_ops"}
    assert table["python.ops.gen_math_ops"]["_mat_mul"] == "raw MatMul"
    assert table["python.ops.gen_math_ops"]["sub"] == "tf sub"
    assert set(table) == {
        "python",
        "python.framework",
        "python.framework.dtypes",
        "python.ops",
        "python.ops.gen_math_ops",
        "python.ops.math_ops",
        "python.ops.state_ops",
    }


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("MatMul", "mat_mul"),
        ("Conv2D", "conv2d"),
        ("BlockLSTMV2", "block_lstmv2"),
        ("IFFT3D", "ifft3d"),
        ("Add", "add"),
    ],
)
def test_names_of_generated_functions(name: str, function: str) -> None:
    assert function_name(name) == function


def test_the_table_is_kept(tree: Path, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tree.with_name("kept") / "table"
    assert cached_table(tree, cache) == table
    with monkeypatch.context() as patch:
        patch.setattr(exported_names, "read_table", lambda _: pytest.fail("read again"))
        assert cached_table(tree, cache) == table
    (tree / "python/ops/new_ops.py").write_text('tf_export("new.one")(one)', encoding="utf-8")
    assert cached_table(tree, cache)["python.ops.new_ops"] == {"one": "tf new.one"}


def test_names_lead_to_the_public_interface(python: Any) -> None:
    math_ops = importlib.import_module(f"{led_modules.PREFIX}.python.ops.math_ops")
    assert python.ops.math_ops is math_ops
    assert math_ops.add_v1 is tf.math.add
    assert math_ops.dtypes.float32 is tf.float32
    assert math_ops.dtypes.int8 is tf.int8  # by the public counterpart of the module
    product = math_ops.gen_math_ops.mat_mul([[1.0, 2.0]], [[3.0], [4.0]], transpose_a=False)
    with tf.Session() as session:
        assert session.run(product) == [[11.0]]
    absent = math_ops.PI  # public, and not there
    with pytest.raises(AttributeError, match="PI"):
        absent()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{led_modules.PREFIX}.python.nowhere")


def test_modules_of_messages_are_those_of_the_house(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    known = set(sys.modules)
    tensorflow_alias.install()
    try:
        finder = led_modules.LedModules(tf, table)
        spec = finder.find_spec(f"{led_modules.PREFIX}.python.training.checkpoint_state_pb2")
        assert spec is not None
        messages: Any = finder.create_module(spec)
        assert messages.CheckpointState is CheckpointState
        assert finder.find_spec(f"{led_modules.PREFIX}.python.training.nowhere_pb2") is None
        assert finder.find_spec(f"{led_modules.PREFIX}.python.training.checkpoint_state") is None
    finally:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] == tensorflow_alias.ROOT:
                del sys.modules[name]


def test_private_names_skip_the_test_that_uses_them(python: Any) -> None:
    private = python.ops.math_ops._private
    assert isinstance(private, Placeholder)
    for use in (private, private.inside, lambda: private("x")):
        with pytest.raises(unittest.SkipTest, match=r"python\.ops\.math_ops\._private.* is private"):
            use()
    with pytest.raises(AttributeError):
        private.__path__


def test_classes_may_be_derived_from_private_names() -> None:
    class Case(placeholder("base.Case"), unittest.TestCase):  # type: ignore[misc]
        def test(self) -> None:
            self.helper()

    class Helper(placeholder("base.Helper")):  # type: ignore[misc]
        pass

    result = unittest.TestResult()
    Case("test").run(result)
    with pytest.raises(unittest.SkipTest):
        Helper()
    # what a private base would have is an error of the test, not a reason to skip it
    assert (result.testsRun, len(result.errors), len(result.skipped)) == (1, 1, 0)


def test_tests_of_several_modes_run_in_a_graph() -> None:
    util = HELPERS["python.framework.test_util"]
    in_modes: Any = util["run_all_in_graph_and_eager_modes"]
    version_2: Any = util["run_v2_only"]

    @in_modes
    class Case(tf.test.TestCase):
        def test_a(self) -> None:
            assert tf.get_default_session() is not None
            assert not tf.get_default_graph().get_operations()
            tf.constant(1)

        @version_2
        def test_b(self) -> None:
            raise AssertionError

    before = len(tf.get_default_graph().get_operations())
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.errors, result.failures) == ([], [])
    assert "version 2" in [why for _, why in result.skipped]
    assert len(tf.get_default_graph().get_operations()) == before


def test_gradients_of_functions() -> None:
    checker = HELPERS["python.ops.gradient_checker_v2"]
    compute: Any = checker["compute_gradient"]
    largest: Any = checker["max_error"]
    theoretical, numeric = compute(tf.matmul, [np.ones([2, 3], np.float32), np.ones([3, 1], np.float32)])
    assert [one.shape for one in numeric] == [(6, 2), (3, 2)]
    assert largest(theoretical, numeric) < 1e-3
    # of complex values, real and imaginary parts are varied apart
    theoretical, numeric = compute(tf.conj, [np.array([1 + 2j, 3j], np.complex128)])
    assert numeric[0].shape == (4, 4)
    np.testing.assert_allclose(numeric[0], np.diag([1.0, -1.0, 1.0, -1.0]), atol=1e-6)
    assert largest(theoretical, numeric) < 1e-6
    assert largest([np.ones(2)], [np.zeros(2)]) == 1


def test_old_calls_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("array", "reshape"):
        monkeypatch.setattr(np, name, getattr(np, name))
    old_calls.restore()
    old: Any = np
    assert old.array([1, 2], copy=False).tolist() == [1, 2]
    assert old.array([1, 2], copy=True).tolist() == [1, 2]
    assert old.reshape([1, 2], newshape=[2, 1]).shape == (2, 1)


def test_a_function_of_logging_that_a_test_replaces_is_replaced_for_everybody() -> None:
    module = led_modules.LedModule(f"{led_modules.PREFIX}.python.platform.tf_logging", led_modules.LedModules(tf, {}))
    before = tf.logging.warning
    with mock.patch.object(module, "warning") as replaced:
        tf.logging.warning("seen %d", 1)
    replaced.assert_called_once_with("seen %d", 1)
    assert tf.logging.warning is before
    other = led_modules.LedModule(f"{led_modules.PREFIX}.python.ops.math_ops", led_modules.LedModules(tf, {}))
    other.add = before
    assert tf.add is not before
