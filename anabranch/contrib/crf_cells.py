"""`tf.contrib.crf`: the recurrences of conditional random fields as cells, for programs that run them themselves."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike


class _ForwardRnnCell(tf.nn.rnn_cell.RNNCell):
    """What goes from the beginning of sequences to their end has a state for each tag."""

    def __init__(self, transition_params: TensorLike) -> None:
        super().__init__()
        params = tf.convert_to_tensor(transition_params)
        self._transition_params = params[tf.newaxis]
        self._num_tags = params.shape.as_list()[0]

    @property
    def state_size(self) -> PassedOn:
        return self._num_tags

    @property
    def output_size(self) -> PassedOn:
        return self._num_tags

    def _through(self, state: TensorLike) -> tf.Tensor:
        """[batch, tags, tags]: what each tag has at the element before, and what it takes to go on to each other."""
        return tf.expand_dims(state, 2) + self._transition_params


class CrfForwardRnnCell(_ForwardRnnCell):
    """Logarithms of the sums of the exponential scores of all sequences that end with a tag: state and output.

    Args:
        transition_params: [tags, tags]: scores of going from the first to the second.
    """

    def __call__(self, inputs: TensorLike, state: TensorLike, scope: ScopeLike | None = None) -> PassedOn:
        """One element further.

        Args:
            inputs: [batch, tags]: scores of its tags.
            state: [batch, tags]: those up to the element before.
            scope: not used.
        """
        alphas = inputs + tf.reduce_logsumexp(self._through(state), 1)
        return alphas, alphas


class CrfDecodeForwardRnnCell(_ForwardRnnCell):
    """The best scores of sequences that end with a tag; the output is which tag comes before it, int32 [batch, tags].

    Args:
        transition_params: [tags, tags].
    """

    def __call__(self, inputs: TensorLike, state: TensorLike, scope: ScopeLike | None = None) -> PassedOn:
        """One element further; arguments as of `CrfForwardRnnCell`."""
        through = self._through(state)
        return tf.argmax(through, 1, output_type=tf.int32), inputs + tf.reduce_max(through, 1)


class CrfDecodeBackwardRnnCell(tf.nn.rnn_cell.RNNCell):
    """The tag before a tag, from the end of sequences to their beginning: int32 [batch, 1], state and output.

    Args:
        num_tags: int: how many tags there are.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self._num_tags = num_tags

    @property
    def state_size(self) -> PassedOn:
        return 1

    @property
    def output_size(self) -> PassedOn:
        return 1

    def __call__(self, inputs: TensorLike, state: TensorLike, scope: ScopeLike | None = None) -> PassedOn:
        """One element back.

        Args:
            inputs: int32 [batch, tags]: the tags before each tag, as `CrfDecodeForwardRnnCell` gives them.
            state: int32 [batch, 1]: the tags.
            scope: not used.
        """
        before = tf.batch_gather(inputs, tf.cast(state, tf.int32))
        return before, before
