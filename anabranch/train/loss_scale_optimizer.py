"""Mixed precision training: an optimizer that scales losses, and the switch of the graph rewrite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.trackables import TrackableReference
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.platform import logging
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.passes.half_precision import MAY_BE_HALF
from anabranch.runtime.process_settings import process_settings
from anabranch.train.delegating_optimizer import DelegatingOptimizer
from anabranch.train.loss_scale import DynamicLossScale, LossScaleLike, loss_scale_of
from anabranch.train.optimizer import GradientsAndVariables, Optimizer


class MixedPrecisionLossScaleOptimizer(DelegatingOptimizer):
    """An optimizer that multiplies the loss by a scale, and divides the gradients by it before another applies them.

    With a `DynamicLossScale`, gradients of a step that are not all finite are not applied, and the global step is not
    incremented.

    Args:
        opt: the optimizer that applies the gradients.
        loss_scale: a number of at least 1, "dynamic", or a `LossScale`.

    Raises:
        ValueError: `opt` is no `tf.train.Optimizer`, or `loss_scale` none of these.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> inner = tf.train.GradientDescentOptimizer(0.25)
        >>> step = tf.train.experimental.MixedPrecisionLossScaleOptimizer(inner, 128).minimize(tf.square(w))
        >>> sess.run(w.initializer)
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(self, opt: Optimizer, loss_scale: LossScaleLike) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(opt, opt._use_locking, opt.get_name())
        self._loss_scale = loss_scale_of(loss_scale)

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        """The optimizer inside and the scale, by TensorFlow's names."""
        return [TrackableReference("base_optimizer", self._opt), TrackableReference("loss_scale", self._loss_scale)]

    def compute_gradients(
        self,
        loss: TensorLike,
        var_list: Structure | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | None = None,
    ) -> GradientsAndVariables:
        """Gradients of the scaled loss, divided by the scale. Arguments, result and errors are those of `Optimizer`."""
        loss = convert_to_tensor(loss() if callable(loss) else loss)
        scale = self._loss_scale()
        pairs = self._opt.compute_gradients(
            raw.Mul(loss, _cast(scale, loss.dtype)),
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        reciprocal = raw.Reciprocal(scale)
        return [(_scaled(grad, reciprocal), var) for grad, var in pairs]

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds the updates, which a dynamic scale makes conditional: all gradients must be finite.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented when the gradients are applied.
            name: of the returned operation; default: the optimizer's name.

        Returns:
            The operation that updates the variables, the global step and the scale.

        Raises:
            TypeError, ValueError: as of `Optimizer.apply_gradients`.
        """
        if not isinstance(self._loss_scale, DynamicLossScale):
            return self._opt.apply_gradients(grads_and_vars, global_step, name)
        name = name or self.get_name()
        pairs = list(grads_and_vars)
        update, finite = self._loss_scale.update([grad for grad, _ in pairs])
        applied = cond(finite, lambda: self._opt.apply_gradients(pairs, global_step, f"{name}-wrapped"), no_op)
        return group(applied, update, name=name)

    def variables(self) -> list[Any]:
        """The variables of the optimizer that is wrapped, and those of the scale."""
        return [*self._opt.variables(), *self._loss_scale.variables()]


def enable_mixed_precision_graph_rewrite(
    opt: Optimizer, loss_scale: LossScaleLike = "dynamic", dtype: DTypeLike | None = None
) -> MixedPrecisionLossScaleOptimizer:
    """Lets sessions made from now on compute in half precision what profits and stands it, and scales the loss.

    Variables, sums that are known to suffer, and what is fetched stay float32; `anabranch explain` lists which
    operation runs in which type, and why. Gradients should come from the optimizer that is returned.

    Args:
        opt: an optimizer.
        loss_scale: a number, "dynamic", or a `LossScale`. Where `dtype` is bfloat16, whose range is float32's,
            "dynamic" scales nothing: gradients are applied as they come, also if they are not finite.
        dtype: `tf.float16` or `tf.bfloat16`; default: float16 in sessions with a GPU, bfloat16 on processors that
            compute with it (AVX512-BF16, AMX), and no rewrite on others. (TensorFlow has no such argument.)

    Returns:
        An optimizer that wraps `opt`.

    Raises:
        ValueError: `opt` is no optimizer, or scales losses already; `loss_scale` or `dtype` is none of those above.

    Example:
        >>> opt = tf.train.GradientDescentOptimizer(0.1)
        >>> opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, loss_scale=8, dtype=tf.bfloat16)
        >>> tf.config.optimizer.get_experimental_options()["auto_mixed_precision"]
        True
        >>> tf.train.experimental.disable_mixed_precision_graph_rewrite()
    """
    if isinstance(opt, MixedPrecisionLossScaleOptimizer):
        raise ValueError(
            '"opt" must not be a MixedPrecisionLossScaleOptimizer: enable_mixed_precision_graph_rewrite wraps it in one'
        )
    half = None if dtype is None else dtypes.as_dtype(dtype)
    if half not in (None, dtypes.float16, dtypes.bfloat16):
        raise ValueError(f"mixed precision is computed in float16 or bfloat16, not in {half.name}")
    unscaled = half is dtypes.bfloat16 and loss_scale == "dynamic"
    wrapped = MixedPrecisionLossScaleOptimizer(opt, 1 if unscaled else loss_scale)
    process_settings.set_half_precision(True, half)
    return wrapped


@contextlib.contextmanager
def auto_mixed_precision_scope(select: bool = True, scope_name: str | None = None) -> Iterator[None]:
    """Whether operations created inside may be computed in half precision, where sessions do that.

    (It is no name of TensorFlow 1.15 itself but of NVIDIA's edition.)

    Args:
        select: False keeps them in float32.
        scope_name: kept with the operations; it changes nothing.

    Example:
        >>> with tf.train.experimental.auto_mixed_precision_scope(False):
        ...     exact = tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
        >>> exact.op.get_attr("_AutoMixedPrecisionSegmentInclude")
        False
    """
    annotations: dict[str, Any] = {MAY_BE_HALF: bool(select)}
    if scope_name:
        annotations["_AutoMixedPrecisionSegmentName"] = scope_name.encode()
    with get_default_graph()._attr_scope(annotations):
        yield


def disable_mixed_precision_graph_rewrite() -> None:
    """Sessions made from now on compute in float32 again; those that exist, and wrapped optimizers, stay as they are.

    Example:
        >>> tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
        >>> tf.train.experimental.disable_mixed_precision_graph_rewrite()
        >>> tf.config.optimizer.get_experimental_options()
        {'auto_mixed_precision': False}
    """
    if not process_settings.get_experimental_options().get("auto_mixed_precision"):
        logging.warning("disable_mixed_precision_graph_rewrite() was called, and mixed precision is disabled already.")
    process_settings.set_half_precision(False)


def _cast(value: Tensor, dtype: dtypes.DType) -> Tensor:
    if value.dtype.base_dtype is dtype.base_dtype:
        return value
    cast: Tensor = raw.Cast(value, DstT=dtype.base_dtype)
    return cast


def _scaled(grad: Tensor | IndexedSlices | None, factor: Tensor) -> Tensor | IndexedSlices | None:
    if grad is None:
        return None
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(raw.Mul(grad.values, _cast(factor, grad.values.dtype)), grad.indices, grad.dense_shape)
    product: Tensor = raw.Mul(grad, _cast(factor, grad.dtype))
    return product
