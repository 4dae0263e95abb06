"""Linear models by stochastic dual coordinate ascent  (Shalev-Shwartz, Zhang, 2013; Ma et al., 2015, for several
partitions), and fingerprints of examples.

The examples of a call are taken in a random order, each once; where it is adaptive, those with much to gain more often
(Csiba, Qu, Richtarik, "Stochastic dual coordinate ascent with adaptive probabilities", 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.arithmetic.dual_losses import LOSSES, DualLoss
from anabranch.ops.strings.hashing_wide import fingerprint128

SdcaFprint = define_op("SdcaFprint", "input: string -> output: int64")
SdcaFprint.not_differentiable()


@SdcaFprint.shape
def _(input: TensorShape) -> TensorShape:
    return shape_rules.with_rank(input, 1, "input").concatenate([2])


@SdcaFprint.host_kernel
def _(input: Array) -> Any:
    marks = np.array([fingerprint128(text) for text in input.tolist()], np.uint64).reshape(-1, 2)
    # 0 and 1 stand for empty places in tables
    marks[:, 0] = np.where(marks[:, 0] < 2, marks[:, 0] + np.uint64(2**64 - 2), marks[:, 0])
    return marks.view(np.int64)


#: how much rarer an example becomes each time that it was taken
_DECAY: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Group:
    """One group of features of one example: which weights it meets, and with what factors."""

    at: HostArray
    values: HostArray


class _Weights:
    """The weights of one group of features, and what was added to them."""

    def __init__(self, nominal: HostArray, shrinkage: float) -> None:
        self.shape = nominal.shape
        self.nominal = nominal.reshape(-1).astype(np.float32)
        self.delta = np.zeros_like(self.nominal)
        self._shrinkage = shrinkage

    def before(self, group: _Group) -> float:
        return float(group.values.astype(np.float64) @ self._shrunk(self.nominal[group.at]))

    def now(self, group: _Group, partitions: int) -> float:
        changed = self.nominal[group.at] + self.delta[group.at] * np.float64(partitions)
        return float(group.values.astype(np.float64) @ self._shrunk(changed))

    def add(self, group: _Group, step: float) -> None:
        self.delta[group.at] += group.values * np.float64(step)

    def _shrunk(self, weights: HostArray) -> HostArray:
        shrunk: HostArray = np.sign(weights) * np.maximum(np.abs(weights) - self._shrinkage, 0)
        return shrunk


class _Training:
    """One call of the optimizer: `groups[e]` are the features of example e, one group for each of `weights`."""

    def __init__(
        self,
        ctx: OperationContext,
        weights: list[_Weights],
        groups: list[list[_Group]],
        state: HostArray,
        examples: tuple[HostArray, HostArray],
    ) -> None:
        attrs: dict[str, Any] = dict(ctx.op.attrs)
        self._loss: DualLoss = LOSSES[attrs["loss_type"].decode()]
        self._l2 = float(np.float32(attrs["l2"]))
        self._partitions = int(attrs["num_loss_partitions"])
        self._weights, self._groups, self._state = weights, groups, state
        self._example_weights, labels = examples
        self._labels = [self._loss.label(float(label)) for label in labels]
        self._norms = [sum(float(g.values.astype(np.float64) @ g.values) for g in example) for example in groups]

    def step(self, example: int) -> None:
        groups, weight, label = self._groups[example], float(self._example_weights[example]), self._labels[example]
        dual = float(self._state[example, 0])
        pairs = list(zip(self._weights, groups, strict=True))
        before = sum(w.before(g) for w, g in pairs)
        wx = sum(w.now(g, self._partitions) for w, g in pairs)
        new = self._loss.updated(dual, label, wx, self._partitions * self._norms[example] / self._l2 * weight)
        for weights, group in pairs:
            weights.add(group, (new - dual) * weight / self._l2)
        loss = self._loss.primal(before, label) * weight, self._loss.conjugate(dual, label) * weight
        self._state[example] = new, *loss, weight

    def order(self, adaptive: bool) -> Sequence[int]:
        """The examples in the order in which they are taken."""
        random, count = np.random.default_rng(), len(self._labels)
        if not adaptive:
            return [int(example) for example in random.permutation(count)]
        chances = np.array([self._gain(example) for example in range(count)])
        if not np.isfinite(chances.sum()) or chances.sum() <= 0:
            return [int(example) for example in random.permutation(count)]
        taken: list[int] = []
        times, refused = np.zeros(count, np.int64), 0
        while len(taken) < count and refused < count:
            example = int(random.choice(count, p=chances / chances.sum()))
            if random.random() > _DECAY ** int(times[example]):
                refused += 1
                continue
            times[example] += 1
            taken.append(example)
        unseen = sorted(np.flatnonzero(times == 0).tolist(), key=lambda example: -chances[example])
        return [*taken, *unseen][:count]

    def _gain(self, example: int) -> float:
        wx = sum(w.now(g, self._partitions) for w, g in zip(self._weights, self._groups[example], strict=True))
        distance = float(self._state[example, 0]) + self._loss.derivative(wx, self._labels[example])
        steepness = self._norms[example] + self._l2 * self._loss.smoothness
        return float(self._example_weights[example]) * float(np.sqrt(steepness)) * abs(distance)


def _sparse_groups(
    number: int, of_example: HostArray, features: HostArray, values: HostArray, known: HostArray, ctx: OperationContext
) -> list[_Group]:
    """The features of each example in one group of sparse features."""
    ctx.check(of_example.size == features.size, f"Found mismatched example_indices and feature_indices: "
              f"{of_example.size} and {features.size} of them")  # fmt: skip
    ctx.check(values.size == features.size, f"there are {features.size} features, and {values.size} values of them")
    places = {int(feature): at for at, feature in enumerate(known.reshape(-1))}
    unknown = [int(f) for f in features.reshape(-1) if int(f) not in places]
    ctx.check(not unknown, f"Found sparse feature indices out of valid range: {unknown[:8]}")
    bad = (of_example < 0) | (of_example >= number)
    ctx.check(
        not bad.any(), f"there are {number} examples, but features of the examples {of_example[bad][:8].tolist()}"
    )
    at = np.array([places.get(int(f), 0) for f in features.reshape(-1)], np.int64)
    groups = []
    for example in range(number):
        mine = np.flatnonzero(of_example.reshape(-1) == example)
        ctx.check(len(set(at[mine].tolist())) == len(mine), "Duplicate index in sparse vector.")
        groups.append(_Group(at[mine], values.reshape(-1)[mine]))
    return groups


def _dense_groups(number: int, features: HostArray, weights: HostArray, ctx: OperationContext) -> list[_Group]:
    ctx.check(features.ndim == 2, f"Dense features must be rank 2 but have the shape {list(features.shape)}")
    fits = features.shape[0] >= number and features.shape[1] <= weights.size
    ctx.check(fits, f"More dense features than we have parameters for: features of shape {list(features.shape)} for "
              f"{number} examples and {weights.size} weights")  # fmt: skip
    at = np.arange(features.shape[1])
    return [_Group(at, row) for row in features[:number]]


def _optimize(
    sparse_example_indices: list[Array],
    sparse_feature_indices: list[Array],
    sparse_feature_values: list[Array],
    dense_features: list[Array],
    example_weights: Array,
    example_labels: Array,
    sparse_indices: list[Array],
    sparse_weights: list[Array],
    dense_weights: list[Array],
    example_state_data: Array,
    *,
    l1: float,
    l2: float,
    ctx: OperationContext,
) -> Any:
    number = example_weights.size
    attrs = ctx.op.attrs
    ctx.check(bool(sparse_weights or dense_weights), "Requires at least one feature to train.")
    ctx.check(example_labels.size == number, f"Expected {number} example labels but got {example_labels.size}")
    fits = example_state_data.shape == (number, 4)
    ctx.check(fits, f"Expected shape {[number, 4]} for example_state_data, got {list(example_state_data.shape)}")
    sparse = []
    for i, features in enumerate(sparse_feature_indices):
        given = sparse_feature_values[i] if i < len(sparse_feature_values) else np.ones(features.size, np.float32)
        sparse.append(_sparse_groups(number, sparse_example_indices[i], features, given, sparse_indices[i], ctx))
        fits = sparse_weights[i].size == sparse_indices[i].size
        ctx.check(fits, f"there are {sparse_indices[i].size} sparse_indices and {sparse_weights[i].size} weights")
    dense = [_dense_groups(number, f, w, ctx) for f, w in zip(dense_features, dense_weights, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        shrinkage = float(np.float32(l1) / np.float32(l2))
    weights = [_Weights(w, shrinkage) for w in (*sparse_weights, *dense_weights)]
    groups = [[column[e] for column in (*sparse, *dense)] for e in range(number)]
    state = example_state_data.astype(np.float32)
    try:
        training = _Training(ctx, weights, groups, state, (example_weights.reshape(-1), example_labels.reshape(-1)))
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, str(error)) from error
    with np.errstate(all="ignore"):
        for example in training.order(bool(attrs.get("adaptive", attrs.get("adaptative")))):
            training.step(example)
    deltas = [w.delta.reshape(w.shape) for w in weights]
    return state, deltas[: len(sparse)], deltas[len(sparse) :]


def _shapes(*inputs: TensorShape | list[TensorShape]) -> list[Any]:
    return [TensorShape([None, 4]), *inputs[7:9]]


_INPUTS: Final = (
    "sparse_example_indices: num_sparse_features * int64, sparse_feature_indices: num_sparse_features * int64, "
    "sparse_feature_values: num_sparse_features_with_values * float, dense_features: num_dense_features * float, "
    "example_weights: float, example_labels: float, sparse_indices: num_sparse_features * int64, "
    "sparse_weights: num_sparse_features * float, dense_weights: num_dense_features * float, "
    "example_state_data: float"
)
_OUTPUTS: Final = (
    "out_example_state_data: float, out_delta_sparse_weights: num_sparse_features * float, "
    "out_delta_dense_weights: num_dense_features * float"
)
for _name, _adaptive in (("SdcaOptimizer", "adaptative"), ("SdcaOptimizerV2", "adaptive")):
    _op = define_op(
        _name,
        f"{_INPUTS} -> {_OUTPUTS}",
        "loss_type: {'logistic_loss', 'squared_loss', 'hinge_loss', 'smooth_hinge_loss', 'poisson_loss'}, "
        f"{_adaptive}: bool = False, num_sparse_features: int >= 0, num_sparse_features_with_values: int >= 0, "
        "num_dense_features: int >= 0, l1: float, l2: float, num_loss_partitions: int >= 1, "
        "num_inner_iterations: int >= 1",
    )
    _op.shape(_shapes)
    _op.host_kernel(_optimize)
    _op.not_differentiable()
