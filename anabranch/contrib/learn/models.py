"""`tf.contrib.learn.models`: small models that a program calls with tensors, each a pair of predictions and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.learn.ops import mean_squared_error_regressor, softmax_classifier
from anabranch.contrib.rnn_projections import AttentionCellWrapper


def linear_regression(
    x: tf.Tensor, y: tf.Tensor, init_mean: float | None = None, init_stddev: float = 1.0
) -> tuple[Any, Any]:
    """Numbers as a linear function of features.

    Args:
        x: float [batch, n].
        y: float [batch] or [batch, m].
        init_mean, init_stddev: of normally distributed first values of "linear_regression/weights" and ".../bias";
            None: those of the scope's initializer.

    Returns:
        (predictions of the shape of `y`, mean squared difference).
    """
    with tf.variable_scope("linear_regression"):
        count = 1 if y.shape.ndims == 1 else y.shape[1]
        weights, bias = _variables(x, count, init_mean, init_stddev)
        return mean_squared_error_regressor(x, y, weights, bias)


def linear_regression_zero_init(x: tf.Tensor, y: tf.Tensor) -> tuple[Any, Any]:
    """`linear_regression` whose variables are zero at first."""
    return linear_regression(x, y, init_mean=0.0, init_stddev=0.0)


def logistic_regression(
    x: tf.Tensor,
    y: tf.Tensor,
    class_weight: TensorLike = None,
    init_mean: float | None = None,
    init_stddev: float = 1.0,
) -> tuple[Any, Any]:
    """Classes by a linear function of features.

    Args:
        x: float [batch, n].
        y: float [batch, classes], 1 for the class and 0 for others.
        class_weight: float [classes], with which the logits are multiplied; None: the graph's tensor "class_weight:0",
            or nothing.
        init_mean, init_stddev: as for `linear_regression`; the variables are "logistic_regression/weights" and so on.

    Returns:
        (probabilities [batch, classes], mean cross entropy).
    """
    with tf.variable_scope("logistic_regression"):
        weights, bias = _variables(x, y.shape[-1], init_mean, init_stddev)
        if class_weight is None:
            try:
                class_weight = tf.get_default_graph().get_tensor_by_name("class_weight:0")
            except KeyError:
                class_weight = None
        return softmax_classifier(x, y, weights, bias, class_weight)


def logistic_regression_zero_init(x: tf.Tensor, y: tf.Tensor) -> tuple[Any, Any]:
    """`logistic_regression` whose variables are zero at first."""
    return logistic_regression(x, y, init_mean=0.0, init_stddev=0.0)


def _variables(x: tf.Tensor, count: PassedOn, mean: float | None, deviation: float) -> tuple[Any, Any]:
    initializer = None if mean is None else tf.random_normal_initializer(mean, deviation, dtype=x.dtype.base_dtype)
    made = [
        tf.get_variable(name, shape, x.dtype.base_dtype, initializer)
        for name, shape in (("weights", [x.shape[1], count]), ("bias", [count]))
    ]
    scope = tf.get_variable_scope().name
    for name, value in zip(("x", "weights", "bias"), (x, *made), strict=True):
        tf.summary.histogram(f"{scope}.{name}", value)
    return made[0], made[1]


def bidirectional_rnn(
    cell_fw: PassedOn,
    cell_bw: PassedOn,
    inputs: list[Any],
    initial_state_fw: TensorLike = None,
    initial_state_bw: TensorLike = None,
    dtype: tf.DType | None = None,
    sequence_length: TensorLike = None,
    scope: str | None = None,
) -> tuple[list[Any], Any]:
    """Two unrolled recurrent networks, one of them from the end of the sequence, whose states are single tensors.

    Args:
        cell_fw, cell_bw: cells whose states are tensors (`state_is_tuple=False`).
        inputs: for each step, [batch, n].
        initial_state_fw, initial_state_bw, dtype, sequence_length: as for `tf.nn.static_rnn`.
        scope: begins the names of the variables' scopes; default: "BiRNN".

    Returns:
        (outputs of both side by side for each step, last states of both side by side).

    Raises:
        TypeError: `inputs` is no list.
        ValueError: it is empty.
    """
    if not isinstance(inputs, list):
        raise TypeError("inputs must be a list")
    if not inputs:
        raise ValueError("inputs must not be empty")
    name = scope or "BiRNN"
    with tf.variable_scope(f"{name}_FW"):
        forward, last_forward = tf.nn.static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length)
    with tf.variable_scope(f"{name}_BW"):
        turned, last_backward = tf.nn.static_rnn(
            cell_bw, _reversed(inputs, sequence_length), initial_state_bw, dtype, sequence_length
        )
    backward = _reversed(turned, sequence_length)
    outputs = [tf.concat([one, other], 1) for one, other in zip(forward, backward, strict=True)]
    return outputs, tf.concat([last_forward, last_backward], 1)


def _reversed(steps: Sequence[Any], lengths: TensorLike) -> list[Any]:
    if lengths is None:
        return list(reversed(steps))
    together = tf.reverse_sequence(tf.stack(list(steps)), lengths, seq_axis=0, batch_axis=1)
    return list(tf.unstack(together))


def get_rnn_model(
    rnn_size: int,
    cell_type: str,
    num_layers: int,
    input_op_fn: Callable[[Any], list[Any]],
    bidirectional: bool,
    target_predictor_fn: Callable[[Any, Any], Any],
    sequence_length: TensorLike,
    initial_state: TensorLike,
    attn_length: int | None,
    attn_size: int | None,
    attn_vec_size: int | None,
) -> Callable[[Any, Any], Any]:
    """A function of features and labels: a recurrent network, and what another function says of its last state.

    Args:
        rnn_size: of a cell's state.
        cell_type: "rnn", "gru" or "lstm".
        num_layers: how many cells lie above each other.
        input_op_fn: makes the steps of a sequence of features.
        bidirectional: whether a second network goes back from the end.
        target_predictor_fn: takes the last state and the labels; such as `logistic_regression`.
        sequence_length, initial_state: as for `tf.nn.static_rnn`.
        attn_length, attn_size, attn_vec_size: as for `tf.contrib.rnn.AttentionCellWrapper`; None: no attention.
    """
    cells: dict[str, Callable[[], Any]] = {
        "rnn": lambda: tf.nn.rnn_cell.BasicRNNCell(rnn_size),
        "gru": lambda: tf.nn.rnn_cell.GRUCell(rnn_size),
        "lstm": lambda: tf.nn.rnn_cell.BasicLSTMCell(rnn_size, state_is_tuple=False),
    }

    def layer() -> Any:
        cell = cells[cell_type]()
        if attn_length is None:
            return cell
        return AttentionCellWrapper(cell, attn_length, attn_size, attn_vec_size, state_is_tuple=False)

    def layers() -> Any:
        return tf.nn.rnn_cell.MultiRNNCell([layer() for _ in range(num_layers)], state_is_tuple=False)

    def model(x: PassedOn, y: PassedOn) -> Any:
        if cell_type not in cells:
            raise ValueError(f"cell_type {cell_type} is not supported: use one of {sorted(cells)}")
        steps = input_op_fn(x)
        if bidirectional:
            _, encoding = bidirectional_rnn(
                layers(), layers(), steps, initial_state, initial_state, tf.float32, sequence_length
            )
        else:
            _, encoding = tf.nn.static_rnn(layers(), steps, initial_state, tf.float32, sequence_length)
        return target_predictor_fn(encoding, y)

    return model
