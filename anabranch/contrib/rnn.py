"""`tf.contrib.rnn`: the cells and static networks under their contributed names."""

from __future__ import annotations

from anabranch.frontend.rnn import static_bidirectional_rnn, static_rnn, static_state_saving_rnn
from anabranch.frontend.rnn_cells import (
    BasicLSTMCell,
    BasicRNNCell,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    RNNCell,
)
from anabranch.frontend.rnn_wrappers import DeviceWrapper, DropoutWrapper, ResidualWrapper

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
]
