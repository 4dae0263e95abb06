"""Simple layers that differ from the package's."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import calls, package, rebasing, shapes
from anabranch.tfkeras.layer import KerasLayer

_core = package.module("layers.core")
_activations = package.module("layers.advanced_activations")
_Flatten: Any = rebasing.rebased(_core.Flatten)
_Permute: Any = rebasing.rebased(_core.Permute)
_Dense: Any = rebasing.rebased(_core.Dense)
_Lambda: Any = rebasing.rebased(_core.Lambda)
_ReLU: Any = rebasing.rebased(_activations.ReLU)


@rebasing.serves(_core.Flatten)
class KerasFlatten(_Flatten):
    """Each example as a vector; vectors stay what they are, and numbers become vectors of one."""

    data_format: Any

    def __init__(self, data_format: str | None = None, **kwargs: PassedOn) -> None:
        super().__init__(data_format, **kwargs)
        self.data_format = self.data_format or "channels_last"
        self.input_spec = _core.InputSpec(min_ndim=1)

    def call(self, inputs: PassedOn) -> Any:
        rank = inputs.shape.ndims
        if self.data_format == "channels_first" and rank is not None and rank > 2:
            inputs = tf.transpose(inputs, [0, *range(2, rank), 1])
        outputs = tf.reshape(inputs, [inputs.shape.as_list()[0] or tf.shape(inputs)[0], -1])
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        batch, *rest = tf.TensorShape(input_shape).as_list()
        length: int | None = 1
        for one in rest:
            length = None if one is None or length is None else length * one
        answer = tf.TensorShape([batch, length])
        return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)


@rebasing.serves(_core.Permute)
class Permute(_Permute):
    """Examples with their dimensions in another order."""

    def __init__(self, dims: PassedOn, **kwargs: PassedOn) -> None:
        dims = tuple(dims)
        if sorted(dims) != list(range(1, len(dims) + 1)):
            raise ValueError(
                f"Invalid permutation `dims` for Permute Layer: {dims}. The set of indices in `dims` must be "
                "consecutive and start from 1."
            )
        super().__init__(dims, **kwargs)


@rebasing.serves(_core.Dense)
class KerasDense(_Dense):
    """A linear function of each row, and an activation."""

    def __init__(self, units: int, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(int(units), *args, **kwargs)

    def build(self, input_shape: PassedOn) -> None:
        kind = tf.as_dtype(self.dtype or package.module("backend").floatx())
        if not (kind.is_floating or kind.is_complex):
            raise TypeError(f"Unable to build `Dense` layer with non-floating point dtype {kind}")
        shape = tf.TensorShape(input_shape)
        if shape.ndims is None or shape.as_list()[-1] is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        super().build(shape)

    def call(self, inputs: PassedOn) -> Any:
        kind = self.kernel.dtype.base_dtype
        if tf.as_dtype(inputs.dtype).base_dtype != kind:
            inputs = tf.cast(inputs, kind)
        if isinstance(inputs, tf.SparseTensor):
            outputs = tf.sparse_tensor_dense_matmul(inputs, self.kernel)
        elif (inputs.shape.ndims or 0) > 2:
            outputs = tf.tensordot(inputs, self.kernel, [[inputs.shape.ndims - 1], [0]])
            outputs.set_shape([*inputs.shape.as_list()[:-1], self.units])
        else:
            outputs = tf.matmul(inputs, self.kernel)
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)


@rebasing.serves(_activations.ReLU)
class ReLU(_ReLU):
    """max(x, 0), with a largest value, a slope for small ones and a threshold."""

    def __init__(
        self, max_value: PassedOn = None, negative_slope: PassedOn = 0, threshold: PassedOn = 0, **kwargs: PassedOn
    ) -> None:
        if max_value is not None and max_value < 0.0:
            raise ValueError(f"max_value of Relu layer cannot be negative value: {max_value}")
        if negative_slope < 0.0:
            raise ValueError(f"negative_slope of Relu layer cannot be negative value: {negative_slope}")
        super().__init__(max_value, negative_slope, threshold, **kwargs)


@rebasing.serves(_core.Lambda)
class Lambda(_Lambda):
    """A function of tensors; variables that it makes are made once, by their names, and are the layer's."""

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: PassedOn = None,
        mask: PassedOn = None,
        arguments: PassedOn = None,
        **kwargs: PassedOn,
    ) -> None:
        KerasLayer.__init__(self, **kwargs)
        self.function, self.arguments, self.mask = function, arguments or {}, mask
        self.supports_masking = mask is not None
        self._output_shape = output_shape
        self._made: dict[str, Any] = {}

    def call(self, inputs: PassedOn, mask: PassedOn = None, training: PassedOn = None) -> Any:
        names = inspect.signature(self.function).parameters
        arguments = dict(self.arguments)
        if "mask" in names:
            arguments["mask"] = mask
        if "training" in names:
            arguments["training"] = training
        with tf.variable_creator_scope(self._variable):
            return self.function(inputs, **arguments)

    def _variable(self, next_creator: Callable[..., Any], **kwargs: PassedOn) -> Any:
        name = kwargs.get("name")
        if name not in self._made:
            self._made[str(name)] = variable = next_creator(**kwargs)
            self._own(variable)
        return self._made[str(name)]

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        if self._output_shape is None:
            given = tf.nest.map_structure(tf.TensorShape, _with_shapes(input_shape))
            made = tf.nest.map_structure(lambda s: tf.placeholder(self.dtype or "float32", s), given)
            with calls.entered(False):
                answer = tf.nest.map_structure(shapes.of, self.call(made))
        elif callable(self._output_shape):
            answer = shapes.as_tensor_shapes(self._output_shape(input_shape))
        else:
            first = tf.nest.flatten(_with_shapes(input_shape))[0]
            batch = first.as_list()[0] if first.ndims else None
            answer = tf.nest.map_structure(
                lambda shape: tf.TensorShape([batch, *shape.as_list()]), _with_shapes(self._output_shape)
            )
        return answer

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def _tell_shapes(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """The function's outputs have the shapes that they have."""

    def get_config(self) -> dict[str, Any]:
        utils = package.module("utils.generic_utils")
        config = KerasLayer.get_config(self)
        for key, value in (("function", self.function), ("output_shape", self._output_shape), ("mask", self.mask)):
            if callable(value):
                is_lambda = inspect.isfunction(value)
                config[key] = utils.func_dump(value) if is_lambda else value.__name__
                config[f"{key}_type"] = "lambda" if is_lambda else "function"
            elif key != "mask" or value is not None:
                config |= {key: value, f"{key}_type": "raw"}
        return config | {"arguments": self.arguments, "module": self.function.__module__}

    @classmethod
    def from_config(cls, config: PassedOn, custom_objects: PassedOn = None) -> Any:
        utils = package.module("utils.generic_utils")
        names = globals() | vars(sys.modules.get(str(config.get("module")), types.SimpleNamespace()))
        config = {key: value for key, value in config.items() if not key.endswith("_module") and key != "module"}
        for key in ("function", "output_shape", "mask"):
            kind = config.pop(f"{key}_type", "raw")
            if kind == "function":
                config[key] = utils.deserialize_keras_object(
                    config[key], custom_objects=custom_objects, printable_module_name=f"{key} in Lambda layer"
                )
            elif kind == "lambda":
                config[key] = utils.func_load(config[key], globs=names)
        return cls(**config)


def _with_shapes(structure: PassedOn) -> Any:
    """A structure of tuples of lengths, with shapes in their place."""
    if isinstance(structure, tf.TensorShape):
        return structure
    if isinstance(structure, dict):
        return {key: _with_shapes(value) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        if all(one is None or isinstance(one, int | tf.Dimension) for one in structure):
            return tf.TensorShape(list(structure))
        return type(structure)(_with_shapes(one) for one in structure)
    return tf.TensorShape(structure)
