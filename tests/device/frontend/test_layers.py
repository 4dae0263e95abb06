"""Layers: names and sharing, shapes, values against NumPy, normalization, losses and updates."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.autodiff.gradients import gradients
from anabranch.contrib.regularizers import l2_regularizer
from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.layers import convolutional, core, normalization, pooling, transposed, utils
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.nn import conv as nn_conv
from anabranch.frontend.variables import functions
from anabranch.frontend.variables.initializers import Constant, Ones
from anabranch.frontend.variables.scope import variable_scope
from anabranch.frontend.variables.store import AUTO_REUSE
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session

rng = np.random.default_rng(0)


def placeholder(*shape: int | None, dtype: str = "float32") -> Any:
    return raw.Placeholder(dtype=dtype, shape=TensorShape(shape))


def names() -> list[str]:
    return [v.name for v in functions.global_variables()]


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run(functions.global_variables_initializer())
        return session.run(fetches, feeds)


def data(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------------- names and sharing
def test_names_of_layers_and_nodes() -> None:
    x = placeholder(None, 4)
    y = core.dense(x, 3, activation=raw.Relu)
    assert y.name == "dense/Relu:0"
    core.dense(x, 3)
    core.dense(x, 3, name="named")
    with variable_scope("scope"):
        core.dense(x, 3, use_bias=False)
    assert names() == [
        *("dense/kernel:0", "dense/bias:0", "dense_1/kernel:0", "dense_1/bias:0"),
        *("named/kernel:0", "named/bias:0", "scope/dense/kernel:0"),
    ]
    nodes = {op.name for op in get_default_graph().get_operations()}
    assert {"dense/MatMul", "dense/BiasAdd", "dense/MatMul/kernel/read", "scope/dense/MatMul"} <= nodes


def test_a_layer_shares_its_variables() -> None:
    x = placeholder(None, 4)
    layer = core.Dense(4)
    with pytest.raises(ValueError, match="call it first"):
        _ = layer.scope_name
    layer(layer(x))
    assert names() == ["dense/kernel:0", "dense/bias:0"]
    assert layer.scope_name == "dense"
    assert layer.trainable_weights == layer.weights == functions.global_variables()
    assert layer.count_params() == 20
    assert get_default_graph().get_operation_by_name("dense/MatMul_1") is not None


def test_layers_share_by_name() -> None:
    x = placeholder(None, 4)
    first = core.dense(x, 4, name="d")
    second = core.dense(first, 4, name="d", reuse=True)
    assert second.name == "d_1/BiasAdd:0"
    with pytest.raises(ValueError, match="d/kernel already exists"):
        core.dense(x, 4, name="d")
    for _ in range(2):
        with variable_scope("s", reuse=AUTO_REUSE):
            core.dense(x, 4)
    assert names() == ["d/kernel:0", "d/bias:0", "s/dense/kernel:0", "s/dense/bias:0"]


def test_layers_in_a_branch_have_variables_outside() -> None:
    x, choose = placeholder(2, 3), placeholder(dtype="bool")
    result = cond(choose, lambda: core.dense(x, 1, kernel_initializer=Ones()), lambda: raw.Sum(x, [1], keep_dims=True))
    assert names() == ["dense/kernel:0", "dense/bias:0"]
    value = data(2, 3)
    for branch in (True, False):
        np.testing.assert_allclose(
            run(result, {x: value, choose: branch}), value.sum(1, keepdims=True), rtol=1e-5, atol=1e-6
        )


def test_own_layers() -> None:
    class Scale(Layer):
        def build(self, input_shape: Any) -> None:
            self.factor = self.add_weight("factor", [], initializer=Constant(3.0))
            self.add_variable("step", [], dtypes.int32, trainable=False)
            super().build(input_shape)

        def call(self, inputs: Any, twice: bool = False) -> Any:
            result = raw.Mul(inputs, self.factor)
            return raw.Mul(result, 2.0) if twice else result

    layer = Scale(name="scale")
    result = layer.apply(np.array([1.0, 2.0], np.float32), twice=True)
    assert run(result).tolist() == [6, 12]
    assert [v.name for v in layer.trainable_variables] == ["scale/factor:0"]
    assert [v.name for v in layer.non_trainable_variables] == ["scale/step:0"]
    assert layer.output is result
    assert layer.input_shape == (2,)
    again = copy.deepcopy(layer)
    assert again.factor is layer.factor
    assert again._checkpoint_dependencies == layer._checkpoint_dependencies
    assert again.graph is layer.graph


def test_layers_that_are_not_trained() -> None:
    layer = core.Dense(2, trainable=False)
    layer(placeholder(None, 3))
    assert functions.trainable_variables() == []
    assert len(layer.non_trainable_weights) == 2


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="min_ndim=2, found ndim=1"):
        core.dense(placeholder(3), 2)
    with pytest.raises(ValueError, match="last dimension"):
        core.dense(placeholder(2, None), 2)
    with pytest.raises(TypeError, match="int32"):
        core.dense(placeholder(2, 3, dtype="int32"), 2)
    layer = core.Dense(2)
    layer(placeholder(None, 3))
    with pytest.raises(ValueError, match="axis -1 .* value 3 but received 4"):
        layer(placeholder(None, 4))
    with Graph().as_default():
        other = placeholder(None, 3)
    with pytest.raises(ValueError, match="another graph"):
        layer(other)
    with pytest.raises(TypeError, match="no argument 'colour'"):
        core.Dense(2, colour="red")
    with pytest.raises(ValueError, match="ndim=4, found ndim=3"):
        convolutional.conv2d(placeholder(1, 2, 3), 4, 1)
    with pytest.raises(ValueError, match="channel dimension"):
        convolutional.conv2d(placeholder(1, 4, 4, None), 4, 1)
    assert "min_ndim=2" in repr(InputSpec(min_ndim=2))


# ---------------------------------------------------------------------- dense, dropout, flatten
def test_dense_values() -> None:
    value = data(2, 3, 4)
    x = placeholder(None, None, 4)
    layer = core.Dense(5, activation="relu", bias_initializer="ones")
    y = layer(x)
    assert y.shape.as_list() == [None, None, 5]
    assert layer.compute_output_shape([7, 4]).as_list() == [7, 5]
    found, kernel = run([y, layer.kernel], {x: value})
    np.testing.assert_allclose(found, np.maximum(value @ kernel + 1, 0), rtol=1e-5, atol=1e-6)


def test_dropout() -> None:
    x = placeholder(100, 100)
    training = placeholder(dtype="bool")
    dropped = core.dropout(x, 0.25, training=training, seed=1)
    rows = core.dropout(x, 0.5, noise_shape=[None, 1], training=True)
    ones = np.ones((100, 100), np.float32)
    assert run(core.dropout(x), {x: ones}).mean() == 1
    assert run(dropped, {x: ones, training: False}).mean() == 1
    found = run(dropped, {x: ones, training: True})
    assert set(np.unique(found).tolist()) == {0.0, float(np.float32(1) / np.float32(0.75))}
    assert abs((found == 0).mean() - 0.25) < 0.03
    found = run(rows, {x: ones})
    np.testing.assert_array_equal(found.min(1), found.max(1))


@pytest.mark.parametrize(
    ("shape", "known", "expected"),
    [((2, 3, 4), (None, 3, 4), [None, 12]), ((2, 3, 4), (2, None, 4), [2, None]), ((2,), (None,), [None, 1])],
)
def test_flatten(shape: Any, known: Any, expected: Any) -> None:
    x, value = placeholder(*known), data(*shape)
    y = core.flatten(x)
    assert y.shape.as_list() == expected
    np.testing.assert_array_equal(run(y, {x: value}), value.reshape(2, -1))


def test_flatten_without_any_known_size() -> None:
    x, value = placeholder(None, None, 4), data(2, 3, 4)
    np.testing.assert_array_equal(run(core.flatten(x), {x: value}), value.reshape(2, 12))


# ---------------------------------------------------------------------- convolutions
def windows(value: Any, size: int, stride: int) -> Any:
    """All windows of an image [h, w, c], without padding: [h', w', size, size, c]."""
    view = np.lib.stride_tricks.sliding_window_view(value, (size, size), axis=(0, 1))
    return np.moveaxis(view[::stride, ::stride], 2, -1)


@pytest.mark.parametrize("stride", [1, 2])
def test_conv2d_values(stride: int) -> None:
    value = data(1, 7, 6, 2)
    x = placeholder(None, 7, 6, 2)
    layer = convolutional.Conv2D(3, 3, strides=stride)
    y = layer(x)
    assert y.name == "conv2d/BiasAdd:0"
    assert y.shape.as_list() == layer.compute_output_shape(x.shape).as_list()
    found, kernel = run([y, layer.kernel], {x: value})
    assert kernel.shape == (3, 3, 2, 3)
    expected = np.einsum("hwijc,ijco->hwo", windows(value[0], 3, stride), kernel)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_a_one_dimensional_convolution_is_one_of_two() -> None:
    value = data(2, 9, 3)
    x = placeholder(2, 9, 3)
    line = convolutional.Conv1D(4, 3, padding="same", dilation_rate=2)
    y = line(x)
    flat = raw.Conv2D(raw.ExpandDims(x, 1), raw.ExpandDims(line.kernel, 0), [1] * 4, "SAME", dilations=[1, 1, 2, 1])
    found, expected = run([y, flat], {x: value})
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-5, atol=1e-6)
    causal = convolutional.conv1d(x, 4, 3, padding="causal")
    changed = value.copy()
    changed[:, 5:] = 0
    with Session() as session:
        session.run(functions.global_variables_initializer())
        before, after = (session.run(causal, {x: v}) for v in (value, changed))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert before.shape == (2, 9, 4)


def test_nodes_of_convolutions_have_the_names_of_tensorflow() -> None:
    lines, volumes = placeholder(2, 9, 9), placeholder(2, 4, 4, 4, 4)
    made = [
        convolutional.conv1d(lines, 4, 3, name="a"),
        convolutional.conv1d(lines, 4, 3, name="b", data_format="channels_first"),
        convolutional.separable_conv1d(lines, 4, 3, name="c", data_format="channels_first"),
        convolutional.separable_conv1d(lines, 4, 3, name="d", use_bias=False),
        convolutional.conv3d(volumes, 4, 3, name="e", data_format="channels_first"),
        nn_conv.conv1d(lines, np.ones([3, 9, 4], np.float32), 1, "SAME", name="f"),
    ]
    assert [tensor.op.name for tensor in made] == (
        ["a/BiasAdd", "b/add", "c/Squeeze", "d/Squeeze", "e/BiasAdd", "f/Squeeze"]
    )
    of_type = {op.name: op.type for op in made[0].graph.get_operations()}
    names = ("a/conv1d", "b/conv1d", "c/BiasAdd", "d/separable_conv2d", "e/Conv3D", "f")
    assert [of_type[name] for name in names] == ["Conv2D", "Conv2D", "BiasAdd", "Conv2D", "Conv3D", "Conv2D"]


def test_the_bias_of_separable_series_is_added() -> None:
    value = data(2, 9, 3)
    layer = convolutional.SeparableConv1D(4, 3, bias_initializer=Ones(), data_format="channels_first")
    without = convolutional.SeparableConv1D(4, 3, use_bias=False)
    first, last = placeholder(2, 3, 9), placeholder(2, 9, 3)
    found, plain = layer(first), without(last)
    with Session() as session:
        session.run(functions.global_variables_initializer())
        session.run(without.depthwise_kernel.assign(layer.depthwise_kernel))
        session.run(without.pointwise_kernel.assign(layer.pointwise_kernel))
        biased, unbiased = session.run([found, plain], {first: value.transpose(0, 2, 1), last: value})
    np.testing.assert_allclose(biased, unbiased.transpose(0, 2, 1) + 1, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [1, 2])
def test_shapes_of_convolutions(padding: str, stride: int) -> None:
    image, volume, line = data(1, 6, 5, 2), data(1, 4, 5, 6, 2), data(1, 8, 2)
    made: list[tuple[Any, Any]] = [
        (transposed.Conv2DTranspose(3, 3, stride, padding), image),
        (transposed.Conv3DTranspose(3, 2, stride, padding), volume),
        (convolutional.Conv3D(3, 2, stride, padding), volume),
        (convolutional.SeparableConv2D(3, 3, stride, padding, depth_multiplier=2), image),
        (convolutional.SeparableConv1D(3, 3, stride, padding), line),
        (pooling.MaxPooling1D(2, stride, padding), line),
        (pooling.AveragePooling2D(2, stride, padding), image),
        (pooling.MaxPooling3D(2, stride, padding), volume),
    ]
    outputs = [layer(value) for layer, value in made]
    for (layer, value), output, found in zip(made, outputs, run(outputs), strict=True):
        assert output.shape.as_list() == list(found.shape)
        assert layer.compute_output_shape(value.shape).as_list() == list(found.shape)


def test_transposed_convolution_is_the_gradient() -> None:
    value = data(1, 4, 4, 2)
    x, big = placeholder(None, None, None, 2), placeholder(1, 9, 9, 3)
    layer = transposed.Conv2DTranspose(3, 3, strides=2, use_bias=False)
    y = layer(x)
    assert y.shape.as_list() == [None, None, None, 3]
    forward = raw.Conv2D(big, layer.kernel, [1, 2, 2, 1], "VALID")
    (expected,) = gradients(forward, big, grad_ys=[x])
    found = run([y, expected], {x: value, big: data(1, 9, 9, 3)})
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_separable_convolution_values() -> None:
    value = data(1, 5, 5, 2)
    layer = convolutional.SeparableConv2D(3, 3, depth_multiplier=2, use_bias=False)
    y = layer(value)
    assert names() == ["separable_conv2d/depthwise_kernel:0", "separable_conv2d/pointwise_kernel:0"]
    found, depthwise, pointwise = run([y, layer.depthwise_kernel, layer.pointwise_kernel])
    middle = np.einsum("hwijc,ijcm->hwcm", windows(value[0], 3, 1), depthwise).reshape(3, 3, 4)
    np.testing.assert_allclose(found[0], middle @ pointwise[0, 0], rtol=1e-4, atol=1e-5)


def test_pooling_values() -> None:
    value = data(1, 6, 6, 2)
    found = run([pooling.max_pooling2d(value, 2, 2), pooling.average_pooling2d(value, 2, 2)])
    cells = value.reshape(1, 3, 2, 3, 2, 2)
    np.testing.assert_array_equal(found[0], cells.max((2, 4)))
    np.testing.assert_allclose(found[1], cells.mean((2, 4)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: convolutional.Conv2D(1, (1, 2, 3)),
        lambda: convolutional.Conv2D(1, "big"),
        lambda: convolutional.Conv2D(1, 1, padding="causal"),
        lambda: convolutional.Conv2D(1, 1, data_format="NHWC"),
        lambda: convolutional.Conv2D(1, 3, strides=2, dilation_rate=2),
        lambda: core.Dense(1, activation="wild"),
        lambda: core.Dense(1, kernel_initializer="wild"),
        lambda: pooling.MaxPooling2D(2, 2, padding="full"),
        lambda: pooling.MaxPooling2D(2, None),
    ],
)
def test_wrong_arguments(make: Any) -> None:
    with pytest.raises(ValueError, match=r"argument|strides|unknown"):
        make()


# ---------------------------------------------------------------------- batch normalization
def normalized(value: Any, axes: tuple[int, ...]) -> Any:
    return (value - value.mean(axes, keepdims=True)) / np.sqrt(value.var(axes, keepdims=True) + 1e-3)


@pytest.mark.parametrize(
    ("shape", "options", "axes"),
    [
        ((8, 3), {}, (0,)),
        ((4, 3, 2, 2), {}, (0, 1, 2)),
        ((4, 3, 2, 2), {"fused": False}, (0, 1, 2)),
        ((4, 3, 5), {"axis": 1}, (0, 2)),
        ((4, 3, 5), {"axis": [1, 2]}, (0,)),
    ],
)
def test_batch_normalization(shape: Any, options: Any, axes: Any) -> None:
    value = data(*shape) * 3 + 1
    x, training = placeholder(*shape), placeholder(dtype="bool")
    layer = normalization.BatchNormalization(momentum=0.9, **options)
    y = layer(x, training=training)
    updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    kept = [d for i, d in enumerate(shape) if i not in axes]
    correction = 1.0
    if len(shape) == 4 and not options:
        count = np.prod([shape[a] for a in axes])
        correction = float(count / (count - 1))  # the fused operation reports the unbiased variance
    with Session() as session:
        session.run(functions.global_variables_initializer())
        found = session.run(y, {x: value, training: True})
        np.testing.assert_allclose(found, normalized(value, axes), rtol=1e-3, atol=1e-4)
        before = session.run([layer.moving_mean, layer.moving_variance])
        session.run(updates, {x: value, training: False})
        for old, new in zip(before, session.run([layer.moving_mean, layer.moving_variance]), strict=True):
            np.testing.assert_array_equal(old, new)
        session.run(updates, {x: value, training: True})
        mean, variance = session.run([layer.moving_mean, layer.moving_variance])
        np.testing.assert_allclose(mean.ravel(), 0.1 * value.mean(axes).ravel(), rtol=1e-3, atol=1e-5)
        expected = 0.9 + 0.1 * correction * value.var(axes)
        np.testing.assert_allclose(variance.ravel(), expected.ravel(), rtol=1e-3)
        found = session.run(y, {x: value, training: False})
        broadcast = [1 if i in axes else d for i, d in enumerate(shape)]
        expected = (value - mean.reshape(broadcast)) / np.sqrt(variance.reshape(broadcast) + 1e-3)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert [int(np.prod(v.shape.as_list())) for v in layer.trainable_weights] == [int(np.prod(kept))] * 2


def test_names_in_batch_normalization() -> None:
    normalization.batch_normalization(placeholder(4, 3), training=True)
    assert names() == [f"batch_normalization/{n}:0" for n in ("gamma", "beta", "moving_mean", "moving_variance")]
    updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS)
    assert [u.name for u in updates] == ["batch_normalization/AssignMovingAvg", "batch_normalization/AssignMovingAvg_1"]


def test_inference_has_no_updates() -> None:
    layer = normalization.BatchNormalization(center=False, scale=False)
    y = layer(data(4, 3))
    assert layer.updates == []
    assert layer.trainable_weights == []
    assert y.shape.as_list() == [4, 3]


def test_virtual_batches() -> None:
    value = data(8, 3) * 2
    y = normalization.batch_normalization(value, training=True, virtual_batch_size=4)
    groups = value.reshape(4, 2, 3)
    np.testing.assert_allclose(run(y), normalized(groups, (0,)).reshape(8, 3), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [[4, 3], [2, 2, 2, 3]])
def test_moving_statistics_are_not_partitioned(shape: list[int]) -> None:
    """Whatever the scope's partitioner does with the other variables."""
    x = np.arange(np.prod(shape)).reshape(shape)
    with tf.variable_scope("parts", partitioner=tf.fixed_size_partitioner(2)) as scope:
        y = tf.layers.batch_normalization(tf.constant(x, tf.float32), momentum=0.0, training=True)
        assert scope.partitioner is not None
        tf.get_variable("later", [2])
    names = [v.op.name.partition("/")[2] for v in tf.global_variables()]
    assert names == [
        *(f"batch_normalization/{name}/part_{i}" for name in ("gamma", "beta") for i in range(2)),
        "batch_normalization/moving_mean",
        "batch_normalization/moving_variance",
        "later/part_0",
        "later/part_1",
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([y, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)])
        mean = session.run(tf.global_variables()[4])
    np.testing.assert_allclose(mean, x.mean(tuple(range(x.ndim - 1))), rtol=1e-6)


def test_batch_renormalization() -> None:
    value = data(16, 3) * 2 + 1
    clipping = {"rmin": 0.5, "rmax": 2.0, "dmax": 1.0}
    layer = normalization.BatchNormalization(renorm=True, renorm_clipping=clipping, renorm_momentum=0.5)
    y = layer(value, training=True)
    deviation = np.sqrt(value.var(0) + 1e-3)
    r, d = np.clip(deviation, 0.5, 2), np.clip(value.mean(0), -1, 1)
    with Session() as session:
        session.run(functions.global_variables_initializer())
        np.testing.assert_allclose(session.run(y), normalized(value, (0,)) * r + d, rtol=1e-3, atol=1e-4)
        updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS)
        assert updates == layer.updates
        assert len(updates) == 2  # as TensorFlow's: those of the statistics that corrections follow come before them
        session.run(updates)
        mean, stddev = session.run([layer.renorm_mean, layer.renorm_stddev])
        np.testing.assert_allclose(mean, value.mean(0) / 2, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(stddev, (1 + deviation) / 2, rtol=1e-4)


@pytest.mark.parametrize("correction", [True, False])
def test_the_moving_variance_of_the_fused_operation_is_that_of_a_sample_or_of_the_batch(correction: bool) -> None:
    value = data(2, 2, 3, 4)
    layer = normalization.BatchNormalization(momentum=0.5, fused=True)
    layer._bessels_correction_test_only = correction
    layer(value, training=True)
    with Session() as session:
        session.run(functions.global_variables_initializer())
        session.run(layer.updates)
        found = session.run(layer.moving_variance)
    np.testing.assert_allclose(found, (1 + value.var((0, 1, 2), ddof=int(correction))) / 2, rtol=1e-5)


def test_gradients_reach_gamma_and_beta_through_a_condition() -> None:
    x, training = placeholder(4, 2, 2, 3), placeholder(dtype="bool")
    layer = normalization.BatchNormalization()
    y = layer(x, training=training)
    found = gradients(raw.Sum(raw.Square(y), [0, 1, 2, 3]), [layer.gamma, layer.beta])
    value = data(4, 2, 2, 3)
    gamma, beta = run(found, {x: value, training: True})
    unit = normalized(value, (0, 1, 2))
    np.testing.assert_allclose(gamma, 2 * (unit**2).sum((0, 1, 2)), rtol=1e-3)
    np.testing.assert_allclose(beta, 2 * unit.sum((0, 1, 2)), atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"axis": 7},
        {"axis": [1, 1]},
        {"renorm_clipping": {"wild": 1}},
        {"virtual_batch_size": 2, "renorm": True},
    ],
)
def test_wrong_normalizations(options: Any) -> None:
    with pytest.raises(ValueError, match="batch_normalization"):
        normalization.batch_normalization(placeholder(4, 3), training=True, **options)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((4, 3), {}), ((4, 2, 2, 3), {"renorm": True}), ((2, 2, 3), {"axis": 1}), ((2, 2, 2, 2, 3), {})],
)
def test_fused_normalization_gives_way_where_it_cannot_be(shape: tuple[int, ...], options: Any) -> None:
    """Programs ask for it whatever the layers before give."""
    layer = normalization.BatchNormalization(fused=True, **options)
    value = data(*shape)
    y = layer(value, training=True)
    assert layer.fused is False
    with Session() as session:
        session.run(functions.global_variables_initializer())
        axes = tuple(a for a in range(len(shape)) if a != options.get("axis", len(shape) - 1))
        found = session.run(y)
    if not options.get("renorm"):
        np.testing.assert_allclose(found, normalized(value, axes), rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------- losses and conditions
def test_losses_are_named_after_weights() -> None:
    """Where a getter gives the variable another name, as tf.contrib.layers does, and once where it is shared."""

    def renamed(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        assert kwargs["regularizer"] is None  # the layer sees to it, as TensorFlow's do
        return getter(name.replace("kernel", "weights"), *args, **kwargs)

    x = placeholder(2, 3)
    with variable_scope("net", custom_getter=renamed):
        for reuse in (None, True):
            core.dense(x, 2, kernel_regularizer=l2_regularizer(0.5), name="fc", reuse=reuse)
    losses = get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
    assert [loss.op.name.rsplit("/", 1)[0] for loss in losses] == ["net/fc/kernel/Regularizer"]
    assert [v.name for v in functions.trainable_variables()] == ["net/fc/weights:0", "net/fc/bias:0"]


def test_regularization_losses() -> None:
    x = placeholder(2, 3)
    layer = core.Dense(
        2,
        kernel_initializer=Ones(),
        kernel_regularizer=l2_regularizer(0.5),
        activity_regularizer=lambda y: raw.Sum(y, [0, 1]),
    )
    layer(x)
    layer(x)
    losses = get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
    assert layer.losses == losses
    assert [loss.name for loss in losses] == [
        "dense/kernel/Regularizer/l2_regularizer:0",
        "dense/ActivityRegularizer/truediv:0",
        "dense/ActivityRegularizer_1/truediv:0",
    ]
    assert layer.get_losses_for(None) == losses[:1]
    assert layer.get_losses_for(x) == losses[1:]
    assert run(losses, {x: np.ones((2, 3), np.float32)}) == [1.5, 6.0, 6.0]


def test_smart_cond() -> None:
    assert utils.smart_cond(True, lambda: 1, lambda: 2) == 1
    assert utils.smart_cond(0, lambda: 1, lambda: 2) == 2
    assert utils.constant_value(np.bool_(True)) is True
    unknown = placeholder(dtype="bool")
    assert utils.constant_value(unknown) is None
    chosen = utils.smart_cond(unknown, lambda: raw.Fill([], 1.0), lambda: raw.Fill([], 2.0))
    assert run(chosen, {unknown: False}) == 2
    with pytest.raises(TypeError, match="pred"):
        utils.constant_value("yes")
