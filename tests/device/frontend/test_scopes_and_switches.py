"""Layers that own their variables, what asks for XLA, functions that run their Python code, what keeps float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


def test_layers_that_own_their_variables() -> None:
    x = tf.ones([2, 3])
    with tf.layers.experimental.keras_style_scope():
        layers = [tf.layers.Dense(2, name="same", kernel_regularizer=tf.reduce_sum) for _ in range(2)]
        norm = tf.layers.BatchNormalization()
    with tf.variable_scope("outer"):
        outputs = [layers[0](x), layers[1](x), layers[0](x)]
        norm(x, training=True)
    assert [v.op.name for layer in layers for v in layer.variables] == [
        "outer/same/kernel", "outer/same/bias", "outer/same_1/kernel", "outer/same_1/bias"
    ]  # fmt: skip
    assert len(tf.trainable_variables()) == 6
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 2
    assert len(norm.updates) == 2
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second, again = session.run(outputs)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    shared = tf.layers.Dense(2, name="shared")
    assert shared(x).shape.as_list() == [2, 2]
    assert shared.variables[0].op.name == "shared/kernel", "outside of the scope layers are as they were"


def test_layers_that_own_their_variables_take_no_scope() -> None:
    with tf.layers.experimental.keras_style_scope():
        with pytest.raises(ValueError, match="neither scope nor reuse"):
            tf.layers.Dense(2, _reuse=True)
        layer = tf.layers.Dense(2)
    with pytest.raises(ValueError, match="takes no scope"):
        layer(tf.ones([1, 1]), scope="s")


def test_what_is_compiled_as_one() -> None:
    seen: list[Any] = []
    variable = tf.Variable(1.0)

    def step(x: Any, y: Any) -> Any:
        seen.append(x)
        return {"sum": x + y}

    def change(x: Any) -> Any:
        return x * 2, variable.assign(5.0).op

    compiled = tf.xla.experimental.compile
    results = compiled(step, [tf.constant(1.0), 2.0])
    doubled = compiled(change, [3.0])
    with tf.Session() as session:
        session.run(variable.initializer)
        assert session.run(results) == {"sum": 3.0}
        assert session.run(compiled(lambda: tf.constant(7))) == (7,)
        assert session.run(compiled(lambda: None)) is None
        assert session.run(doubled) == (6.0,)
        assert session.run(variable) == 5.0
    with pytest.raises(TypeError, match="must be a list"):
        compiled(step, tf.constant(1.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="followed by"):
        compiled(lambda: (tf.no_op(), tf.constant(1)))


def test_operations_say_that_they_are_to_be_compiled() -> None:
    with tf.xla.experimental.jit_scope():
        inside = tf.constant(1.0)
        with tf.xla.experimental.jit_scope(compile_ops=False):
            not_inside = tf.constant(1.0)
    assert inside.op.get_attr("_XlaCompile") is True
    assert not_inside.op.get_attr("_XlaCompile") is False
    assert inside.op.get_attr("_XlaScope") != not_inside.op.get_attr("_XlaScope")
    assert "_XlaCompile" not in tf.constant(1.0).op.attrs


def test_functions_that_run_their_python_code() -> None:
    graphs: list[Any] = []
    function = tf.function(lambda x: graphs.append(x.graph) or x * 2)
    tf.config.experimental_run_functions_eagerly(True)
    try:
        assert function(tf.constant(3.0)).op.type == "Mul"
        function(tf.constant(4.0))
    finally:
        tf.config.experimental_run_functions_eagerly(False)
    function(tf.constant(3.0))
    assert [graph is tf.get_default_graph() for graph in graphs] == [True, True, False]


@pytest.mark.parametrize(("select", "dtype"), [(True, tf.bfloat16), (False, tf.float32)])
def test_what_is_kept_in_float32(select: bool, dtype: tf.DType) -> None:
    a = np.array([[1.0, 2.0**-12]], np.float32)
    with tf.train.experimental.auto_mixed_precision_scope(select, scope_name="s"):
        product = tf.matmul(tf.placeholder_with_default(a, [1, 2]), np.ones((2, 1), np.float32))
    opt = tf.train.GradientDescentOptimizer(0.1)
    tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, 1.0, tf.bfloat16)
    try:
        with tf.Session() as session:
            value = session.run(product).item()
    finally:
        tf.train.experimental.disable_mixed_precision_graph_rewrite()
    assert value == (1.0 if dtype is tf.bfloat16 else 1.0 + 2.0**-12)


def test_switches_that_change_nothing() -> None:
    with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
        assert tf.experimental.output_all_intermediates(True) is None  # type: ignore[func-returns-value]
    assert tf.autograph.experimental.set_loop_options(parallel_iterations=1) is None  # type: ignore[func-returns-value]
    assert tf.config.experimental_list_devices()[0].endswith("/device:CPU:0")


def test_a_cluster_in_this_process() -> None:
    workers, servers = tf.test.create_local_cluster(2, 1)
    try:
        with tf.device("/job:ps/task:0"):
            variable = tf.Variable(6.0)
        with tf.Session(workers[1].target) as session:
            session.run(variable.initializer)
            assert session.run(variable * 7.0) == 42.0
    finally:
        for server in (*workers, *servers):
            server.stop()
    with pytest.raises(ValueError, match="needs tasks"):
        tf.test.create_local_cluster(0, 0)
