"""How the weights of stacked recurrent layers lie in one vector, as cuDNN has it.

All matrices come first, then all biases. Layers follow each other, the two directions of one side by side; of each the
matrices that meet the input come before those that meet the state, one for each gate, and with a projection the matrix
that makes the state smaller. Gates: input, forget, new memory, output of an LSTM; reset, update, new memory of a GRU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: kind of network -> how many gates a layer has
GATES: Final = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RnnLayout:
    """The sizes of a network.

    Attributes:
        mode: a key of `GATES`.
        layers, units, inputs: how many layers, the size of the state, and that of the input.
        directions: 1 or 2.
        projection: the size of what an LSTM gives out; 0: that of its state.
        skips: whether the first layer takes its input as it is.
    """

    mode: str
    layers: int
    units: int
    inputs: int
    directions: int = 1
    projection: int = 0
    skips: bool = False

    @classmethod
    def of(
        cls,
        mode: bytes,
        input_mode: bytes,
        direction: bytes,
        sizes: tuple[int, int, int],
        projection: int = 0,
    ) -> RnnLayout:
        """The network of an operation's attributes.

        Args:
            sizes: layers, units, inputs.

        Raises:
            ValueError: sizes that do not fit.
        """
        layers, units, inputs = sizes
        skips = input_mode == b"skip_input" or (input_mode == b"auto_select" and units == inputs)
        layout = cls(mode.decode(), layers, units, inputs, 2 if direction == b"bidirectional" else 1, projection, skips)
        if min(sizes) < 1:
            raise ValueError(f"layers, units and inputs must be positive, got {sizes}")
        if skips and units != inputs:
            raise ValueError(f"an input of size {inputs} cannot skip its matrix in layers of {units} units")
        if projection and (mode != b"lstm" or not 0 < projection <= units):
            raise ValueError(f"only an LSTM has a projection, to at most its {units} units; got num_proj={projection}")
        return layout

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def given(self) -> int:
        """The size of what a layer and direction gives out."""
        return self.projection or self.units

    @property
    def cells(self) -> int:
        """Layers, each direction counted."""
        return self.layers * self.directions

    def matrices(self) -> list[Shape]:
        """The shapes of the matrices, in order: (units, what they meet)."""
        return [shape for cell in range(self.cells) for shape in self._of_cell(cell)]

    def biases(self) -> list[Shape]:
        """The shapes of the biases, in order."""
        return [(self.units,)] * (2 * self.gates * self.cells)

    def _of_cell(self, cell: int) -> Iterator[Shape]:
        first = cell < self.directions
        met = (0 if self.skips else self.inputs) if first else self.given * self.directions
        yield from [(self.units, met)] * self.gates
        yield from [(self.units, self.given)] * self.gates
        if self.projection:
            yield (self.projection, self.units)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(map(math.prod, (*self.matrices(), *self.biases())))
