"""Private modules by which libraries ask for operation types, change operations, fold graphs and mark what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import graph_optimizer, operation_types
from anabranch.core import trackables as tracking
from anabranch.feature_column.columns import DenseColumn
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.graph_pb2 import AttrValue, GraphDef, TensorShapeProto
from anabranch.tools import tensorflow_alias
from anabranch.tools.old_names import restore
from anabranch.tools.tensorflow_alias import absence_of


# ------------------------------------------------------------------ attributes of operations, as messages
def test_tensors_and_shapes_are_messages_for_programs() -> None:
    constant, fed, open_ = tf.constant([[1.0, 2.0]]), tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.int32)
    assert tf.make_ndarray(constant.op.get_attr("value")).tolist() == [[1.0, 2.0]]
    shape = fed.op.get_attr("shape")
    assert isinstance(shape, TensorShapeProto)
    assert [dim.size for dim in shape.dim] == [-1, 3]
    assert open_.op.get_attr("shape").unknown_rank
    assert (constant.op.get_attr("dtype"), fed.op.node_def.attr["shape"].shape) == (tf.float32, shape)
    queue = tf.FIFOQueue(3, [tf.float32, tf.int32], [[2], []]).queue_ref.op
    assert [[dim.size for dim in item.dim] for item in queue.get_attr("shapes")] == [[2], []]
    assert queue.get_attr("component_types") == [tf.float32, tf.int32]
    chosen = tf.cond(tf.placeholder(tf.bool, []), lambda: fed, lambda: -fed)
    calls = [op for op in tf.get_default_graph().get_operations() if op.type == "StatelessIf"]
    assert calls[-1].get_attr("then_branch").name
    assert chosen.dtype == tf.float32


def test_attributes_and_devices_are_set_to_messages_and_names() -> None:
    operation = tf.constant(1.0, name="one").op
    message = AttrValue()
    message.list.s.extend([b"loc:@one", b"other"])
    operation._set_attr("_class", message)
    assert operation.get_attr("_class") == [b"loc:@one", b"other"]
    assert operation.node_def.attr["_class"] == message
    operation._set_attr("_number", AttrValue(i=3))
    assert operation.get_attr("_number") == 3
    with pytest.raises(ValueError, match="Expected an attribute of kind type, got one of kind int"):
        operation._set_attr("dtype", AttrValue(i=3))
    for device, expected in (("/cpu:0", "/device:CPU:0"), (tf.DeviceSpec(job="ps"), "/job:ps"), (None, ""), ("", "")):
        operation._set_device(device)
        assert operation.device == expected


def test_operation_types_are_found_by_name() -> None:
    found = operation_types.get("VarHandleOp")
    assert found is not None
    assert (found.is_stateful, list(found.input_arg), found.output_arg[0].name) == (True, [], "resource")
    assert operation_types.get("NoSuchOperation") is None
    operation_types.sync()
    registered = operation_types.get_registered_ops()
    assert registered["MatMul"] == operation_types.get("MatMul")
    assert len(registered) > 1000


# ------------------------------------------------------------------ folding
def definition_and_kept(kept: list[str], optimizers: list[str]) -> GraphDef:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        size = tf.multiply(tf.constant(2), tf.constant(1), name="size")
        y = tf.reshape(x, tf.stack([-1, size], name="shape"), name="reshaped")
        tf.identity(y * tf.cast(size, tf.float32, name="columns"), name="y")
        tf.identity(x, name="unused")
        meta = tf.train.export_meta_graph(graph_def=graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.extend(kept)
    config = ConfigProto()
    config.graph_options.rewrite_options.optimizers.extend(optimizers)
    return graph_optimizer.OptimizeGraph(config, meta)


def test_what_is_known_is_folded_and_what_is_not_needed_left_out() -> None:
    folded = definition_and_kept(["x:0", "y:0"], ["constfold", "function"])
    types = {node.name: node.op for node in folded.node}
    assert (types["shape"], types["columns"], types["y"], types["x"]) == ("Const", "Const", "Identity", "Placeholder")
    assert not {"unused", "size"} & types.keys()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(folded, name="")
        with tf.Session(graph=graph) as session:
            assert session.run("y:0", {"x:0": [[1.0, 2.0, 3.0, 4.0]]}).tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_folding_is_asked_for_and_keeps_the_named() -> None:
    types = {node.name: node.op for node in definition_and_kept(["y:0"], ["function"]).node}
    assert types["shape"] == "Pack"
    types = {node.name: node.op for node in definition_and_kept(["y:0", "columns"], []).node}
    assert (types["shape"], types["columns"]) == ("Const", "Cast")
    assert {"unused", "y"} <= {node.name for node in definition_and_kept([], []).node}


# ------------------------------------------------------------------ columns and objects of a library's own
class Length(DenseColumn):
    """A column as TensorFlow's private classes have it: all of its methods begin with an underscore."""

    @property
    def name(self) -> str:
        return "length"

    @property
    def _parse_example_spec(self) -> dict[str, Any]:
        return {"words": tf.FixedLenFeature([1], tf.string)}

    def _transform_feature(self, inputs: Any) -> tf.Tensor:
        return tf.strings.length(inputs.get("words"))

    @property
    def _variable_shape(self) -> tf.TensorShape:
        return tf.TensorShape([2])

    def _get_dense_tensor(
        self, inputs: Any, weight_collections: Any = None, trainable: bool | None = None
    ) -> tf.Tensor:
        factor = tf.get_variable("factor", initializer=[1.0, 2.0], trainable=bool(trainable))
        result: tf.Tensor = tf.cast(inputs.get(self), tf.float32) * factor
        return result


def test_a_column_of_a_librarys_own() -> None:
    number = tf.feature_column.numeric_column("n")
    features = {"words": tf.constant(["ab", "abcd"]), "n": tf.constant([[5.0], [6.0]])}
    layer = tf.feature_column.input_layer(features, [number, Length()])
    assert set(tf.feature_column.make_parse_example_spec([number, Length()])) == {"n", "words"}
    predictions = tf.feature_column.linear_model(features, [Length()])
    assert next(v.name for v in tf.trainable_variables()) == "input_layer/length/factor:0"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(layer).tolist() == [[2.0, 4.0, 5.0], [4.0, 8.0, 6.0]]
        assert session.run(predictions).shape == (2, 1)


def test_what_is_no_dependency_is_its_value(tmp_path: Path) -> None:
    holder = tracking.AutoTrackable()
    with tracking.no_automatic_dependency_tracking_scope(holder):
        holder.table = tracking.NoDependency({"a": 1})  # type: ignore[attr-defined]
    holder.weight = tf.Variable(2.0)  # type: ignore[attr-defined]
    assert holder.table == {"a": 1}  # type: ignore[attr-defined]
    assert isinstance(holder, tracking.Trackable)

    class Setting(tracking.AutoTrackable):
        @tracking.no_automatic_dependency_tracking
        def set(self) -> None:
            self.aside = tf.Variable(3.0)

    holder.setting = Setting()  # type: ignore[attr-defined]
    holder.setting.set()  # type: ignore[attr-defined]
    checkpoint = tf.train.Checkpoint(holder=holder)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = checkpoint.save(str(tmp_path / "model"), session=session)
    names = " ".join(name for name, _ in tf.train.list_variables(path))
    assert "holder/weight" in names
    assert "aside" not in names


# ------------------------------------------------------------------ NumPy
def test_numpys_older_names() -> None:
    undo = restore(quiet=True)
    try:
        old: Any = np
        assert old.cast[np.int32]([1.7, 2.2]).tolist() == [1, 2]
        assert old.cast["float64"](3).dtype == np.float64
        assert old.msort([[3, 1], [2, 4]]).tolist() == [[2, 1], [3, 4]]
        assert (old.NINF, old.PINF, np.signbit(old.NZERO)) == (-np.inf, np.inf, True)
        assert old.find_common_type([np.float32], [np.int64, np.float64]) == np.float32
        assert old.find_common_type([np.int16], [np.complex128]) == np.complex128
        assert old.find_common_type([], [np.int64, np.float32]) == np.float64
        assert old.issubclass_(np.int32, np.integer)
        assert not old.issubclass_(3, int)
        assert np.float16 in old.sctypes["float"]
        assert old.obj2sctype("f4") is np.float32
        assert (old.rank([[1]]), old.bool8, old.cfloat) == (2, np.bool_, np.complex128)
    finally:
        undo()


# ------------------------------------------------------------------ attention
def test_attention_has_what_libraries_read_of_it() -> None:
    memory = tf.placeholder(tf.float32, [2, 5, 4])
    mechanisms = [tf.contrib.seq2seq.LuongAttention(3, memory), tf.contrib.seq2seq.BahdanauAttention(3, memory)]
    for mechanism in mechanisms:
        assert mechanism._keys is mechanism.keys
        assert mechanism._values is mechanism.values
        assert mechanism._keys.shape.as_list() == [2, 5, 3]
    wrapper = tf.contrib.seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(3), mechanisms)
    assert list(wrapper._attention_mechanisms) == mechanisms
    assert wrapper._item_or_tuple([1, 2]) == (1, 2)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tensorflow.python.ops.rnn", "_transpose_batch_time"),
        ("tensorflow.contrib.seq2seq.python.ops.decoder", "_transpose_batch_time"),
        ("tensorflow.python.ops.losses.losses_impl", "Reduction"),
        ("tensorflow.python.grappler.tf_optimizer", "OptimizeGraph"),
        ("tensorflow.python.framework.op_def_registry", "get_registered_ops"),
        ("tensorflow.python.feature_column.feature_column", "_DenseColumn"),
        ("tensorflow.python.feature_column.feature_column_v2", "EmbeddingColumn"),
        ("tensorflow.python.training.tracking.base", "Trackable"),
        ("tensorflow.python.training.tracking.data_structures", "NoDependency"),
        ("tensorflow.python.training.tracking.tracking", "AutoTrackable"),
    ],
)
def test_libraries_find_them(module: str, name: str) -> None:
    assert absence_of(f"{module}.{name}") is None


def test_batch_and_time_change_places() -> None:
    swap = tensorflow_alias.counterpart("tensorflow.python.ops.rnn")
    assert swap is not None
    sources, renamed = swap
    found = next(value for source in sources if (value := getattr(source, renamed["_transpose_batch_time"], None)))
    assert found(tf.zeros([2, 3, 4])).shape.as_list() == [3, 2, 4]
    assert found(tf.zeros([2])).shape.as_list() == [2]
