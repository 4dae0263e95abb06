"""Cells around cells: dropout, residual connections, devices (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from anabranch.core import nest
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.trackables import Trackable
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import DeviceLike
from anabranch.frontend.arithmetic.random import random_uniform
from anabranch.frontend.nn.activations import dropout
from anabranch.frontend.nn.rnn_cell_base import RNNCell
from anabranch.frontend.nn.rnn_cells import LSTMStateTuple
from anabranch.frontend.variables.scope import VariableScope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class _Wrapper(RNNCell):
    """A cell that adds something to another; it has no scope of its own."""

    def __init__(self, cell: RNNCell, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        if not hasattr(cell, "state_size") or not callable(cell):
            raise TypeError(f"The parameter cell is not an RNNCell: {cell!r}")
        if isinstance(cell, Trackable):
            self._track_trackable(cell, "cell")  # TensorFlow's name for the attribute
        self._cell: RNNCell = cell

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a wrapper again; "cell" says the wrapped cell's class and configuration."""
        config = super().get_config()
        config["cell"] = {"class_name": type(self._cell).__name__, "config": self._cell.get_config()}
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A wrapper by what `get_config` gave, in which a cell has been put in the place of "cell".

        Raises:
            ValueError: "cell" is no cell yet.
        """
        if not isinstance(config["cell"], RNNCell):
            raise ValueError(
                "RNNCellWrapper cannot reconstruct the wrapped cell. Please overwrite the cell in the config with a "
                "RNNCell instance."
            )
        return cls(**config)

    @property
    def wrapped_cell(self) -> RNNCell:
        return self._cell

    @property
    def state_size(self) -> nest.Structure:
        return self._cell.state_size

    @property
    def output_size(self) -> nest.Structure:
        return self._cell.output_size

    @property
    def trainable_weights(self) -> list[Any]:
        return list(self._cell.trainable_weights)

    @property
    def non_trainable_weights(self) -> list[Any]:
        return list(self._cell.non_trainable_weights)

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> nest.Structure:
        """A state of zeros."""
        return self._cell.zero_state(batch_size, dtype)

    def __call__(
        self,
        inputs: Structure,
        state: Structure,
        scope: str | VariableScope | None = None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> tuple[Tensor, nest.Structure]:
        """One step of the wrapped cell, and what this one adds."""
        return self._step(inputs, state, scope)

    def _inner(
        self, inputs: Structure, state: Structure, scope: str | VariableScope | None
    ) -> tuple[Tensor, nest.Structure]:
        result: tuple[Tensor, nest.Structure] = (
            self._cell(inputs, state) if scope is None else self._cell(inputs, state, scope=scope)
        )
        return result

    def _step(
        self, inputs: Structure, state: Structure, scope: str | VariableScope | None
    ) -> tuple[Tensor, nest.Structure]:
        return self._inner(inputs, state, scope)


class DropoutWrapper(_Wrapper):
    """Drops elements of a cell's input, state and output.

    Args:
        cell: an `RNNCell`.
        input_keep_prob, output_keep_prob, state_keep_prob: the share that is kept, tensors or numbers in (0, 1].
        variational_recurrent: whether all steps drop the same elements (Gal & Ghahramani 2016); needs `dtype`, and
            `input_size` where inputs are dropped.
        input_size: the shape of the inputs without the batch, or a structure of shapes.
        dtype: of inputs, state and output, for `variational_recurrent`.
        seed: see `tf.set_random_seed`.
        dropout_state_filter_visitor: function of a substate: whether it is dropped; may be a structure of answers.
            Default: all but an LSTM's c.

    Raises:
        ValueError: a probability outside (0, 1].
        TypeError: `cell` is not an RNNCell.

    Example:
        >>> cell = tf.contrib.rnn.DropoutWrapper(tf.contrib.rnn.GRUCell(4), output_keep_prob=0.5)
        >>> cell.state_size
        4
    """

    def __init__(
        self,
        cell: RNNCell,
        input_keep_prob: TensorLike = 1.0,
        output_keep_prob: TensorLike = 1.0,
        state_keep_prob: TensorLike = 1.0,
        variational_recurrent: bool = False,
        input_size: Structure | None = None,
        dtype: DTypeLike | None = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(cell, **kwargs)
        self._keep = {"input": input_keep_prob, "state": state_keep_prob, "output": output_keep_prob}
        for what, probability in self._keep.items():
            if isinstance(probability, int | float) and not 0 < probability <= 1:
                raise ValueError(f"Parameter {what}_keep_prob must be between 0 and 1: {probability}")
        self._seed, self._dropout_state_filter = seed, dropout_state_filter_visitor
        self._variational_recurrent, self._input_size = variational_recurrent, input_size
        self._noise_dtype = None if dtype is None else as_dtype(dtype).name
        self._noise: dict[str, list[Tensor]] = {}
        if variational_recurrent:
            if dtype is None:
                raise ValueError("When variational_recurrent=True, dtype must be provided")
            self._make_noise(input_size, dtype)

    def get_config(self) -> dict[str, Any]:
        """See `ResidualWrapper.get_config`; probabilities that are tensors, and the function, are given as they are."""
        config = super().get_config() | {f"{what}_keep_prob": share for what, share in self._keep.items()}
        return config | {"dropout_state_filter_visitor": self._dropout_state_filter, "dtype": self._noise_dtype}

    def _make_noise(self, input_size: Structure, dtype: DTypeLike) -> None:
        sizes = {"input": input_size, "state": self.state_size, "output": self.output_size}
        for what, size in sizes.items():
            if what == "input" and self._keeps_all(what):
                continue
            if size is None:
                raise ValueError(
                    "When variational_recurrent=True and input_keep_prob < 1.0, input_size must be provided"
                )
            shapes = [[1, *_dims(s)] for s in (nest.flatten(size) if nest.is_nested(size) else [size])]
            self._noise[what] = [
                random_uniform(shape, dtype=dtype, seed=self._seed_of(f"{what}{i}")) for i, shape in enumerate(shapes)
            ]

    def _keeps_all(self, what: str) -> bool:
        probability = self._keep[what]
        return isinstance(probability, int | float) and probability >= 1

    def _seed_of(self, what: str) -> int | None:
        if self._seed is None:
            return None
        mixed: int = self._seed * 1000003 + sum(ord(c) * 31**i for i, c in enumerate(what))
        return mixed & 0x7FFFFFFF

    def _dropped(self, what: str, values: Structure, chosen: Structure = True) -> Any:
        if self._keeps_all(what):
            return values
        flat = nest.flatten(values)
        wanted = _answers(chosen, values, len(flat))
        results = [
            self._drop(what, i, convert_to_tensor(v)) if take and isinstance(v, Tensor) else v
            for i, (v, take) in enumerate(zip(flat, wanted, strict=True))
        ]
        return nest.pack_sequence_as(values, results) if nest.is_nested(values) else results[0]

    def _drop(self, what: str, index: int, value: Tensor) -> Tensor:
        probability = self._keep[what]
        if what not in self._noise:
            return dropout(value, keep_prob=probability, seed=self._seed_of(f"{what}{index}"))
        keep = convert_to_tensor(probability, value.dtype)
        kept = raw.Floor(raw.AddV2(keep, self._noise[what][index]))
        dropped: Tensor = raw.Mul(raw.RealDiv(value, keep), kept)
        dropped.set_shape(value.shape)
        return dropped

    def _step(
        self, inputs: Structure, state: Structure, scope: str | VariableScope | None
    ) -> tuple[Tensor, nest.Structure]:
        output, new = self._inner(self._dropped("input", inputs), state, scope)
        visit = self._dropout_state_filter or _default_filter
        new = self._dropped("state", new, visit(new) if self._dropout_state_filter else _visited(new))
        return self._dropped("output", output), new


def _default_filter(substate: Structure) -> Any:
    return True


def _visited(state: Structure) -> Any:
    """Which parts of a state are dropped by default: all but an LSTM's c."""
    if isinstance(state, LSTMStateTuple):
        return LSTMStateTuple(False, True)
    if isinstance(state, list | tuple) and not hasattr(state, "_fields"):
        return type(state)(_visited(s) for s in state)
    return True


def _answers(chosen: Structure, values: Structure, count: int) -> list[bool]:
    if isinstance(chosen, bool):
        return [chosen] * count
    answers: list[bool] = []
    for answer, part in zip(nest.flatten(chosen), nest.flatten_up_to(chosen, values), strict=True):
        answers.extend([bool(answer)] * len(nest.flatten(part)))
    return answers


def _dims(size: Structure) -> list[int]:
    return [int(size)] if isinstance(size, int) else [int(d) for d in size]


class ResidualWrapper(_Wrapper):
    """Adds a cell's input to its output.

    Args:
        residual_fn: function of (inputs, outputs); default: their sum.
    """

    def __init__(self, cell: RNNCell, residual_fn: Callable[[Any, Any], Any] | None = None, **kwargs: PassedOn) -> None:
        super().__init__(cell, **kwargs)
        self._residual_fn = residual_fn

    def _step(
        self, inputs: Structure, state: Structure, scope: str | VariableScope | None
    ) -> tuple[Tensor, nest.Structure]:
        outputs, new = self._inner(inputs, state, scope)
        if self._residual_fn is not None:
            return self._residual_fn(inputs, outputs), new
        nest.assert_same_structure(inputs, outputs)
        for a, b in zip(nest.flatten(inputs), nest.flatten(outputs), strict=True):
            a.shape.assert_is_compatible_with(b.shape)
        return nest.map_structure(raw.AddV2, inputs, outputs), new


class DeviceWrapper(_Wrapper):
    """Runs a cell on a device.

    Args:
        device: as `tf.device` takes it.
    """

    def __init__(self, cell: RNNCell, device: DeviceLike, **kwargs: PassedOn) -> None:
        super().__init__(cell, **kwargs)
        self._device = device

    def _step(
        self, inputs: Structure, state: Structure, scope: str | VariableScope | None
    ) -> tuple[Tensor, nest.Structure]:
        with get_default_graph().device(self._device):
            return self._inner(inputs, state, scope)

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> nest.Structure:
        """A state of zeros, on the device."""
        with get_default_graph().device(self._device):
            return self._cell.zero_state(batch_size, dtype)
