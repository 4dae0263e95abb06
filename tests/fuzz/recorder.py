"""What TensorFlow gave for programs that both sides agree about, as the tests keep it."""

from __future__ import annotations

from typing import Any

from tests.fuzz.examination import Examination
from tests.fuzz.outcomes import Graph, Outcome
from tests.fuzz.programs import producer
from tests.fuzz.sides import Side
from tests.fuzz.wire import encode_array

#: counts of an examination in which nothing was refused or explained
_AGREEMENT = {"tensors compared", "gradients compared", "static shapes compared"}


class Recorder(Examination):
    """Keeps what TensorFlow gave for a program, if both sides agree about it at once."""

    def record(self) -> dict[str, Any] | None:
        """The program, TensorFlow's graph of it, and its values; None where rounding or a refusal plays a part."""
        self._kept: dict[str, Any] | None = None
        found = self.run()
        if found.disagreements or any(n and name not in _AGREEMENT for name, n in found.counts.items()):
            return None
        return self._kept

    def _exchange(
        self, home: Graph, at_home: Outcome, graph_def: str, side: Side, where: str, fetches: list[str]
    ) -> None:
        super()._exchange(home, at_home, graph_def, side, where, fetches)
        if home.genuine:
            values = [{ref: encode_array(value) for ref, value in step.items()} for step in at_home.values]
            used_names = {ref: home.names[ref] for ref in home.names if self._is_used(ref, fetches)}
            self._kept = {
                "program": self.program,
                "graph_def": graph_def,
                "initializer": home.initializer,
                "names": used_names,
                "refusals": [],
                "values": values,
            }

    def _is_used(self, ref: str, fetches: list[str]) -> bool:
        return ref in fetches or self.nodes[producer(ref)]["kind"] == "placeholder"
