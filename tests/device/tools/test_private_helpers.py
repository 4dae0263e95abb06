"""Private functions and modules of TensorFlow that public programs take."""

from __future__ import annotations

import inspect
from typing import Any

import absl.flags
import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import metrics, rnn_cells, savers, tensor_lists
from anabranch.contrib import cudnn_layers, rnn_memory, rnn_normalized, sampled_losses
from anabranch.core.module_contents import ModuleContents
from anabranch.frontend.bounded_specs import BoundedTensorSpec
from anabranch.tools import tensorflow_alias
from anabranch.train.optimizer import deduplicated


def alias(name: str) -> Any:
    return tensorflow_alias.AliasModule(name, *(tensorflow_alias.counterpart(name) or ([], {})))


def run(fetches: Any) -> Any:
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return sess.run(fetches)


# ---------------------------------------------------------------------- modules
@pytest.mark.parametrize("module", [tf.contrib.rnn, alias("tensorflow.contrib.rnn"), alias("tensorflow.nn.rnn_cell")])
def test_programs_go_through_all_names_of_a_module(module: Any) -> None:
    cells = {name: x for name, x in module.__dict__.items() if inspect.isclass(x) and issubclass(x, module.RNNCell)}
    assert cells["GRUCell"] is tf.nn.rnn_cell.GRUCell
    assert vars(module)["LSTMCell"] is tf.nn.rnn_cell.LSTMCell
    assert "nothing" not in vars(module)
    assert len(vars(module)) >= len(cells)


def test_the_contents_of_a_module_can_be_changed() -> None:
    module = alias("tensorflow.train")
    contents = vars(module)
    assert isinstance(contents, ModuleContents)
    contents["own"] = 3
    assert module.own == 3
    del contents["own"]
    assert not hasattr(module, "own")
    with pytest.raises(KeyError):
        contents["own"]


@pytest.mark.parametrize(
    ("module", "name", "is_what"),
    [
        ("python.ops.distributions.bernoulli", "Bernoulli", tf.distributions.Bernoulli),
        ("contrib.metrics.python.ops.set_ops", "set_difference", tf.sets.difference),
        ("contrib.cudnn_rnn.python.ops.cudnn_rnn_ops", "CUDNN_RNN_BIDIRECTION", cudnn_layers.CUDNN_RNN_BIDIRECTION),
        ("contrib.rnn.python.ops.core_rnn_cell", "_linear", rnn_cells._linear),
        ("contrib.data.python.ops.sliding", "sliding_window_batch", tf.contrib.data.sliding_window_batch),
        ("contrib.legacy_seq2seq.python.ops.seq2seq", "rnn_decoder", tf.contrib.legacy_seq2seq.rnn_decoder),
        ("contrib.learn.python.learn.datasets.base", "Dataset", tf.contrib.learn.datasets.base.Dataset),
        ("contrib.learn.python.learn.learn_runner", "run", tf.contrib.learn.learn_runner.run),
        ("contrib.nn.python.ops.fwd_gradients", "fwd_gradients", sampled_losses.fwd_gradients),
        ("contrib.rnn.python.ops.rnn_cell", "NTMCell", rnn_memory.NTMCell),
        ("contrib.rnn.python.ops.rnn_cell", "CFNCell", rnn_normalized.CFNCell),
        ("contrib.learn.python.learn.monitored_session", "MonitoredSession", tf.train.MonitoredSession),
        ("python.framework.meta_graph", "read_meta_graph_file", None),
        ("python.training.optimizer", "_deduplicate_indexed_slices", deduplicated),
        ("python.training.saver", "_get_saver_or_default", savers._get_saver_or_default),
        ("python.training.device_setter", "_RoundRobinStrategy", None),
        ("python.framework.tensor_spec", "BoundedTensorSpec", BoundedTensorSpec),
        ("core.protobuf.struct_pb2", "StructuredValue", None),
        ("core.profiler.tfprof_log_pb2", "ProfileProto", None),
        ("core.util.test_log_pb2", "BenchmarkEntries", None),
        ("python.ops.summary_ops_v2", "create_file_writer", tf.contrib.summary.create_file_writer),
        ("python.ops.list_ops", "tensor_list_length", None),
    ],
)
def test_names_in_private_modules(module: str, name: str, is_what: Any) -> None:
    value = getattr(alias(f"tensorflow.{module}"), name)
    assert value is not None
    if is_what is not None:
        assert value is is_what


@pytest.mark.parametrize("module", ["contrib.cloud"])
def test_a_module_that_is_refused_can_be_imported(module: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"anabranch has no tf\.{module}\.some_function; \w+"):
        alias(f"tensorflow.{module}").some_function()


def test_a_flag_that_nobody_defined_keeps_its_value() -> None:
    setattr(tf.flags.FLAGS, "words_of_nobody", 7)  # noqa: B010 (the attribute is not declared)
    assert tf.flags.FLAGS.words_of_nobody == 7
    assert "words_of_nobody" not in absl.flags.FLAGS
    with pytest.raises(AttributeError):
        tf.flags.FLAGS.words_of_somebody


# ---------------------------------------------------------------------- functions
def test_a_confusion_matrix_over_batches() -> None:
    labels, found = np.array([[0, 1], [2, 2]]), np.array([[0, 2], [2, 1]])
    total, update = metrics._streaming_confusion_matrix(labels, found, 3, weights=[[1.0, 2.0], [3.0, 4.0]])
    assert total in tf.local_variables()
    assert total.dtype.base_dtype == tf.float64
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        for _ in range(2):
            result = sess.run(update)
    assert result.tolist() == [[2, 0, 0], [0, 0, 4], [0, 8, 6]]


def test_a_linear_map_of_several_tensors() -> None:
    a, b = np.ones([2, 3], np.float32), np.full([2, 1], 2.0, np.float32)
    ones = tf.ones_initializer()
    map_ = rnn_cells._Linear([tf.constant(a), tf.constant(b)], 4, True, bias_initializer=ones, kernel_initializer=ones)
    assert [v.op.name for v in tf.trainable_variables()] == ["kernel", "bias"]
    assert run(map_([tf.constant(a), tf.constant(b)])).tolist() == [[6.0] * 4] * 2
    with tf.variable_scope("other"):
        assert run(rnn_cells._linear(tf.constant(a), 4, False, kernel_initializer=ones)).tolist() == [[3.0] * 4] * 2
    with pytest.raises(ValueError, match="a known number of columns"):
        rnn_cells._linear(tf.placeholder(tf.float32, [2, None]), 4, False)
    with pytest.raises(ValueError, match="must be specified"):
        rnn_cells._linear([], 4, False)


def test_zeros_of_a_size_that_a_step_knows() -> None:
    size = tf.placeholder_with_default(3, [])
    zeros, rows = rnn_cells._zero_state_tensors((size, tf.TensorShape([2, 4])), tf.constant(5), tf.float32)
    assert zeros.shape.as_list() == [5, None]
    assert rows.shape.as_list() == [5, 2, 4]
    assert run(zeros).shape == (5, 3)


def test_the_saver_of_a_graph() -> None:
    tf.get_variable("v", initializer=1.0)
    saver = savers._get_saver_or_default()
    assert savers._get_saver_or_default() is saver
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with pytest.raises(RuntimeError, match="2 savers"):
        savers._get_saver_or_default()


def test_lists_of_tensors() -> None:
    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    handle = tensor_lists.tensor_list_from_tensor(rows, [2])
    assert run(tensor_lists.tensor_list_stack(handle, tf.float32, element_shape=[None])).tolist() == [[1, 2], [3, 4]]
    assert run(tensor_lists.tensor_list_get_item(handle, 1, tf.float32)).tolist() == [3, 4]
    assert run(tensor_lists.tensor_list_gather(handle, [1, 0], tf.float32, [2])).tolist() == [[3, 4], [1, 2]]
    rest, last = tensor_lists.tensor_list_pop_back(handle, tf.float32)
    assert run([last, tf.raw_ops.TensorListLength(input_handle=rest)])[1] == 1
    empty = tensor_lists.empty_tensor_list(tf.constant([2]), tf.float32)
    reserved = tensor_lists.tensor_list_reserve(None, 3, tf.float32)
    lengths = [tf.raw_ops.TensorListLength(input_handle=one) for one in (empty, reserved)]
    assert run(lengths) == [0, 3]


# ---------------------------------------------------------------------- specs with bounds
def test_a_spec_with_bounds() -> None:
    spec = BoundedTensorSpec([2, 3], tf.int32, [0, 1, 2], 5, "action")
    assert spec.minimum.tolist() == [0, 1, 2]
    assert spec.maximum == 5
    assert spec.maximum.dtype == np.int32
    assert not spec.minimum.flags.writeable
    assert isinstance(spec, tf.TensorSpec)
    assert spec.is_compatible_with(tf.zeros([2, 3], tf.int32))
    assert "minimum=array([0, 1, 2]" in repr(spec)
    same = BoundedTensorSpec([2, 3], tf.int32, [0, 1, 2], [5], "action")
    assert hash(spec) == hash(same)
    assert spec == BoundedTensorSpec.from_spec(spec)
    assert spec != BoundedTensorSpec([2, 3], tf.int32, 0, 5, "action")
    assert spec != tf.TensorSpec([2, 3], tf.int32, "action")
    free = BoundedTensorSpec.from_spec(tf.TensorSpec([2], tf.float32))
    assert free.maximum == np.finfo(np.float32).max
    assert type(spec.most_specific_compatible_type(tf.TensorSpec([2, 3], tf.int32))) is tf.TensorSpec
    wider = spec.most_specific_compatible_type(BoundedTensorSpec([1, 3], tf.int32, [0, 1, 2], 5))
    assert isinstance(wider, BoundedTensorSpec)
    assert wider.shape.as_list() == [None, 3]
    BoundedTensorSpec(None, tf.float32, [1.0, 2.0], 3.0)


def test_bounds_fit_the_shape() -> None:
    with pytest.raises(ValueError, match="minimum must be not None"):
        BoundedTensorSpec([2], tf.float32, None, 1.0)  # type: ignore[arg-type]
    for wrong in ([0.0] * 3, [[[0.0]]]):
        with pytest.raises(ValueError, match="maximum is not compatible with shape"):
            BoundedTensorSpec([2, 2], tf.float32, 0.0, wrong)
    assert tf.contrib.framework.BoundedTensorSpec is BoundedTensorSpec
