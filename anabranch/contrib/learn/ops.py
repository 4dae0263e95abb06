"""`tf.contrib.learn.ops`: what the models of this module were made of before there were layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike


def mean_squared_error_regressor(
    tensor_in: tf.Tensor, labels: tf.Tensor, weights: TensorLike, biases: TensorLike, name: str | None = None
) -> tuple[Any, Any]:
    """A linear function and its mean squared difference from labels.

    Args:
        tensor_in: float [batch, n].
        labels: float [batch] or [batch, m].
        weights: float [n, m].
        biases: float [m].
        name: of the operations.

    Returns:
        (predictions of the shape of `labels`, loss).
    """
    with tf.name_scope(name, "mean_squared_error_regressor", [tensor_in, labels]):
        predictions = tf.nn.xw_plus_b(tensor_in, weights, biases)
        if labels.shape.ndims == 1 and predictions.shape.ndims == 2:
            predictions = tf.squeeze(predictions, [1])
        return predictions, tf.losses.mean_squared_error(labels, predictions)


def softmax_classifier(
    tensor_in: tf.Tensor,
    labels: tf.Tensor,
    weights: TensorLike,
    biases: TensorLike,
    class_weight: TensorLike = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The probabilities of classes by a linear function, and their mean cross entropy.

    Args:
        tensor_in: float [batch, n].
        labels: float [batch, classes], 1 for the class and 0 for others.
        weights: float [n, classes].
        biases: float [classes].
        class_weight: float [classes], with which the logits are multiplied; None: nothing.
        name: of the operations.

    Returns:
        (probabilities, loss).
    """
    with tf.name_scope(name, "softmax_classifier", [tensor_in, labels]):
        logits = tf.nn.xw_plus_b(tensor_in, weights, biases)
        if class_weight is not None:
            logits = tf.multiply(logits, class_weight)
        return tf.nn.softmax(logits), tf.losses.softmax_cross_entropy(labels, logits)


def embedding_lookup(params: TensorLike, ids: TensorLike, name: str = "embedding_lookup") -> tf.Tensor:
    """Rows of a table: [*shape of ids, ...].

    Args:
        params: float [rows, ...].
        ids: int, of any shape.
        name: of the operations.
    """
    with tf.name_scope(name, "embedding_lookup", [params, ids]):
        rows: tf.Tensor = tf.gather(params, ids)
        return rows


def categorical_variable(tensor_in: TensorLike, n_classes: int, embedding_size: int, name: str) -> tf.Tensor:
    """Vectors for classes, which are trained; the variable is "name/name_embeddings".

    Args:
        tensor_in: int, of any shape.
        n_classes: how many there are.
        embedding_size: of a vector.
        name: of the variable's scope.

    Returns:
        float [*shape of tensor_in, embedding_size].
    """
    with tf.variable_scope(name):
        return embedding_lookup(tf.get_variable(f"{name}_embeddings", [n_classes, embedding_size]), tensor_in)


def sequence_classifier(
    decoding: Sequence[Any],
    labels: Sequence[Any],
    sampling_decoding: Sequence[Any] | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The probabilities of classes in each step, and the sum of their cross entropies.

    Args:
        decoding: for each step, logits [batch, classes].
        labels: for each step, [batch, classes].
        sampling_decoding: logits of which the probabilities are computed instead.
        name: of the operations.

    Returns:
        (probabilities [batch, time, classes], loss).
    """
    with tf.name_scope(name, "sequence_classifier"):
        losses = [
            tf.nn.softmax_cross_entropy_with_logits(labels=label, logits=logits)
            for label, logits in zip(labels, decoding, strict=True)
        ]
        said = [tf.nn.softmax(logits) for logits in sampling_decoding or decoding]
        return tf.stack(said, 1), tf.reduce_sum(tf.add_n(losses), name="sequence_loss")


def seq2seq_inputs(
    x: tf.Tensor,
    y: tf.Tensor,
    input_length: int,
    output_length: int,
    sentinel: TensorLike = None,
    name: str | None = None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """The steps that an encoder reads, those that a decoder reads, and those that it is to say.

    Args:
        x: float [batch, input_length, n].
        y: float [batch, output_length, n].
        input_length, output_length: not used: the tensors say it.
        sentinel: [batch, n], which the decoder reads first and says last; None: zeros.
        name: of the operations.
    """
    with tf.name_scope(name, "seq2seq_inputs", [x, y]):
        read, said = tf.unstack(x, axis=1), tf.unstack(y, axis=1)
        if sentinel is None:
            sentinel = tf.zeros([tf.shape(x)[0], said[0].shape[1]])
            sentinel.set_shape(said[0].shape)
        return read, [sentinel, *said], [*said, sentinel]


def rnn_decoder(
    decoder_inputs: Sequence[Any], initial_state: PassedOn, cell: PassedOn, scope: str | None = None
) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """A decoder that reads its inputs, and one with the same variables that reads what it said itself.

    Args:
        decoder_inputs: for each step, [batch, n].
        initial_state: of the cell.
        cell: whose outputs are as long as its inputs.
        scope: of the variables; default: "dnn_decoder".

    Returns:
        (outputs, states, outputs of the second, its states); states are one more, the first among them.
    """
    with tf.variable_scope(scope or "dnn_decoder"):
        states, sampled_states = [initial_state], [initial_state]
        outputs: list[Any] = []
        sampled: list[Any] = []
        with tf.name_scope("training"):
            for i, one in enumerate(decoder_inputs):
                if i:
                    tf.get_variable_scope().reuse_variables()
                output, state = cell(one, states[-1])
                outputs.append(output)
                states.append(state)
        with tf.name_scope("sampling"):
            for i in range(len(decoder_inputs)):
                output, state = cell(sampled[-1], sampled_states[-1]) if i else (outputs[0], states[0])
                sampled.append(output)
                sampled_states.append(state)
    return outputs, states, sampled, sampled_states


def rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    encoder_cell: PassedOn,
    decoder_cell: PassedOn = None,
    dtype: DTypeLike = tf.float32,
    scope: str | None = None,
) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """`rnn_decoder`, whose first state is the last one of an encoder.

    Args:
        encoder_inputs, decoder_inputs: for each step, [batch, n].
        encoder_cell, decoder_cell: None: the decoder has the encoder's.
        dtype: of the encoder's first state.
        scope: of the variables; default: "rnn_seq2seq".
    """
    with tf.variable_scope(scope or "rnn_seq2seq"):
        _, state = tf.nn.static_rnn(encoder_cell, list(encoder_inputs), dtype=tf.as_dtype(dtype))
        return rnn_decoder(decoder_inputs, state, decoder_cell or encoder_cell)
