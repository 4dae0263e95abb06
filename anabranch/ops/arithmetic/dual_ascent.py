"""Linear models by stochastic dual coordinate ascent  (Shalev-Shwartz, Zhang, 2013; Ma et al., 2015, for several
partitions), and fingerprints of examples.

The examples of a call are taken in a random order, each once; where it is adaptive, those with much to gain more often
(Csiba, Qu, Richtarik, "Stochastic dual coordinate ascent with adaptive probabilities", 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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


class _Features(NamedTuple):
    """The features of all examples in one group of them.

    Attributes:
        examples: of each feature, the example that has it.
        places: which of the group's weights it meets.
        values: the factors that these weights meet.
    """

    examples: HostArray
    places: HostArray
    values: HostArray


class _Model:
    """The weights of all groups in one row, what was added to them, and the features of every example."""

    def __init__(self, number: int, groups: list[_Features], weights: list[HostArray], shrinkage: float) -> None:
        self._shapes = [one.shape for one in weights]
        self._ends = np.cumsum([one.size for one in weights])
        self._nominal = np.concatenate([one.reshape(-1) for one in weights]).astype(np.float32)
        self._delta = np.zeros_like(self._nominal)
        self._shrinkage = shrinkage
        begins = self._ends - [one.size for one in weights]
        examples = np.concatenate([one.examples for one in groups])
        order = np.argsort(examples, kind="stable")
        self._of = examples[order]
        places = np.concatenate([one.places + begin for one, begin in zip(groups, begins, strict=True)])[order]
        values = np.concatenate([one.values for one in groups])[order].astype(np.float64)
        bounds = np.searchsorted(self._of, np.arange(1, number))
        self._places, self._values = np.split(places, bounds), np.split(values, bounds)
        #: of each example, the sum of the squares of its values
        self.norms = self._per_example(number, values**2)
        #: of each example, the product with the weights as they were
        self.before = self._per_example(number, values * self._shrunk(self._nominal)[places])

    def product(self, example: int, partitions: int) -> float:
        """The product of an example with the weights as they are."""
        places = self._places[example]
        changed = self._nominal[places] + self._delta[places] * np.float64(partitions)
        return float(self._values[example] @ self._shrunk(changed))

    def add(self, example: int, step: float) -> None:
        """Adds an example, times `step`, to the weights."""
        self._delta[self._places[example]] += self._values[example] * step

    def deltas(self) -> list[HostArray]:
        """What was added to the weights of each group."""
        parts = np.split(self._delta, self._ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _per_example(self, number: int, terms: HostArray) -> HostArray:
        return np.bincount(self._of, terms, number)

    def _shrunk(self, weights: HostArray) -> HostArray:
        shrunk: HostArray = np.sign(weights) * np.maximum(np.abs(weights) - self._shrinkage, 0)
        return shrunk


class _Training:
    """One call of the optimizer."""

    def __init__(
        self, ctx: OperationContext, model: _Model, state: HostArray, example_weights: HostArray, labels: HostArray
    ) -> None:
        attrs: dict[str, Any] = dict(ctx.op.attrs)
        self._loss: DualLoss = LOSSES[attrs["loss_type"].decode()]
        self._l2 = float(np.float32(attrs["l2"]))
        self._partitions = int(attrs["num_loss_partitions"])
        self._model, self._state = model, state
        self._example_weights = example_weights
        self._labels = [self._loss.label(float(label)) for label in labels]

    def step(self, example: int) -> None:
        """Trains with an example."""
        model, weight, label = self._model, float(self._example_weights[example]), self._labels[example]
        dual, norm = float(self._state[example, 0]), float(model.norms[example])
        wx = model.product(example, self._partitions)
        new = self._loss.updated(dual, label, wx, self._partitions * norm / self._l2 * weight)
        model.add(example, (new - dual) * weight / self._l2)
        primal = self._loss.primal(float(model.before[example]), label)
        self._state[example] = new, primal * weight, self._loss.conjugate(dual, label) * weight, weight

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
        wx = self._model.product(example, self._partitions)
        distance = float(self._state[example, 0]) + self._loss.derivative(wx, self._labels[example])
        steepness = float(self._model.norms[example]) + self._l2 * self._loss.smoothness
        return float(self._example_weights[example]) * float(np.sqrt(steepness)) * abs(distance)


def _sparse_features(
    number: int, of_example: HostArray, features: HostArray, values: HostArray, known: HostArray, ctx: OperationContext
) -> _Features:
    """One group of sparse features, which are looked up among the `known` ones, those that have a weight."""
    of_example, features, values, known = (one.reshape(-1) for one in (of_example, features, values, known))
    ctx.check(of_example.size == features.size, f"Found mismatched example_indices and feature_indices: "
              f"{of_example.size} and {features.size} of them")  # fmt: skip
    ctx.check(values.size == features.size, f"there are {features.size} features, and {values.size} values of them")
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known[order], features, "right") - 1  # the last one, should a feature have several weights
    unknown = features[(at < 0) | (known[order[at]] != features)] if known.size else features
    ctx.check(not unknown.size, f"Found sparse feature indices out of valid range: {unknown[:8].tolist()}")
    bad = (of_example < 0) | (of_example >= number)
    ctx.check(
        not bad.any(), f"there are {number} examples, but features of the examples {of_example[bad][:8].tolist()}"
    )
    places = order[at] if known.size else at
    pairs = np.unique(np.stack([of_example, places]), axis=1)
    ctx.check(pairs.shape[1] == places.size, "Duplicate index in sparse vector.")
    return _Features(of_example, places, values)


def _dense_features(number: int, features: HostArray, weights: HostArray, ctx: OperationContext) -> _Features:
    """One group of dense features: each example has all of them."""
    ctx.check(features.ndim == 2, f"Dense features must be rank 2 but have the shape {list(features.shape)}")
    fits = features.shape[0] >= number and features.shape[1] <= weights.size
    ctx.check(fits, f"More dense features than we have parameters for: features of shape {list(features.shape)} for "
              f"{number} examples and {weights.size} weights")  # fmt: skip
    examples, places = np.indices((number, features.shape[1])).reshape(2, -1)
    return _Features(examples, places, features[:number].reshape(-1))


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
        sparse.append(_sparse_features(number, sparse_example_indices[i], features, given, sparse_indices[i], ctx))
        fits = sparse_weights[i].size == sparse_indices[i].size
        ctx.check(fits, f"there are {sparse_indices[i].size} sparse_indices and {sparse_weights[i].size} weights")
    dense = [_dense_features(number, f, w, ctx) for f, w in zip(dense_features, dense_weights, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        shrinkage = float(np.float32(l1) / np.float32(l2))
    model = _Model(number, [*sparse, *dense], [*sparse_weights, *dense_weights], shrinkage)
    state = example_state_data.astype(np.float32)
    try:
        training = _Training(ctx, model, state, example_weights.reshape(-1), example_labels.reshape(-1))
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, str(error)) from error
    with np.errstate(all="ignore"):
        for example in training.order(bool(attrs.get("adaptive", attrs.get("adaptative")))):
            training.step(example)
    deltas = model.deltas()
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
