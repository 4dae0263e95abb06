"""The graph: characters through an LSTM to the next ones; and a loop that writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anabranch as tf
from anabranch.tools.demo.text_files import ALPHABET

_CLASSES = len(ALPHABET)
_CLIP = 1.0


@dataclass(frozen=True)
class TextNetwork:
    """Names for the tensors and operations of the graph that the demonstration runs."""

    windows: Any
    loss: Any
    bits: Any
    train: Any
    global_step: Any
    sample: Any
    length: Any
    temperature: Any
    summary: Any
    text: Any
    text_summary: Any


def build_network(batches: tf.Tensor, units: int, learning_rate: float = 4e-3) -> TextNetwork:
    """Builds training, evaluation and sampling into the default graph.

    Args:
        batches: int32 [batch, steps + 1], the next batch; other windows can be fed in its place.
        units: of the LSTM.
    """
    windows = tf.placeholder_with_default(batches, [None, batches.shape[1]], name="windows")
    cell = tf.nn.rnn_cell.LSTMCell(units, name="lstm")
    output = tf.layers.Dense(_CLASSES, name="output")
    with tf.variable_scope("network"):
        states, _ = tf.nn.dynamic_rnn(cell, tf.one_hot(windows[:, :-1], _CLASSES), dtype=tf.float32)
        logits = output(states)
    with tf.name_scope("loss"):
        loss = tf.losses.sparse_softmax_cross_entropy(windows[:, 1:], logits)
        bits = loss / math.log(2)
    global_step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(learning_rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, _CLIP)
    train = optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), global_step=global_step)
    length = tf.placeholder_with_default(300, [], name="length")
    temperature = tf.placeholder_with_default(0.8, [], name="temperature")
    with tf.variable_scope("network", reuse=True):
        sample = _write(cell, output, length, temperature)
    summary = tf.summary.merge(
        [tf.summary.scalar("bits_per_character", bits), tf.summary.scalar("norm_of_gradient", norm)]
    )
    text = tf.placeholder(tf.string, [], name="text")
    text_summary = tf.summary.text("sample", text)
    return TextNetwork(
        windows, loss, bits, train, global_step, sample, length, temperature, summary, text, text_summary
    )


def _write(
    cell: tf.nn.rnn_cell.RNNCell, output: Callable[[tf.Tensor], tf.Tensor], length: tf.Tensor, temperature: tf.Tensor
) -> Any:
    """int32 [length]: characters of which each is drawn from what the network expects after those before it."""

    def step(
        position: tf.Tensor, character: tf.Tensor, state: tf.nn.rnn_cell.LSTMStateTuple, written: tf.TensorArray
    ) -> Any:
        hidden, state = cell(tf.one_hot(character, _CLASSES), state)
        drawn = tf.multinomial(output(hidden) / temperature, 1, output_dtype=tf.int32)[:, 0]
        return position + 1, drawn, state, written.write(position, drawn[0])

    start = tf.zeros([1], tf.int32)  # as after the end of a line
    written = tf.TensorArray(tf.int32, size=length, element_shape=[])
    _, _, _, written = tf.while_loop(
        lambda position, *_: position < length,
        step,
        (0, start, cell.zero_state(1, tf.float32), written),
        back_prop=False,
        name="write",
    )
    return written.stack()
