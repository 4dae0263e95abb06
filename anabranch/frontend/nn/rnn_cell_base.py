"""What a recurrent cell is: its state, its variables, and a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from anabranch.core import nest
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arithmetic.elementwise import sigmoid, tanh
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.nn.activations import relu
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.scope import VariableScope, get_variable_scope, variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: by the names that a cell is given them by
ACTIVATIONS: dict[str, Callable[..., Any]] = {"tanh": tanh, "sigmoid": sigmoid, "relu": relu}


def zero_state(sizes: Structure, batch_size: TensorLike, dtype: DTypeLike) -> Any:
    """Zeros of shape [batch, *size] for each size of a structure of sizes."""
    count = convert_to_tensor(batch_size, name="batch_size")
    known = batch_size if isinstance(batch_size, int | np.integer) else None

    def zeros(size: Structure) -> Tensor:
        dims = TensorShape(size).as_list() if not isinstance(size, int | np.integer) else [int(size)]
        number = count if count.dtype.name == "int32" else raw.Cast(count, DstT="int32")
        shape = raw.ConcatV2([raw.ExpandDims(number, 0), np.array(dims, np.int32)], 0)
        made: Tensor = raw.Fill(shape, convert_to_tensor(np.zeros((), as_dtype(dtype).as_numpy_dtype)), name="zeros")
        made.set_shape([known, *dims])
        return made

    return _map_sizes(zeros, sizes)


def _map_sizes(function: Callable[[Any], Any], sizes: Structure) -> Any:
    if isinstance(sizes, TensorShape) or not nest.is_nested(sizes):
        return function(sizes)
    return nest.pack_sequence_as(sizes, [function(s) for s in nest.flatten(sizes)])


class RNNCell(Layer):
    """What all cells extend: `call(inputs, state)` gives (output, next state).

    A cell's variables live in the variable scope that is open at the first call, under the cell's name.
    """

    #: whether variables that are made in a step are the cell's own, and not those of cells that it consists of
    _has_variables = True

    @property
    def state_size(self) -> nest.Structure:
        """A size, a shape, or a structure of these: the state's shape without the batch dimension."""
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> nest.Structure:
        """The output's size, or shape without the batch dimension."""
        raise NotImplementedError("Abstract method")

    def __call__(
        self,
        inputs: Structure,
        state: Structure,
        scope: str | VariableScope | None = None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> tuple[Tensor, nest.Structure]:
        """One step.

        Args:
            inputs: [batch, depth].
            state: structure of [batch, size] like `state_size`.
            scope: variable scope of the cell's variables.
        """
        if scope is not None:
            with variable_scope(scope, custom_getter=self._tracked) as opened:
                return self._stepped(inputs, state, *args, scope=opened, **kwargs)
        with variable_scope(get_variable_scope(), custom_getter=self._tracked, auxiliary_name_scope=False):
            return self._stepped(inputs, state, *args, **kwargs)

    def _stepped(self, *args: PassedOn, **kwargs: PassedOn) -> tuple[Tensor, nest.Structure]:
        stepped: tuple[Tensor, nest.Structure] = super().__call__(*args, **kwargs)
        return stepped

    def _tracked(self, getter: Callable[..., Any], *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Variables that `call` makes with `get_variable` belong to the cell."""
        variable = getter(*args, **kwargs)
        own = [*self._trainable_weights, *self._non_trainable_weights]
        if self._has_variables and all(variable is not other for other in own):
            trains = getattr(variable, "trainable", True)
            (self._trainable_weights if trains else self._non_trainable_weights).append(variable)
        return variable

    def add_weight(self, name: str, shape: ShapeLike, *args: PassedOn, **kwargs: PassedOn) -> Variable:
        """See `Layer.add_weight`; a variable is listed once, as one to be trained if a custom getter left it that."""
        lists = (self._trainable_weights, self._non_trainable_weights)
        before = [list(held) for held in lists]
        variable = super().add_weight(name, shape, *args, **kwargs)
        made: Any = variable
        part = next(iter(made)) if isinstance(made, PartitionedVariable) else made
        for held, old in zip(lists, before, strict=True):
            held[:] = old
        held = lists[0] if part.trainable else lists[1]
        if all(v is not variable for v in held):
            held.append(variable)
        return variable

    def get_initial_state(
        self, inputs: Structure | None = None, batch_size: TensorLike | None = None, dtype: DTypeLike | None = None
    ) -> nest.Structure:
        """`zero_state` for the batch of `inputs`."""
        if inputs is not None:
            tensor = convert_to_tensor(inputs)
            self._check_given(tensor, batch_size, dtype)
            batch_size = raw.StridedSlice(raw.Shape(tensor), [0], [1], [1], shrink_axis_mask=1)
            dtype = tensor.dtype
        if batch_size is None or dtype is None:
            raise ValueError("batch_size and dtype cannot be None while constructing initial state")
        return self.zero_state(batch_size, dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a cell again, for `from_config`.

        Known activations are given by their names; other functions, initializers and tensors as they are.
        """
        dtype = None if self.dtype is None else as_dtype(self.dtype).name
        config: dict[str, Any] = {"name": self.name, "trainable": self.trainable, "dtype": dtype}
        for name in inspect.signature(type(self)).parameters:
            value = getattr(self, f"_{name}", self)
            if name not in config and value is not self:
                known = [key for key, function in ACTIVATIONS.items() if function is value]
                config[name] = known[0] if known else value
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A cell by what `get_config` gave; it has its own variables."""
        return cls(**config)

    @staticmethod
    def _check_given(inputs: Tensor, batch_size: TensorLike | None, dtype: DTypeLike | None) -> None:
        """Checks that size and dtype, where they are given too, are those of the inputs."""
        static = inputs.shape[:1].as_list()[0]
        given = constant_value(batch_size) if isinstance(batch_size, Tensor) else batch_size
        if batch_size is not None and given != static:
            raise ValueError(
                f"batch size from input tensor is different from the input param. Input tensor batch: {static}, "
                f"batch_size: {batch_size}"
            )
        if dtype is not None and as_dtype(dtype) is not inputs.dtype:
            raise ValueError(
                f"dtype from input tensor is different from the input param. Input tensor dtype: "
                f"{inputs.dtype.name}, dtype: {as_dtype(dtype).name}"
            )

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> nest.Structure:
        """A state of zeros."""
        with get_default_graph().name_scope(type(self).__name__ + "ZeroState"):
            return zero_state(self.state_size, batch_size, dtype)

    def _depth(self, input_shape: ShapeLike) -> int:
        if self.dtype is not None and not (as_dtype(self.dtype).is_floating or as_dtype(self.dtype).is_complex):
            raise ValueError(
                f"RNN cell only supports floating point inputs, but saw dtype: {as_dtype(self.dtype).name}"
            )
        depth = TensorShape(input_shape)[-1:].as_list()[0]
        if depth is None:
            raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {input_shape}")
        return int(depth)


class LayerRNNCell(RNNCell):
    """What cells extend that make their variables in `build`: their scope is that of a layer.

    Without a name, or a scope that is given, a second cell of a class gets a scope of its own, with a number.
    """

    def __call__(
        self,
        inputs: Structure,
        state: Structure,
        scope: str | VariableScope | None = None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> tuple[Tensor, nest.Structure]:
        """One step; see `RNNCell`."""
        return self._stepped(inputs, state, *args, scope=scope, **kwargs)
