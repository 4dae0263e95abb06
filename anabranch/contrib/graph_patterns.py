"""Patterns of operations and where a graph has them: what `contrib.quantize.python.graph_matcher` gives programs.

A pattern says what type an operation has, and by which patterns its inputs are made. It is matched from an operation
backwards. A pattern object that stands in a pattern twice need not meet the same operation twice: the last one counts.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import anabranch as tf


class MatchResult:
    """Which operation, and which tensor of it, each pattern has met."""

    def __init__(self) -> None:
        self._met: dict[Pattern, tuple[tf.Operation, tf.Tensor | None]] = {}
        self._named: dict[str, Pattern] = {}

    def add(self, pattern: Pattern, op: tf.Operation, tensor: tf.Tensor | None) -> None:
        """Notes what a pattern has met.

        Raises:
            ValueError: its name is another pattern's.
        """
        self._met[pattern] = op, tensor
        if pattern.name is not None and self._named.setdefault(pattern.name, pattern) is not pattern:
            raise ValueError(f"Name {pattern.name} is already bound to another pattern")

    def merge_from(self, other_match_result: MatchResult) -> None:
        """Takes over what another result has."""
        self._met |= other_match_result._met
        self._named |= other_match_result._named

    def get_op(self, pattern_or_name: Pattern | str) -> tf.Operation | None:
        """The operation that a pattern, or the pattern of that name, has met; None where it met none."""
        op, _ = self._what_met(pattern_or_name)
        return op

    def get_tensor(self, pattern_or_name: Pattern | str) -> tf.Tensor | None:
        """The output of that operation which the pattern above it takes; None at the root, or where it met none."""
        _, tensor = self._what_met(pattern_or_name)
        return tensor

    def _what_met(self, pattern_or_name: Pattern | str) -> tuple[tf.Operation | None, tf.Tensor | None]:
        if not isinstance(pattern_or_name, Pattern | str):
            raise ValueError(f"pattern_or_name is a Pattern or a string, got {type(pattern_or_name)}")
        named = self._named.get(pattern_or_name) if isinstance(pattern_or_name, str) else pattern_or_name
        return (None, None) if named is None else self._met.get(named, (None, None))


class Pattern(ABC):
    """What an operation may be."""

    #: by which a `MatchResult` finds the pattern
    name: str | None = None

    @abstractmethod
    def match(self, op: tf.Operation, tensor: tf.Tensor | None) -> MatchResult | None:
        """What the pattern and those within it meet at `op`, whose output `tensor` led here; None where it fails."""


class OpTypePattern(Pattern):
    """An operation of some types, with inputs of some patterns.

    Args:
        op_type: a type, several with `|` between them, or `*` for all.
        name: by which `MatchResult` finds the pattern.
        inputs: patterns, or types, of all its inputs; without any they may be anything.
        ordered_inputs: False: the inputs may stand in another order.

    Raises:
        ValueError: more than 8 inputs, whose orders are too many.
    """

    def __init__(
        self,
        op_type: str,
        name: str | None = None,
        inputs: Sequence[Pattern | str] | None = None,
        ordered_inputs: bool = True,
    ) -> None:
        inputs = inputs or []
        if len(inputs) > 8:
            raise ValueError(f"a pattern has 8 inputs at most, got {len(inputs)}")
        self.name = name
        self._types = None if op_type == "*" else frozenset(op_type.split("|"))
        self._inputs = [OpTypePattern(i) if isinstance(i, str) else i for i in inputs]
        self._ordered = ordered_inputs

    def match(self, op: tf.Operation, tensor: tf.Tensor | None) -> MatchResult | None:
        """See `Pattern.match`; of several orders the first that matches is taken."""
        if self._types is not None and op.type not in self._types:
            return None
        if not self._inputs:
            return self._with_inputs(op, tensor, [])
        if len(op.inputs) != len(self._inputs):
            return None
        orders: Iterable[Sequence[Pattern]] = [self._inputs] if self._ordered else itertools.permutations(self._inputs)
        found = (self._with_inputs(op, tensor, order) for order in orders)
        return next((result for result in found if result is not None), None)

    def _with_inputs(
        self, op: tf.Operation, tensor: tf.Tensor | None, patterns: Sequence[Pattern]
    ) -> MatchResult | None:
        result = MatchResult()
        result.add(self, op, tensor)
        for pattern, source in zip(patterns, op.inputs, strict=False):  # an operation may have more than are asked for
            below = pattern.match(source.op, source)
            if below is None:
                return None
            result.merge_from(below)
        return result


class OneofPattern(Pattern):
    """The first of several patterns that matches."""

    def __init__(self, sub_patterns: Sequence[Pattern]) -> None:
        self._sub_patterns = list(sub_patterns)

    def match(self, op: tf.Operation, tensor: tf.Tensor | None) -> MatchResult | None:
        """See `Pattern.match`."""
        found = (pattern.match(op, tensor) for pattern in self._sub_patterns)
        return next((result for result in found if result is not None), None)


class GraphMatcher:
    """Looks for a pattern in graphs.

    Example:
        >>> scaled = OpTypePattern("Mul", inputs=["MatMul", "*"], ordered_inputs=False)
        >>> products = [match.get_op(scaled) for match in GraphMatcher(scaled).match_graph(tf.get_default_graph())]
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def match_op(self, op: tf.Operation) -> MatchResult | None:
        """What the pattern meets with `op` at its root; None where it fails."""
        return self._pattern.match(op, None)

    def match_ops(self, ops: Iterable[tf.Operation]) -> Iterator[MatchResult]:
        """The results of those operations that match."""
        for op in ops:
            result = self.match_op(op)
            if result is not None:
                yield result

    def match_graph(self, graph: tf.Graph) -> Iterator[MatchResult]:
        """The results of the operations of a graph that match, in the order in which they were made."""
        return self.match_ops(graph.get_operations())
