"""What libraries take from TensorFlow's private modules, and public names lack."""

from __future__ import annotations

import functools
import inspect as pyinspect
import json
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import (
    branches,
    decorators,
    deprecation,
    documented_names,
    evaluation,
    event_writer,
    files,
    function_arguments,
    gradient_checks,
    graphs,
    in_place,
    inspection,
    json_types,
    metrics,
    replicas_on_chips,
    resources,
    rnn_cells,
    scopes,
    shape_conversions,
    summary_scopes,
    switches,
    test_modes,
    type_specs,
)
from anabranch.proto.summary_pb2 import Event, Summary


def _plain(a: int, b: int = 2, *rest: int, c: int = 3) -> int:
    """Adds."""
    return a + b + c + sum(rest)


def test_decorators_are_looked_through() -> None:
    def wrapper(*args: int, **kwargs: int) -> int:
        return _plain(*args, **kwargs) + 1

    wrapped = decorators.make_decorator(_plain, wrapper)
    marks, target = decorators.unwrap(wrapped)
    assert wrapped is wrapper
    assert wrapped(1) == 7
    assert wrapped.__name__ == "_plain"
    assert target is _plain
    assert [mark.decorator_name for mark in marks] == ["test_decorators_are_looked_through"]
    assert inspection.getargspec(wrapped) == (["a", "b"], "rest", None, (2,))
    assert inspection.getdoc(wrapped) == "Adds."


def test_arguments_of_partial_applications_methods_and_objects() -> None:
    class Callable:
        def __call__(self, x: int, y: int = 1) -> int:
            return x + y

    assert inspection.getargspec(functools.partial(_plain, 1)) == (["b"], "rest", None, (2,))
    assert inspection.getargspec(functools.partial(_plain, a=1))[3] == (1, 2)
    assert inspection.getargspec(Callable()) == (["self", "x", "y"], None, None, (1,))
    with pytest.raises(ValueError, match="none to 'y'"):
        inspection.getargspec(functools.partial(lambda x, y: x + y, x=1))


def test_a_signature_that_a_wrapper_states_counts() -> None:
    """As of Sonnet's modules, whose `__call__` states the signature of `_build`."""

    @functools.wraps(_plain)
    def wrapper(*args: int, **kwargs: int) -> int:
        return _plain(*args, **kwargs)

    def call(instance: object, *args: int, **kwargs: int) -> int:
        return wrapper(*args, **kwargs)

    call.__wrapped__ = lambda *args, **kwargs: None  # type: ignore[attr-defined]
    call.__signature__ = pyinspect.signature(lambda self, inputs: None)  # type: ignore[attr-defined]
    assert inspection.getargspec(call).args == ["self", "inputs"]
    assert inspection.getargspec(MethodType(call, object())).args == ["self", "inputs"]
    assert inspection.getargspec(wrapper).args == ["a", "b"]


def test_context_managers_remember_their_function() -> None:
    @decorators.contextmanager
    def entered(value: int) -> Iterator[int]:
        yield value

    with entered(3) as value:
        assert value == 3
    assert inspection.getargspec(entered).args == ["value"]


def test_deprecated_functions_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(tf.logging, "warning", lambda form, *args: told.append(form % args))

    @deprecation.deprecated("2019-01-01", "Use other().")
    def old(x: int) -> int:
        return x

    @deprecation.deprecated_args(None, "Leave it out.", "dim")
    def with_argument(x: int, dim: int | None = None) -> int:
        return x

    @deprecation.deprecated(None, "Use Other.")
    class Old:
        pass

    with deprecation.silence():
        old(1)
    assert not told
    assert [old(1), old(2), with_argument(3), with_argument(4, 5)] == [1, 2, 3, 4]
    assert isinstance(Old(), Old)
    assert len(told) == 3
    assert "removed after 2019-01-01. Instead: Use other()." in told[0]
    assert "the argument 'dim'" in told[1]
    with pytest.raises(ValueError, match="instructions"):
        deprecation.deprecated(None, "")


def test_arguments_of_two_names() -> None:
    assert deprecation.deprecated_argument_lookup("axis", 1, "dim", None) == 1
    assert deprecation.deprecated_argument_lookup("axis", None, "dim", 2) == 2
    with pytest.raises(ValueError, match="both 'dim' and 'axis'"):
        deprecation.deprecated_argument_lookup("axis", 1, "dim", 2)


def test_undocumented_names_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("documented", "A module.\n\n@@shown\n@@absent\n")
    vars(module).update(shown=1, hidden=2, allowed=3, _private=4)
    monkeypatch.setitem(sys.modules, "documented", module)
    documented_names.remove_undocumented("documented", ["allowed"])
    assert [name for name in vars(module) if not name.startswith("__")] == ["shown", "allowed", "_private"]
    assert documented_names.make_all("documented") == ["shown"]


def test_names_move_in_and_out_of_scopes() -> None:
    assert [graphs.prepend_name_scope(name, "s") for name in ("a", "^a", "loc:@a")] == ["s/a", "^s/a", "loc:@s/a"]
    assert [graphs.strip_name_scope(name, "s") for name in ("s/a", "^s/a", "loc:@s/a", "t")] == [
        "a",
        "^a",
        "loc:@a",
        "t",
    ]
    assert graphs.uid() != graphs.uid()


def test_the_graph_of_inputs() -> None:
    first, second = tf.Graph(), tf.Graph()
    with first.as_default():
        tensor = tf.constant(1.0)
    assert graphs._get_graph_from_inputs([tensor]) is first
    with pytest.raises(ValueError, match="not from the passed-in graph"):
        graphs._get_graph_from_inputs([tensor], second)
    with pytest.raises(TypeError, match="needs to be a Graph"):
        graphs._get_graph_from_inputs([tensor], 3)  # type: ignore[arg-type]


def test_files_are_read_and_written_whole(tmp_path: object) -> None:
    path = f"{tmp_path}/text"
    files.write_string_to_file(path, "größer")
    assert files.read_file_to_string(path) == "größer"
    assert files.read_file_to_string(path, binary_mode=True) == "größer".encode()


def test_modes_are_those_of_graphs() -> None:
    with switches.graph_mode():
        assert not switches.enabled()
        assert not switches.context().executing_eagerly()
    with pytest.raises(RuntimeError, match="no eager mode"):
        switches.eager_mode()


def test_tests_of_several_modes_run_in_a_session() -> None:
    ran = []

    @test_modes.run_all_in_graph_and_eager_modes
    class Case(tf.test.TestCase):
        def test_value(self) -> None:
            ran.append(("test_value", self.evaluate(tf.constant(2) + 1)))

        @test_modes.run_v2_only
        def test_of_version_2(self) -> None:
            ran.append(("test_of_version_2", 0))

        @test_modes.run_v1_only("why")
        @test_modes.run_deprecated_v1
        def test_as_it_is(self) -> None:
            ran.append(("test_as_it_is", 1))

        @test_modes.run_in_graph_and_eager_modes(config=tf.ConfigProto(), use_gpu=False)
        def test_options(self) -> None:
            with test_modes.use_gpu(), test_modes.force_cpu():
                ran.append(("test_options", tf.get_default_session() is not None))

        @test_modes.run_gpu_only
        def test_gpu(self) -> None:
            ran.append(("test_gpu", tf.test.is_gpu_available()))

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.errors, result.failures) == ([], [])
    assert [one for one in ran if one[0] != "test_gpu"] == [
        ("test_as_it_is", 1),
        ("test_options", True),
        ("test_value", 3),
    ]
    assert "this is version 1 of the interface" in [why for _, why in result.skipped]
    with pytest.raises(ValueError, match="run_all_in_graph"):
        test_modes.run_in_graph_and_eager_modes(Case)


def test_specs_of_libraries_say_their_parts() -> None:
    class Pair(type_specs.BatchableTypeSpec):
        def __init__(self, first: Any, second: Any) -> None:
            self._both = (first, second)

        @property
        def value_type(self) -> type:
            return tuple

        def _serialize(self) -> tuple[Any, ...]:
            return self._both

    spec = tf.TensorSpec([None], tf.float32)
    assert Pair(spec, 1) == Pair(tf.TensorSpec([None], tf.float32), 1)
    assert Pair(spec, 1).is_compatible_with(Pair(tf.TensorSpec([3], tf.float32), 1))
    assert not Pair(spec, 1).is_compatible_with(Pair(spec, 2))


def test_an_evaluation_of_a_number_of_steps() -> None:
    with tf.Graph().as_default():
        total = metrics.metric_variable([], tf.float32, name="total")
        added = tf.assign_add(total, 2.0)
        kept = evaluation._evaluate_once(
            None,
            eval_ops=added,
            final_ops=metrics._safe_scalar_div(total, 2.0, name="half"),
            hooks=[evaluation._StopAfterNEvalsHook(3)],
        )
        assert kept == 3.0
        assert evaluation._get_or_create_eval_step() is evaluation._get_or_create_eval_step()
        with pytest.raises(ValueError, match="Invalid key: xx"):
            metrics._confusion_matrix_at_thresholds([True], [0.5], [0.5], includes=["xx"])


def test_event_files_by_the_writer_of_the_wrapped_library(tmp_path: Path) -> None:
    prefix = tmp_path / "logs" / "events"
    writer = event_writer.PrefixedEventsWriter(str(prefix).encode())
    assert not prefix.parent.exists()
    writer.WriteEvent(Event(step=1, summary=Summary(value=[Summary.Value(tag="x", simple_value=2.5)])))
    writer._WriteSerializedEvent(Event(step=2).SerializeToString())
    writer.Flush()
    name = writer.FileName().decode()
    assert name.startswith(f"{prefix}.out.tfevents.")
    events = list(tf.train.summary_iterator(name))
    assert [event.step for event in events] == [0, 1, 2]
    assert (events[0].file_version, events[1].summary.value[0].simple_value) == ("brain.Event:2", 2.5)
    with pytest.raises(TypeError, match=r"Expected an event_pb2.Event proto,  but got <class 'bytes'>"):
        writer.WriteEvent(b"")  # type: ignore[arg-type]
    writer.Close()
    writer.InitWithSuffix(".more")
    assert writer.FileName().endswith(b".more")
    writer.Close()


def test_shapes_are_put_together_of_sizes() -> None:
    size = tf.placeholder(tf.int32, [])
    assert rnn_cells._concat(None, 4, static=True) is None
    assert rnn_cells._concat(tf.TensorShape([None]), 4, static=True) == [None, 4]
    assert rnn_cells._concat(3, tf.TensorShape([None, 2]), static=True) == [3, None, 2]
    assert rnn_cells._concat(tf.constant(3), [2], static=True) == [3, 2]
    with tf.Session() as session:
        assert session.run(rnn_cells._concat(size, [4, 5]), {size: 7}).tolist() == [7, 4, 5]
    with pytest.raises(ValueError, match="prefix or suffix of None"):
        rnn_cells._concat(None, 4)
    with pytest.raises(ValueError, match="either a scalar or vector"):
        rnn_cells._concat(tf.zeros([2, 2], tf.int32), 4)
    rnn_cells.assert_like_rnncell("cell", tf.nn.rnn_cell.GRUCell(3))
    with pytest.raises(TypeError, match=r"'cell' \(3\) is not an RNNCell: 'output_size' property is missing.*callable"):
        rnn_cells.assert_like_rnncell("cell", 3)


def test_branches_are_chosen_by_what_is_known() -> None:
    """As TensorFlow Probability asks: with a function of its own instead of `tf.cond`."""
    asked = []

    def choose(pred: Any, true_fn: Any, false_fn: Any, name: str) -> Any:
        asked.append(pred)
        return tf.cond(tf.convert_to_tensor(pred), true_fn, false_fn, name=name)

    x = tf.placeholder(tf.int32, [])
    pairs = [(x < 1, lambda: tf.constant(1)), (x < 2, lambda: tf.constant(2))]
    found = branches._case_helper(choose, pairs, lambda: tf.constant(3), False, "case")
    strict = branches._case_helper(choose, pairs, None, True, "case")
    with tf.Session() as session:
        assert [session.run(found, {x: i}) for i in (0, 1, 2)] == [1, 2, 3]
        assert session.run(strict, {x: 1}) == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1 conditions"):
            session.run(strict, {x: 0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="None of conditions"):
            session.run(strict, {x: 2})
        known = branches._case_helper(choose, [(True, lambda: tf.constant(1))], None, False, "case", True)
        assert session.run(known) == 1
    assert len(asked) == 3
    with pytest.raises(TypeError, match="must be Tensor"):
        branches._case_helper(choose, [(True, lambda: 1)], None, False, "case")
    with pytest.raises(TypeError, match="must be callable"):
        branches._case_helper(choose, [(x < 1, 1)], None, False, "case")  # type: ignore[list-item]
    folded = tf.constant(1) + 1
    assert branches.TF_TryEvaluateConstant_wrapper(folded.graph._c_graph, folded._as_tf_output()) == 2
    assert branches.TF_TryEvaluateConstant_wrapper(x.graph._c_graph, x._as_tf_output()) is None


def test_jacobians_of_functions() -> None:
    theoretical, numeric = gradient_checks.compute_gradient(tf.matmul, [np.ones([2, 3]), np.full([3, 1], 2.0)])
    assert [one.shape for one in numeric] == [(6, 2), (3, 2)]
    assert gradient_checks.max_error(theoretical, numeric) < 1e-6


def test_a_variable_scope_without_a_name_scope() -> None:
    with tf.variable_scope("outer") as outer:
        v = tf.get_variable("v", initializer=1.0)
    with tf.name_scope("names"), scopes._pure_variable_scope(outer, reuse=True) as scope:
        assert scope.name == "outer"
        assert tf.get_variable("v") is v
        assert tf.no_op("op").name == "names/op"
    with scopes._pure_variable_scope("new"):
        assert tf.get_variable("w", [1]).name == "new/w:0"


def test_average_precision_of_predicted_classes() -> None:
    """As `average_precision_at_k` of scores that rank the classes so."""
    scores, labels = [[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]], [[2], [0]]
    of_scores = tf.metrics.average_precision_at_k(labels, tf.constant(scores), 2)
    of_classes = metrics._streaming_sparse_average_precision_at_top_k(labels, tf.constant([[1, 2], [0, 2]]))
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run([of_scores[1], of_classes[1]]) == [0.75, 0.75]
        assert session.run(of_classes[0]) == 0.75
    with pytest.raises(ValueError, match="must be known"):
        metrics._streaming_sparse_average_precision_at_top_k(labels, tf.placeholder(tf.int32, [2, None]))


def test_rows_are_changed_in_place() -> None:
    x, row = np.arange(6.0).reshape(3, 2), np.array([10.0, 20.0])
    with tf.Session() as session:
        assert session.run(in_place.alias_inplace_update(x, 1, row)).tolist() == [[0, 1], [10, 20], [4, 5]]
        assert session.run(in_place.inplace_add(x, [0, 2], [row, row])).tolist() == [[10, 21], [2, 3], [14, 25]]
        assert session.run(in_place.inplace_sub(x, None, x)).tolist() == np.zeros((3, 2)).tolist()
        assert session.run(in_place.empty_like(x)).shape == (3, 2)


def test_arguments_that_a_function_still_takes() -> None:
    class Model:
        def __call__(self, features: int, labels: int) -> int:
            return features + labels

        def method(self, mode: int, **rest: int) -> int:
            return mode + len(rest)

    assert function_arguments.fn_args(_plain) == ("a", "b")
    assert function_arguments.fn_args(functools.partial(_plain, 1, b=2)) == ()
    assert function_arguments.fn_args(Model()) == ("features", "labels")
    assert function_arguments.fn_args(Model().method) == ("mode",)
    assert function_arguments.has_kwargs(functools.partial(Model().method, 1))
    assert not function_arguments.has_kwargs(Model())
    assert function_arguments.get_func_name(Model().method) == "Model.method"
    assert function_arguments.get_func_code(_plain) is _plain.__code__
    with pytest.raises(TypeError, match="fn should be a function-like object"):
        function_arguments.fn_args(3)  # type: ignore[arg-type]


def test_resources_are_created_together() -> None:
    made = tf.Variable(0, trainable=False)
    resources.register_resource(made.handle, made.initializer, made.is_initialized())
    resources.register_resource(made.handle, made.initializer, made.is_initialized(), is_shared=False)
    assert len(resources.shared_resources()) == len(resources.local_resources()) == 1
    missing = resources.report_uninitialized_resources()
    with tf.Session() as session:
        assert session.run(missing).tolist() == [made.name.encode()] * 2
        session.run(resources.initialize_resources(resources.shared_resources()))
        assert session.run(missing).tolist() == []


def test_no_computation_has_shards() -> None:
    assert replicas_on_chips.get_tpu_context().number_of_shards is None
    with replicas_on_chips.tpu_shard_context(2):
        assert replicas_on_chips.get_tpu_context().number_of_shards == 2
        with pytest.raises(NotImplementedError, match="nested"), replicas_on_chips.tpu_shard_context(3):
            pass
    assert replicas_on_chips.get_tpu_context().number_of_shards is None


def test_types_of_the_programs_own_are_tensors() -> None:
    class Mirrored:
        name = property(lambda self: "mirrored")
        dtype = property(lambda self: tf.float32)

    assert not graphs.is_dense_tensor_like(Mirrored())
    graphs.register_dense_tensor_like_type(Mirrored)
    assert graphs.is_dense_tensor_like(Mirrored())
    assert graphs.is_dense_tensor_like(tf.constant(1))
    assert graphs.is_resource_variable(tf.Variable(1))
    assert not graphs.is_resource_variable(tf.constant(1))
    with pytest.raises(TypeError, match="does not define a `name` property"):
        graphs.register_dense_tensor_like_type(int)


def test_a_summarys_tag_begins_with_its_family() -> None:
    with tf.name_scope("outer"), summary_scopes.summary_scope("a loss", "/all", values=[]) as (tag, scope):
        summary_scopes.collect(tf.constant(1), None, ["kept"])
    with summary_scopes.summary_scope("loss") as (plain, _):
        summary_scopes.collect(tf.constant(2), ["other"], ["kept"])
    assert (tag, scope, plain) == ("all/outer/all/a_loss", "outer/all/a_loss/", "loss")
    assert len(tf.get_collection("kept")) == len(tf.get_collection("other")) == 1
    assert not summary_scopes.skip_summary()


def test_no_operation_is_in_a_context() -> None:
    context = tf.get_default_graph()._get_control_flow_context()
    assert context is None
    assert switches.GetContainingXLAContext(context) is None


def test_objects_become_what_json_can_say() -> None:
    given = {
        "numbers": np.arange(2),
        "number": np.float32(2),
        "function": _plain,
        "shape": tf.TensorShape([2, None]),
        "length": tf.Dimension(3),
        "initializer": tf.ones_initializer(),
    }
    said = json.loads(json.dumps(given, default=json_types.get_json_type))
    assert said.pop("initializer")["class_name"] == "Ones"
    assert said == {"numbers": [0, 1], "number": 2.0, "function": "_plain", "shape": [2, None], "length": 3}
    with pytest.raises(TypeError, match="Not JSON Serializable"):
        json.dumps(object(), default=json_types.get_json_type)


def test_a_shape_becomes_a_vector() -> None:
    convert = shape_conversions._tensor_shape_tensor_conversion_function
    with tf.Graph().as_default(), tf.Session() as session:
        assert list(session.run(convert(tf.TensorShape([2, 3])))) == [2, 3]
        assert [convert(tf.TensorShape(s)).dtype for s in ([], [2], [2**40])] == [tf.int32, tf.int32, tf.int64]
        assert convert(tf.TensorShape([1]), tf.int64).dtype == tf.int64
        with pytest.raises(ValueError, match="partially known"):
            convert(tf.TensorShape([None]))
        with pytest.raises(TypeError, match="float32"):
            convert(tf.TensorShape([1]), tf.float32)
