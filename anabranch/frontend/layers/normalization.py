"""Batch normalization, with batch renormalization and virtual batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, bfloat16, float16, float32
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import InitializerLike, PerAxis
from anabranch.frontend.arrays.constants import constant
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.layers.utils import constant_value, get_initializer, smart_cond
from anabranch.frontend.nn import normalization as nn_normalization
from anabranch.frontend.variables.initializers import ones_initializer, zeros_initializer
from anabranch.frontend.variables.partitioned import PartitionInfo
from anabranch.frontend.variables.store import Reuse
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_ZEROS = zeros_initializer()
_ONES = ones_initializer()


class BatchNormalization(Layer):
    """``gamma * (x - mean) / sqrt(variance + epsilon) + beta``, per channel.

    In training, mean and variance are the batch's, and moving averages of them are kept by operations that the layer
    adds to `GraphKeys.UPDATE_OPS`: run these with each training step. Otherwise the moving averages are used.

    Args:
        axis: the dimension, or dimensions, that have a mean and variance each.
        momentum: of the moving averages.
        epsilon: added to the variance.
        center, scale: whether there is a `beta`, a `gamma`.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer, and the regularizers
            and constraints: see `Dense`.
        renorm: batch renormalization: training uses the batch's statistics corrected towards moving ones.
        renorm_clipping: bounds "rmin", "rmax", "dmax" of the corrections.
        renorm_momentum: of the moving statistics that renormalization uses.
        fused: False: never use one operation for all; otherwise it is used where that is possible (four dimensions,
            one of the usual axes, no renormalization), as in TensorFlow 1.
        virtual_batch_size: normalize groups of so many examples of a batch.
        adjustment: function from the input's (dynamic) shape to a scale and an offset, applied in training.

    Raises:
        ValueError: arguments that exclude each other, or an axis that the input does not have.
    """

    def __init__(
        self,
        axis: PerAxis = -1,
        momentum: TensorLike = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike | None = _ZEROS,
        gamma_initializer: InitializerLike | None = _ONES,
        moving_mean_initializer: InitializerLike | None = _ZEROS,
        moving_variance_initializer: InitializerLike | None = _ONES,
        beta_regularizer: Callable[..., Any] | None = None,
        gamma_regularizer: Callable[..., Any] | None = None,
        beta_constraint: Callable[..., Any] | None = None,
        gamma_constraint: Callable[..., Any] | None = None,
        renorm: bool = False,
        renorm_clipping: dict[str, Any] | None = None,
        renorm_momentum: TensorLike = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Callable[..., Any] | None = None,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        self.axis: list[Any] = list(axis) if isinstance(axis, list | tuple) else [axis]
        self.momentum = momentum
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = get_initializer(beta_initializer)
        self.gamma_initializer = get_initializer(gamma_initializer)
        self.moving_mean_initializer = get_initializer(moving_mean_initializer)
        self.moving_variance_initializer = get_initializer(moving_variance_initializer)
        self.beta_regularizer = beta_regularizer
        self.gamma_regularizer = gamma_regularizer
        self.beta_constraint = beta_constraint
        self.gamma_constraint = gamma_constraint
        self.renorm = renorm
        self.renorm_clipping = renorm_clipping or {}
        self.renorm_momentum = renorm_momentum
        self.fused = fused
        self.virtual_batch_size = virtual_batch_size
        self.adjustment = adjustment
        #: Whether the fused operation's variance, of a sample, goes into the moving one as it is; tests that compare
        #: with the other way of computing, which has the variance of the batch itself, turn it off by this name.
        self._bessels_correction_test_only = True
        self.gamma: Any = None
        self.beta: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None
        self._check_options()

    def _check_options(self) -> None:
        unknown = set(self.renorm_clipping) - {"rmin", "rmax", "dmax"}
        if unknown:
            raise ValueError(f"renorm_clipping of layer {self.name} contains the unknown keys {sorted(unknown)}")
        if self.virtual_batch_size is not None and self.renorm:
            raise ValueError(f"layer {self.name}: virtual_batch_size and renorm exclude each other")
        if self.virtual_batch_size is not None and self.adjustment is not None:
            raise ValueError(f"layer {self.name}: virtual_batch_size and adjustment exclude each other")

    # ------------------------------------------------------------------ variables
    def build(self, input_shape: ShapeLike) -> None:
        shape = TensorShape(input_shape)
        if shape.ndims is None:
            raise ValueError(f"Input has undefined rank: {shape} (layer {self.name})")
        self.axis = [self._normal_axis(a, shape.ndims) for a in self.axis]
        if len(set(self.axis)) != len(self.axis):
            raise ValueError(f"Duplicate axis: {self.axis} (layer {self.name})")
        sizes = {a: shape.as_list()[a] for a in self.axis}
        unknown = [a for a, n in sizes.items() if n is None]
        if unknown:
            raise ValueError(
                f"Input has undefined `axis` dimension {unknown}. Input shape: {shape} (layer {self.name})"
            )
        if self.fused is not False:
            plain = not self.renorm and self.virtual_batch_size is None and self.adjustment is None
            # the operation keeps its statistics in float32
            plain = plain and self.dtype in ("float16", "bfloat16", "float32")
            self.fused = plain and shape.ndims == 4 and self.axis in ([1], [3])
        self.input_spec = InputSpec(ndim=shape.ndims, axes=sizes)
        self._add_variables(self._parameter_shape(shape.ndims, sizes))
        self.built = True

    def _normal_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid axis: {axis} for an input of rank {rank} (layer {self.name})")
        return axis % rank

    def _parameter_shape(self, rank: int, sizes: dict[int, int | None]) -> list[int | None]:
        """One dimension for a single axis; else that of the input, with ones."""
        if len(sizes) == 1:
            return list(sizes.values())
        shape = [sizes.get(i, 1) for i in range(rank)]
        if self.virtual_batch_size is not None:
            shape.insert(1, 1)
        return shape

    def _add_variables(self, shape: list[int | None]) -> None:
        dtype = as_dtype(self.dtype or float32)
        # statistics of half-precision inputs are kept in float32
        dtype = float32 if dtype in (float16, bfloat16) else dtype
        if self.scale:
            self.gamma = self.add_weight(
                "gamma", shape, dtype, self.gamma_initializer, self.gamma_regularizer, True, self.gamma_constraint
            )
        if self.center:
            self.beta = self.add_weight(
                "beta", shape, dtype, self.beta_initializer, self.beta_regularizer, True, self.beta_constraint
            )
        with self._unpartitioned():
            self._add_statistics(shape, dtype)

    @contextlib.contextmanager
    def _unpartitioned(self) -> Iterator[None]:
        """Variables in the block are whole, whatever the scope's partitioner: statistics are assigned as a whole."""
        if self._owns_variables:  # outside of any scope
            yield
            return
        self._set_scope(None)
        assert self._scope is not None
        partitioner = self._scope.partitioner
        self._scope.set_partitioner(None)
        try:
            yield
        finally:
            self._scope.set_partitioner(partitioner)

    def _add_statistics(self, shape: list[int | None], dtype: DType) -> None:
        self.moving_mean = self.add_weight("moving_mean", shape, dtype, self.moving_mean_initializer, trainable=False)
        self.moving_variance = self.add_weight(
            "moving_variance", shape, dtype, self.moving_variance_initializer, trainable=False
        )
        if self.renorm:
            variance_initializer = self.moving_variance_initializer

            def stddev_initializer(
                shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None
            ) -> Any:
                return raw.Sqrt(variance_initializer(shape, dtype=dtype))

            def add(name: str, initializer: InitializerLike | None) -> Any:
                return self.add_weight(name, shape, dtype, initializer, trainable=False)

            self.moving_stddev = add("moving_stddev", stddev_initializer)
            self.renorm_mean = add("renorm_mean", self.moving_mean_initializer)
            self.renorm_stddev = add("renorm_stddev", stddev_initializer)

    # ------------------------------------------------------------------ computing
    def call(self, inputs: Tensor, training: TensorLike = False) -> Tensor:
        if self.fused:
            return self._fused(inputs, training)
        if self.virtual_batch_size is None:
            return self._normalized(inputs, training)
        shape = raw.Shape(inputs)
        rest = raw.StridedSlice(shape, [1], [inputs.shape.ndims], [1])
        groups = raw.Reshape(inputs, raw.ConcatV2([[self.virtual_batch_size, -1], rest], axis=0))
        groups.set_shape([self.virtual_batch_size, None, *inputs.shape.as_list()[1:]])
        outputs: Tensor = raw.Reshape(self._normalized(groups, training), shape)
        outputs.set_shape(inputs.shape)
        return outputs

    def _fused(self, inputs: Tensor, training: TensorLike) -> Tensor:
        data_format = "NCHW" if self.axis == [1] else "NHWC"
        channels = self.moving_mean.shape.as_list()
        gamma = self.gamma if self.scale else constant(1.0, self.moving_mean.dtype, channels)
        beta = self.beta if self.center else constant(0.0, self.moving_mean.dtype, channels)

        def with_batch() -> Any:
            return nn_normalization.fused_batch_norm(inputs, gamma, beta, epsilon=self.epsilon, data_format=data_format)

        def with_averages() -> Any:
            return nn_normalization.fused_batch_norm(
                inputs,
                gamma,
                beta,
                mean=self.moving_mean,
                variance=self.moving_variance,
                epsilon=self.epsilon,
                data_format=data_format,
                is_training=False,
            )

        outputs: Tensor
        outputs, mean, variance = smart_cond(training, with_batch, with_averages)
        if not self._bessels_correction_test_only:
            count = raw.Cast(raw.FloorDiv(raw.Size(inputs), raw.Size(variance)), DstT=variance.dtype)
            variance = raw.Mul(variance, raw.RealDiv(raw.Sub(count, convert_to_tensor(1.0, variance.dtype)), count))
        self._update_averages(inputs, mean, variance, training)
        return outputs

    def _normalized(self, inputs: Tensor, training: TensorLike) -> Tensor:
        axes = self.axis if self.virtual_batch_size is None else [a + 1 for a in self.axis]
        reduced = [i for i in range(inputs.shape.ndims or 0) if i not in axes]
        if self.virtual_batch_size is not None:
            reduced.remove(1)  # each group has statistics of its own
        keep_dims = self.virtual_batch_size is not None or len(axes) > 1
        scale, offset = self._broadcast(self.gamma, axes, inputs), self._broadcast(self.beta, axes, inputs)
        scale, offset = self._adjusted(scale, offset, inputs, training)
        mean, variance = self.moving_mean, self.moving_variance
        if constant_value(training) is not False:
            batch_mean, batch_variance = nn_normalization.moments(inputs, reduced, keep_dims=keep_dims)
            new_mean = _choose(training, batch_mean, self._like(mean, batch_mean))
            new_variance = _choose(training, batch_variance, self._like(variance, batch_variance))
            corrected: list[Any] = []
            if self.renorm:
                r, d, corrected = self._renorm_corrections(new_mean, new_variance, training)
                r, d = self._broadcast(r, axes, inputs), self._broadcast(d, axes, inputs)
                scale, offset = _composed(r, d, scale, offset)
            with get_default_graph().control_dependencies(corrected):
                self._update_averages(inputs, self._over_groups(new_mean), self._over_groups(new_variance), training)
            mean, variance = new_mean, new_variance
        outputs = nn_normalization.batch_normalization(
            inputs,
            _cast(self._broadcast(mean, axes, inputs), inputs),
            _cast(self._broadcast(variance, axes, inputs), inputs),
            _cast(offset, inputs),
            _cast(scale, inputs),
            self.epsilon,
        )
        outputs.set_shape(inputs.shape)
        return outputs

    def _broadcast(self, value: TensorLike, axes: list[int], inputs: Tensor) -> Any:
        """Per-channel values in a shape that broadcasts to the inputs."""
        rank = inputs.shape.ndims or 0
        if value is None or len(value.shape) == rank or axes == [rank - 1]:
            return value
        return raw.Reshape(value, [-1 if i == axes[0] else 1 for i in range(rank)])

    def _like(self, average: TensorLike, batch: Tensor) -> Any:
        """A moving average in the shape of the batch's statistics (those of virtual batches have one per group)."""
        value = _cast(convert_to_tensor(average), batch)
        if self.virtual_batch_size is None:
            return value
        if value.shape.ndims != batch.shape.ndims:
            value = raw.Reshape(value, [-1 if i == self.axis[0] + 1 else 1 for i in range(batch.shape.ndims or 0)])
        return raw.BroadcastTo(value, raw.Shape(batch))

    def _over_groups(self, value: TensorLike) -> Any:
        """The mean of statistics over virtual batches, in the shape of the moving averages."""
        if self.virtual_batch_size is None:
            return value
        return raw.Reshape(raw.Mean(value, [1], keep_dims=True), self.moving_mean.shape.as_list())

    def _adjusted(self, scale: TensorLike, offset: TensorLike, inputs: Tensor, training: TensorLike) -> tuple[Any, Any]:
        if self.adjustment is None:
            return scale, offset
        adjust_scale, adjust_offset = self.adjustment(raw.Shape(inputs))
        adjust_scale = _choose(training, adjust_scale, raw.OnesLike(adjust_scale))
        adjust_offset = _choose(training, adjust_offset, raw.ZerosLike(adjust_offset))
        return _composed(adjust_scale, adjust_offset, scale, offset)

    def _renorm_corrections(
        self, mean: TensorLike, variance: TensorLike, training: TensorLike
    ) -> tuple[Any, Any, list[Any]]:
        """R and d of batch renormalization, and the updates of the statistics they follow from.

        The layer's own updates wait for these, which are not among them.
        """
        epsilon = convert_to_tensor(self.epsilon, variance.dtype)
        stddev = raw.Sqrt(raw.AddV2(variance, epsilon))
        renorm_stddev = raw.Maximum(self.renorm_stddev.value(), raw.Sqrt(epsilon))
        r = raw.RealDiv(stddev, renorm_stddev)
        d = raw.RealDiv(raw.Sub(mean, self.renorm_mean.value()), renorm_stddev)
        with get_default_graph().control_dependencies([r, d]):
            mean, stddev = raw.Identity(mean), raw.Identity(stddev)
        clip = self.renorm_clipping
        if clip.get("rmin") is not None:
            r = raw.Maximum(r, clip["rmin"])
        if clip.get("rmax") is not None:
            r = raw.Minimum(r, clip["rmax"])
        if clip.get("dmax") is not None:
            d = raw.Maximum(d, raw.Neg(convert_to_tensor(clip["dmax"], d.dtype)))
            d = raw.Minimum(d, clip["dmax"])
        r = _choose(training, r, raw.OnesLike(r))
        d = _choose(training, d, raw.ZerosLike(d))
        updates = [
            self._moving_average(variable, value, self.renorm_momentum, training)
            for variable, value in ((self.renorm_mean, mean), (self.renorm_stddev, stddev))
        ]
        return raw.StopGradient(r), raw.StopGradient(d), updates

    # ------------------------------------------------------------------ moving averages
    def _update_averages(self, inputs: Tensor, mean: TensorLike, variance: TensorLike, training: TensorLike) -> None:
        if constant_value(training) is False:
            return
        self.add_update(self._moving_average(self.moving_mean, mean, self.momentum, training), inputs)
        if self.renorm:
            self.add_update(self._moving_deviation(variance, training), inputs)
        else:
            self.add_update(self._moving_average(self.moving_variance, variance, self.momentum, training), inputs)

    def _moving_deviation(self, variance: TensorLike, training: TensorLike) -> Any:
        """Renormalization averages standard deviations; the moving variance follows from their average."""
        dtype = self.moving_stddev.dtype
        epsilon = convert_to_tensor(self.epsilon, dtype, name="epsilon")
        deviation = raw.Sqrt(raw.AddV2(_cast_to(variance, dtype), epsilon))
        update = self._moving_average(self.moving_stddev, deviation, self.momentum, training)
        with get_default_graph().control_dependencies([update]):
            average = raw.Square(self.moving_stddev.value())
            value = _choose(training, raw.Relu(raw.Sub(average, epsilon)), self.moving_variance.value())
            return self.moving_variance.assign(value, read_value=False)

    def _moving_average(self, variable: Variable, value: TensorLike, momentum: TensorLike, training: TensorLike) -> Any:
        """The operation that moves `variable` towards `value`; it moves nothing outside training."""
        with get_default_graph().name_scope("AssignMovingAvg") as scope:
            dtype = variable.dtype
            decay = _cast_to(convert_to_tensor(1.0 - momentum, name="decay"), dtype)
            decay = _choose(training, decay, convert_to_tensor(0.0, dtype, name="none"))
            difference = raw.Sub(variable.value(), _cast_to(value, dtype), name="sub")
            return variable.assign_sub(raw.Mul(difference, decay, name="mul"), name=scope, read_value=False)

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        return TensorShape(input_shape)


def _choose(training: TensorLike, when_training: TensorLike, otherwise: TensorLike) -> Any:
    known = constant_value(training)
    if known is not None:
        return when_training if known else otherwise
    return raw.SelectV2(raw.Reshape(training, []), when_training, otherwise)


def _cast_to(value: TensorLike, dtype: DTypeLike) -> Any:
    return value if value.dtype is dtype else raw.Cast(value, DstT=dtype)


def _cast(value: TensorLike, inputs: Tensor) -> Any:
    return None if value is None else _cast_to(value, inputs.dtype)


def _composed(
    then_scale: TensorLike, then_offset: TensorLike, scale: TensorLike, offset: TensorLike
) -> tuple[Any, Any]:
    """One scale and offset for two in sequence: ``(x * then_scale + then_offset) * scale + offset``."""
    if scale is not None:
        then_scale, then_offset = raw.Mul(then_scale, scale), raw.Mul(then_offset, scale)
    if offset is not None:
        then_offset = raw.AddV2(then_offset, offset)
    return then_scale, then_offset


def batch_normalization(
    inputs: TensorLike,
    axis: PerAxis = -1,
    momentum: TensorLike = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: InitializerLike | None = _ZEROS,
    gamma_initializer: InitializerLike | None = _ONES,
    moving_mean_initializer: InitializerLike | None = _ZEROS,
    moving_variance_initializer: InitializerLike | None = _ONES,
    beta_regularizer: Callable[..., Any] | None = None,
    gamma_regularizer: Callable[..., Any] | None = None,
    beta_constraint: Callable[..., Any] | None = None,
    gamma_constraint: Callable[..., Any] | None = None,
    training: TensorLike = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Reuse = None,
    renorm: bool = False,
    renorm_clipping: dict[str, Any] | None = None,
    renorm_momentum: TensorLike = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Callable[..., Any] | None = None,
) -> Tensor:
    """Calls a new `BatchNormalization` layer; `training` is a bool or a boolean scalar tensor.

    The moving averages are only kept if the operations in `GraphKeys.UPDATE_OPS` run with each training step.

    Args:
        inputs: a floating tensor of rank 2 or more.
        axis: the dimension of the features, or a list of them; the statistics are over the others.
        momentum: of the moving averages: how much of the old value stays.
        epsilon: added to the variance.
        center, scale: whether `beta` is added, and whether the result is multiplied by `gamma`.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: of the variables
            [features].
        beta_regularizer, gamma_regularizer: functions to a loss.
        beta_constraint, gamma_constraint: functions that optimizers apply to new values.
        training: True: normalize with the statistics of the batch; False: with the moving averages.
        trainable: whether the variables join `GraphKeys.TRAINABLE_VARIABLES`.
        name: of the layer, under which its variables stand.
        reuse: True: the variables of that name are there already.
        renorm, renorm_clipping, renorm_momentum: batch renormalization (Ioffe 2017), which corrects batches by the
            averages.
        fused: whether to use the fused operation; default: where it can be.
        virtual_batch_size: normalize over groups of so many examples.
        adjustment: function from the shape to (scale, bias), applied in training.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: an axis is out of range, or arguments contradict each other.

    Example:
        >>> y = tf.layers.batch_normalization(tf.constant([[1.0], [3.0]]), training=True)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(y).round(2)
        array([[-1.],
               [ 1.]], dtype=float32)
    """
    layer = BatchNormalization(
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        moving_mean_initializer,
        moving_variance_initializer,
        beta_regularizer,
        gamma_regularizer,
        beta_constraint,
        gamma_constraint,
        renorm,
        renorm_clipping,
        renorm_momentum,
        fused,
        trainable,
        virtual_batch_size,
        adjustment,
        name,
        _reuse=reuse,
        _scope=name,
    )
    result: Tensor = layer(inputs, training=training)
    return result
