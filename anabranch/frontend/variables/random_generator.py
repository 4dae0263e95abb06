"""`tf.random.experimental`: random numbers of generators whose state is a variable of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.trackables import AutoTrackable
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_PHILOX: Final = 1
#: algorithm -> how many numbers its state holds
_STATE_SIZES: Final = {_PHILOX: 3, 2: 2}
_WORD: Final = 1 << 64
#: what `get_global_generator` gave last
_generator: Generator | None = None


def _state_size(algorithm: int) -> int:
    if algorithm not in _STATE_SIZES:
        raise ValueError(f"Unsupported algorithm id: {algorithm}; 1 is Philox, which can draw, 2 is ThreeFry")
    return _STATE_SIZES[algorithm]


def _signed(number: TensorLike) -> TensorLike:
    """A number of 64 bits as a signed one; anything else as it is."""
    return number - _WORD if isinstance(number, int) and number >= _WORD // 2 else number


def create_rng_state(seed: int | Sequence[int] | np.ndarray[Any, Any], algorithm: int) -> np.ndarray[Any, Any]:
    """The state of a generator that a seed stands for.

    Args:
        seed: a whole number, whose lowest 64 bits are the first number of the state; or a vector of such numbers.
        algorithm: 1: Philox, whose state has 3 numbers; 2: ThreeFry, 2 numbers.

    Returns:
        A vector of int64. A shorter seed has zeros before it.

    Raises:
        ValueError: there is no such algorithm, or the seed is no vector.

    Example:
        >>> tf.random.experimental.create_rng_state([5, 6], algorithm=1)
        array([0, 5, 6])
    """
    size = _state_size(algorithm)
    if isinstance(seed, int):
        seed = [seed >> 64 * i & _WORD - 1 for i in range(size)]
    numbers = np.asarray([_signed(number) for number in seed], np.int64)
    if numbers.ndim != 1:
        raise ValueError(f"seed should only have one dimension; got shape: {list(numbers.shape)}")
    state = np.zeros(size, np.int64)
    numbers = numbers[:size]
    state[size - len(numbers) :] = numbers
    return state


def _state_tensor(value: TensorLike) -> Tensor:
    if isinstance(value, list):
        value = [_signed(number) for number in value]
    return convert_to_tensor(_signed(value), dtypes.int64)


def _shape_tensor(shape: TensorLike) -> Tensor:
    empty = isinstance(shape, list | tuple) and not shape
    return convert_to_tensor(shape, dtypes.int64 if empty else None, name="shape")


class Generator(AutoTrackable):
    """A generator of random numbers, whose state is a variable that each drawing changes.

    The numbers are those of TensorFlow's generators with the same state. The variable is to be initialized first.

    Args:
        copy_from: a generator, with whose state and algorithm this one begins.
        state: otherwise the state: int64, [3] for Philox: the counter's low and high half, and the key.
        alg: with it, the algorithm: 1, Philox. ThreeFry, 2, is taken, but no operation can draw with it.

    Raises:
        ValueError: neither is given, or both are, the state has another size, or there is no such algorithm.

    Example:
        >>> generator = tf.random.experimental.Generator.from_seed(1234)
        >>> numbers = generator.normal([2, 3])
        >>> numbers.shape.as_list()
        [2, 3]
    """

    def __init__(
        self, copy_from: Generator | None = None, state: TensorLike | None = None, alg: int | None = None
    ) -> None:
        if copy_from is not None:
            if state is not None or alg is not None:
                raise ValueError("a generator is made from another one, or from a state and alg, not from both")
            initial: Any = copy_from.state.initialized_value()
            alg = copy_from.algorithm
        elif state is None or alg is None:
            raise ValueError("a generator needs another one, or both a state and alg; see Generator.from_seed")
        else:
            initial = _state_tensor(state)
            initial.shape.assert_is_compatible_with([_state_size(alg)])
        self._state_var = Variable(initial, dtype=dtypes.int64, trainable=False, use_resource=True, name="rng_state")
        self._algorithm = alg

    @classmethod
    def from_state(cls, state: TensorLike, alg: int) -> Generator:
        """A generator with a state; see the class."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: int | Sequence[int], alg: int | None = None) -> Generator:
        """A generator with the state that `create_rng_state` makes of a seed, of Philox unless `alg` says otherwise."""
        algorithm = _PHILOX if alg is None else alg
        return cls(state=create_rng_state(seed, algorithm), alg=algorithm)

    @classmethod
    def from_non_deterministic_state(cls, alg: int | None = None) -> Generator:
        """A generator that begins anew each time its variable is initialized."""
        algorithm = _PHILOX if alg is None else alg
        size = np.array([_state_size(algorithm)], np.int64)
        return cls(state=raw.NonDeterministicInts(size, dtype="int64"), alg=algorithm)

    @classmethod
    def from_key_counter(cls, key: TensorLike, counter: TensorLike, alg: int) -> Generator:
        """A generator with a key, a scalar, and a counter, a vector of all other numbers of the state."""
        return cls(state=_joined(key, counter, alg), alg=alg)

    @property
    def state(self) -> Variable:
        """The variable: int64, a vector."""
        return self._state_var

    @property
    def algorithm(self) -> int:
        """The number of the algorithm."""
        return self._algorithm

    @property
    def key(self) -> Tensor:
        """The last number of the state, a scalar of int64: generators with other keys draw independently."""
        last: Tensor = raw.GatherV2(
            raw.ReadVariableOp(self._handle, dtype="int64"), _state_size(self._algorithm) - 1, 0
        )
        return last

    @property
    def _handle(self) -> Any:
        return self._state_var.handle

    def reset(self, state: TensorLike) -> Operation:
        """An operation that gives the generator another state; see the class."""
        value = _state_tensor(state)
        value.shape.assert_is_compatible_with([_state_size(self._algorithm)])
        operation: Operation = raw.AssignVariableOp(self._handle, value)
        return operation

    def reset_from_seed(self, seed: int | Sequence[int]) -> Operation:
        """An operation that gives it the state of a seed; see `from_seed`."""
        return self.reset(create_rng_state(seed, self._algorithm))

    def reset_from_key_counter(self, key: TensorLike, counter: TensorLike) -> Operation:
        """An operation that gives it a key and a counter; see `from_key_counter`."""
        return self.reset(_joined(key, counter, self._algorithm))

    def skip(self, delta: TensorLike) -> Operation:
        """An operation that goes on as if `delta` numbers, a scalar of int64, were drawn."""
        operation: Operation = raw.RngSkip(self._handle, self._algorithm, convert_to_tensor(delta, dtypes.int64))
        return operation

    def normal(
        self,
        shape: TensorLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:
        """Numbers of a normal distribution.

        Args:
            shape: of the result.
            mean, stddev: of `dtype`, scalars or of a shape that broadcasts.
            dtype: a floating dtype.
            name: of the result.
        """
        with name_scope(name, "stateful_normal", [shape, mean, stddev]) as scope:
            drawn = raw.StatefulStandardNormalV2(self._handle, self._algorithm, _shape_tensor(shape), dtype=dtype)
            return _scaled(drawn, stddev, mean, as_dtype(dtype), scope)

    def truncated_normal(
        self,
        shape: TensorLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:
        """Numbers of a normal distribution, none of which is further from the mean than two deviations.

        Args:
            shape, mean, stddev, dtype, name: as of `normal`.
        """
        with name_scope(name, "truncated_normal", [shape, mean, stddev]) as scope:
            drawn = raw.StatefulTruncatedNormal(self._handle, self._algorithm, _shape_tensor(shape), dtype=dtype)
            return _scaled(drawn, stddev, mean, as_dtype(dtype), scope)

    def uniform(
        self,
        shape: TensorLike,
        minval: TensorLike = 0,
        maxval: TensorLike | None = None,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:
        """Numbers in [minval, maxval), each as likely as the other.

        Args:
            shape: of the result.
            minval, maxval: scalars of `dtype`; default of the second: 1, of a floating dtype.
            dtype: a floating dtype, int32 or int64.
            name: of the result.

        Raises:
            ValueError: `maxval` is missing for whole numbers.
        """
        kind = as_dtype(dtype)
        if maxval is None:
            if kind.is_integer:
                raise ValueError(f"Must specify maxval for integer dtype {kind!r}")
            maxval = 1
        with name_scope(name, "stateful_uniform", [shape, minval, maxval]) as scope:
            low, high = convert_to_tensor(minval, kind, name="min"), convert_to_tensor(maxval, kind, name="max")
            sizes = _shape_tensor(shape)
            if kind.is_integer:
                whole: Tensor = raw.StatefulUniformInt(self._handle, self._algorithm, sizes, low, high, name=scope)
                return whole
            drawn = raw.StatefulUniform(self._handle, self._algorithm, sizes, dtype=kind)
            return _scaled(drawn, raw.Sub(high, low), low, kind, scope)

    def uniform_full_int(self, shape: TensorLike, dtype: DTypeLike = dtypes.uint64, name: str | None = None) -> Tensor:
        """Whole numbers, any that the dtype has: int32, int64, uint32 or uint64."""
        with name_scope(name, "stateful_uniform_full_int", [shape]) as scope:
            drawn: Tensor = raw.StatefulUniformFullInt(
                self._handle, self._algorithm, _shape_tensor(shape), dtype=dtype, name=scope
            )
            return drawn

    def binomial(
        self,
        shape: TensorLike,
        counts: TensorLike,
        probs: TensorLike,
        dtype: DTypeLike = dtypes.int32,
        name: str | None = None,
    ) -> Tensor:
        """Of so many trials, how many succeed.

        Args:
            shape: of the result, at least one dimension.
            counts, probs: of one dtype: how many trials, and how likely each is to succeed; one number, or a vector of
                as many as the first dimension has.
            dtype: of the result: half, float32, float64, int32 or int64.
            name: of the result.
        """
        with name_scope(name, "binomial", [shape, counts, probs]) as scope:
            drawn: Tensor = raw.StatefulRandomBinomial(
                self._handle, self._algorithm, _shape_tensor(shape), counts, probs, dtype=dtype, name=scope
            )
            return drawn

    def make_seeds(self, count: int = 1) -> Tensor:
        """Seeds for `tf.random.stateless_normal` and its like: int64, [2, count]; a column is a seed."""
        keys = self.uniform_full_int([count], dtypes.int64)
        seeds: Tensor = raw.Pack([keys, raw.ZerosLike(keys)])
        return seeds

    def split(self, count: int = 1) -> list[Generator]:
        """Generators that draw independently of this one and of each other.

        Their keys are drawn when their variables are initialized; this one's is initialized then, if it was not.
        """
        ready = cond(raw.VarIsInitializedOp(self._handle), raw.NoOp, lambda: self._state_var.initializer)
        with control_dependencies([ready]):
            keys = raw.Unpack(self.uniform_full_int([count], dtypes.int64), num=count)
        before = np.zeros(_state_size(self._algorithm) - 1, np.int64)
        return [Generator(state=_joined(key, before, self._algorithm), alg=self._algorithm) for key in keys]


def _joined(key: TensorLike, counter: TensorLike, algorithm: int) -> Tensor:
    first, last = _state_tensor(counter), _state_tensor(key)
    first.shape.assert_is_compatible_with([_state_size(algorithm) - 1])
    last.shape.assert_is_compatible_with([])
    state: Tensor = raw.ConcatV2([first, raw.Reshape(last, [1])], 0)
    return state


def _scaled(drawn: Tensor, factor: TensorLike, offset: TensorLike, dtype: DType, scope: str) -> Tensor:
    factor, offset = convert_to_tensor(factor, dtype, name="factor"), convert_to_tensor(offset, dtype, name="offset")
    result: Tensor = raw.AddV2(raw.Mul(drawn, factor), offset, name=scope)
    return result


def get_global_generator() -> Generator:
    """The generator of the default graph: that of `set_global_generator`, or else one that begins anew each time."""
    global _generator
    if _generator is None or _generator.state.graph is not get_default_graph():
        _generator = Generator.from_non_deterministic_state()
    return _generator


def set_global_generator(generator: Generator) -> None:
    """Makes a generator that which `get_global_generator` gives, as long as its graph is the default one."""
    global _generator
    _generator = generator
