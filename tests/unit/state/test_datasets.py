"""Iterators over datasets against plain Python: what they yield, and that a saved position goes on from there."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anabranch.errors import (
    CancelledError,
    DataLossError,
    InvalidArgumentError,
    OutOfRangeError,
)
from anabranch.state.dataset_background import ParallelMapDataset, PrefetchDataset
from anabranch.state.dataset_batches import (
    BatchDataset,
    PaddedBatchDataset,
    UnbatchDataset,
    WindowDataset,
    boxed,
)
from anabranch.state.dataset_functions import (
    FilterDataset,
    GroupByWindowDataset,
    InterleaveDataset,
    MapDataset,
    ScanDataset,
)
from anabranch.state.dataset_transforms import (
    CacheDataset,
    ConcatenateDataset,
    DirectedInterleaveDataset,
    IgnoreErrorsDataset,
    RepeatDataset,
    ShardDataset,
    ShuffleDataset,
    SkipDataset,
    TakeDataset,
    UniqueDataset,
    ZipDataset,
)
from anabranch.state.datasets import (
    Element,
    Elements,
    ListDataset,
    Outcome,
    RandomNumbers,
    RandomSequence,
    RangeDataset,
    TensorSliceDataset,
    outcome_of,
)
from anabranch.state.iterators import IteratorResource
from anabranch.state.positions import decode_position, encode_position
from tests.unit.state.dataset_walks import MANY, continued, plain, rest_of, taken


# ------------------------------------------------------------------------------------------------ background, inline
class Lazy:
    """A background that works only when somebody waits; and pulls ahead as far as it may then."""

    def produce(self, pull: Callable[[], Element | None], capacity: int) -> Ahead:
        return Ahead(pull, capacity)

    def workers(self, count: int) -> Inline:
        return Inline()


@dataclass
class Ahead:
    pull: Callable[[], Element | None]
    capacity: int
    ready: deque[Outcome] = field(default_factory=deque)
    closed: bool = False

    def take(self) -> Outcome:
        while len(self.ready) < self.capacity and not (self.ready and self.ready[-1].is_end):
            self.ready.append(outcome_of(self.pull))
        return self.ready[0] if self.ready[0].is_end else self.ready.popleft()

    def halt(self) -> list[Outcome]:
        return list(self.ready)

    def close(self) -> None:
        self.closed = True


class Inline:
    def submit(self, function: Callable[..., Element], arguments: Element) -> Call:
        return Call(outcome_of(lambda: function(*arguments)))

    def close(self) -> None: ...


@dataclass
class Call:
    outcome: Outcome

    def result(self) -> Element:
        return self.outcome.value()


# ------------------------------------------------------------------------------------------------ random pipelines
Stage = tuple[Callable[[Elements], Elements], Callable[[list[Any]], list[Any]]]


def double(x: Any) -> Element:
    return (np.asarray(x * 2),)


def odd(x: Any) -> Element:
    return (np.asarray(x % 2 == 1),)


def two_of(x: Any) -> Element:
    return (boxed(TensorSliceDataset([np.array([int(x), int(x) + 100])])),)


def interleaved(values: list[int], cycle: int, block: int) -> list[int]:
    """Slots take turns; an empty one is filled when its turn comes."""
    waiting, slots, out = deque(values), [deque[int]() for _ in range(cycle)], list[int]()
    turn = 0
    while waiting or any(slots):
        slot = slots[turn]
        if not slot and waiting:
            slot.extend([(x := waiting.popleft()), x + 100])
        given = 0
        while slot and given < block:
            out.append(slot.popleft())
            given += 1
        turn = (turn + 1) % cycle if not (slot and given < block) else turn
    return out


SMALL = st.integers(0, 7)
POSITIVE = st.integers(1, 5)

STAGES = st.one_of(
    SMALL.map(lambda n: (lambda d: TakeDataset(d, n), lambda v: v[:n])),
    SMALL.map(lambda n: (lambda d: SkipDataset(d, n), lambda v: v[n:])),
    st.integers(0, 3).map(lambda n: (lambda d: RepeatDataset(d, n), lambda v: v * n)),
    POSITIVE.map(lambda n: (lambda d: ShardDataset(d, n, n - 1), lambda v: v[n - 1 :: n])),
    st.just((lambda d: MapDataset(d, double), lambda v: [x * 2 for x in v])),
    POSITIVE.map(lambda n: (lambda d: ParallelMapDataset(d, double, n, Lazy()), lambda v: [x * 2 for x in v])),
    POSITIVE.map(lambda n: (lambda d: PrefetchDataset(d, n, Lazy()), lambda v: v)),
    st.just((lambda d: FilterDataset(d, odd), lambda v: [x for x in v if x % 2])),
    st.just((lambda d: FilterDataset(d, odd, True), lambda v: list(itertools.takewhile(lambda x: x % 2, v)))),
    st.just((lambda d: InterleaveDataset(d, two_of), lambda v: [y for x in v for y in (x, x + 100)])),
    st.just((lambda d: ConcatenateDataset([d, RangeDataset(0, 3, 1)]), lambda v: [*v, 0, 1, 2])),
    st.just((lambda d: UnbatchDataset(BatchDataset(d, 3, False)), lambda v: v)),
    st.just((CacheDataset, lambda v: v)),
    st.just((IgnoreErrorsDataset, lambda v: v)),
    st.just((UniqueDataset, lambda v: list(dict.fromkeys(v)))),
    st.just(
        (
            lambda d: ScanDataset(d, (np.int64(0),), lambda s, x: (np.asarray(s + x), np.asarray(s + x))),
            lambda v: list(itertools.accumulate(v)),
        )
    ),
    st.just(
        (
            lambda d: MapDataset(ZipDataset([d, RangeDataset(0, 9, 1)]), lambda a, b: (np.asarray(a + b),)),
            lambda v: [a + b for a, b in zip(v, range(9), strict=False)],
        )
    ),
)
PIPELINES = st.tuples(st.integers(0, 12), st.lists(STAGES, max_size=5))


def built(pipeline: tuple[int, list[Stage]]) -> tuple[Elements, list[Any]]:
    count, stages = pipeline
    dataset: Elements = RangeDataset(0, count, 1)
    expected = list(range(count))
    for make, model in stages:
        dataset, expected = make(dataset), model(expected)
    return dataset, expected


@given(PIPELINES)
def test_random_pipelines_yield_what_lists_do(pipeline: Any) -> None:
    dataset, expected = built(pipeline)
    assert taken(dataset) == expected[:MANY]
    count = dataset.cardinality()
    assert count in (-2, len(expected))


@given(PIPELINES, st.integers(0, 20))
def test_a_saved_position_continues_as_if_nothing_happened(pipeline: Any, steps: int) -> None:
    dataset, expected = built(pipeline)
    iterator = dataset.iterator()
    for _ in range(steps):
        iterator.next()
    saved = encode_position(iterator.position())
    assert rest_of(iterator) == expected[steps:]
    again, _ = built(pipeline)
    restored = again.iterator()
    restored.restore(decode_position(saved))
    assert rest_of(restored) == expected[steps:]


@given(st.lists(SMALL, max_size=9), POSITIVE, POSITIVE, st.integers(0, 12))
def test_datasets_take_turns(values: list[int], cycle: int, block: int, steps: int) -> None:
    def make() -> Elements:
        return InterleaveDataset(TensorSliceDataset([np.array(values, np.int64)]), two_of, cycle, block)

    expected = interleaved(values, cycle, block)
    assert taken(make()) == expected
    assert continued(make, steps) == expected[steps:]


#: datasets, elements of each, datasets at a time, elements of a turn; what TensorFlow's `parallel_interleave` gives
CARRIED = [
    (5, 4, 3, 3, "00011122201233444334"),
    (7, 3, 4, 2, "001122330123455664456"),
    (8, 4, 3, 3, "00011122201233344455534566777667"),
    (5, 2, 3, 5, "0011223344"),
    (6, 3, 2, 2, "001101223323445545"),
]


@pytest.mark.parametrize(("datasets", "length", "cycle", "block", "expected"), CARRIED)
def test_a_turn_that_nothing_follows_is_ended_by_the_next_dataset(
    datasets: int, length: int, cycle: int, block: int, expected: str
) -> None:
    def make() -> Elements:
        source = RangeDataset(0, datasets, 1)
        return InterleaveDataset(
            source, lambda v: (boxed(RepeatDataset(ListDataset([(v,)]), length)),), cycle, block, carries=True
        )

    wanted = [int(digit) for digit in expected]
    assert taken(make()) == wanted
    for steps in range(len(wanted)):
        assert continued(make, steps) == wanted[steps:]


# ------------------------------------------------------------------------------------------------ order
@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 5), st.integers(0, 70))
def test_a_shuffle_is_a_permutation_that_a_position_keeps(count: int, size: int, seed: int, steps: int) -> None:
    def make() -> Elements:
        shuffled = ShuffleDataset(RangeDataset(0, count, 1), size, (seed, 1), True)
        return RepeatDataset(shuffled, 3)

    whole = taken(make())
    for i in range(3):
        assert sorted(whole[i * count : (i + 1) * count]) == list(range(count))
    assert continued(make, steps) == whole[steps:]


@given(st.integers(2, 12), st.integers(1, 12))
def test_a_shuffle_draws_from_its_buffer(count: int, size: int) -> None:
    for place, value in enumerate(taken(ShuffleDataset(RangeDataset(0, count, 1), size, (3, 4), True))):
        assert value < place + size


def test_every_pass_has_its_own_order_unless_it_must_not() -> None:
    source = RangeDataset(0, 20, 1)
    anew = taken(RepeatDataset(ShuffleDataset(source, 20, (1, 2), True), 2))
    same = taken(RepeatDataset(ShuffleDataset(source, 20, (1, 2), False), 2))
    assert anew[:20] != anew[20:]
    assert same[:20] == same[20:]


def test_a_position_brings_a_random_seed_with_it() -> None:
    first = RepeatDataset(ShuffleDataset(RangeDataset(0, 20, 1), 20, (5, 6), True), 3)
    other = RepeatDataset(ShuffleDataset(RangeDataset(0, 20, 1), 20, (7, 8), True), 3)
    iterator, restored = first.iterator(), other.iterator()
    for _ in range(5):
        iterator.next()
    restored.restore(iterator.position())
    assert rest_of(restored) == rest_of(iterator)


def test_random_numbers_are_spread_evenly() -> None:
    numbers = RandomSequence(1, 2)
    counts = np.bincount([numbers.below(10) for _ in range(10_000)], minlength=10)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert taken(RandomNumbers(3), 5) == taken(RandomNumbers(3), 5) != taken(RandomNumbers(4), 5)
    assert continued(lambda: TakeDataset(RandomNumbers(3), 9), 4) == taken(RandomNumbers(3), 9)[4:]


# ------------------------------------------------------------------------------------------------ together, apart
@given(st.integers(0, 12), POSITIVE, st.booleans(), st.integers(0, 5))
def test_batches(count: int, size: int, drop: bool, steps: int) -> None:
    def make() -> Elements:
        return BatchDataset(RangeDataset(0, count, 1), size, drop)

    expected = [list(range(i, min(i + size, count))) for i in range(0, count, size)]
    expected = [b for b in expected if not drop or len(b) == size]
    assert taken(make()) == expected
    assert make().cardinality() == len(expected)
    assert continued(make, steps) == expected[steps:]


@given(st.integers(0, 12), POSITIVE, POSITIVE, POSITIVE, st.booleans(), st.integers(0, 5))
def test_windows(count: int, size: int, shift: int, stride: int, drop: bool, steps: int) -> None:
    def make() -> Elements:
        return WindowDataset(RangeDataset(0, count, 1), size, shift, stride, drop)

    span = (size - 1) * stride + 1
    expected = [list(range(i, min(i + span, count), stride)) for i in range(0, count, shift)]
    expected = [w for i, w in zip(range(0, count, shift), expected, strict=True) if not drop or i + span <= count]
    assert taken(make()) == expected
    assert make().cardinality() == len(expected)
    assert continued(make, steps) == expected[steps:]


def test_batches_of_texts_and_of_several_components() -> None:
    source = TensorSliceDataset([np.array([b"a", b"bc", b""], object), np.arange(6).reshape(3, 2)])
    first, second = taken(BatchDataset(source, 2, False))
    assert first == ([b"a", b"bc"], [[0, 1], [2, 3]])
    assert second == ([b""], [[4, 5]])


def test_shapes_that_differ_in_a_batch() -> None:
    ragged = MapDataset(RangeDataset(1, 4, 1), lambda n: (np.arange(n),))
    with pytest.raises(InvalidArgumentError, match=r"component 0. First element had shape \[1\] and element 1 .*\[2\]"):
        taken(BatchDataset(ragged, 3, False))
    assert taken(PaddedBatchDataset(ragged, 2, [[-1]], [7], False)) == [[[0, 7], [0, 1]], [[0, 1, 2]]]
    assert taken(PaddedBatchDataset(ragged, 2, [[4]], [7], True)) == [[[0, 7, 7, 7], [0, 1, 7, 7]]]
    with pytest.raises(DataLossError, match="smaller size"):
        taken(PaddedBatchDataset(ragged, 2, [[1]], [7], True))
    with pytest.raises(InvalidArgumentError, match="same rank"):
        taken(PaddedBatchDataset(ragged, 2, [[1, 1]], [7], True))


@given(st.lists(st.integers(0, 3), max_size=12), POSITIVE, st.integers(0, 6))
def test_groups_are_given_out_when_they_are_full(keys: list[int], size: int, steps: int) -> None:
    def make() -> Elements:
        source = TensorSliceDataset([np.array(keys, np.int64), np.arange(len(keys))])
        return GroupByWindowDataset(
            source,
            lambda k, _: (k,),
            lambda k: (np.asarray(size),),
            lambda k, window: (boxed(BatchDataset(window.item(), size, False)),),
        )

    open_groups: dict[int, list[int]] = {}
    expected = []
    for i, key in enumerate(keys):
        open_groups.setdefault(key, []).append(i)
        if len(open_groups[key]) == size:
            members = open_groups.pop(key)
            expected.append(([key] * size, members))
    expected += [([key] * len(members), members) for key, members in sorted(open_groups.items())]
    assert taken(make()) == expected
    assert continued(make, steps) == expected[steps:]


# ------------------------------------------------------------------------------------------------ errors
def fails_at(*bad: int) -> Callable[..., Element]:
    def function(x: Any) -> Element:
        if int(x) in bad:
            raise InvalidArgumentError(None, None, f"no {int(x)}")
        return (np.asarray(x),)

    return function


@pytest.mark.parametrize(
    "make",
    [
        lambda d: MapDataset(d, fails_at(1, 3)),
        lambda d: ParallelMapDataset(d, fails_at(1, 3), 3, Lazy()),
        lambda d: PrefetchDataset(MapDataset(d, fails_at(1, 3)), 2, Lazy()),
        lambda d: BatchDataset(MapDataset(d, fails_at(1, 3)), 1, False),
        lambda d: RepeatDataset(MapDataset(d, fails_at(1, 3)), 1),
        lambda d: ZipDataset([MapDataset(d, fails_at(1, 3))]),
    ],
)
def test_an_error_stands_in_the_place_of_its_element(make: Callable[[Elements], Elements]) -> None:
    iterator = make(RangeDataset(0, 5, 1)).iterator()
    outcomes = [outcome_of(iterator.next) for _ in range(7)]
    assert [type(o.error) for o in outcomes] == [
        type(None),
        InvalidArgumentError,
        type(None),
        InvalidArgumentError,
        *[type(None)] * 3,
    ]
    assert str(outcomes[1].error) == "no 1"
    assert [o.is_end for o in outcomes] == [False] * 5 + [True] * 2


@pytest.mark.parametrize("parallelism", [0, 3])
def test_a_function_that_is_out_of_range_ends_its_dataset_for_good(parallelism: int) -> None:
    def until_3(x: Any) -> Element:
        if int(x) == 3:
            raise OutOfRangeError(None, None, "the function ends")
        return (x,)

    def make() -> Elements:
        numbers = RangeDataset(0, 10, 1)
        return (
            ParallelMapDataset(numbers, until_3, parallelism, Lazy()) if parallelism else MapDataset(numbers, until_3)
        )

    assert taken(BatchDataset(make(), 2, False)) == [[0, 1], [2]]
    ended = make().iterator()
    assert rest_of(ended) == [0, 1, 2]
    assert ended.next() is None
    restored = make().iterator()
    restored.restore(decode_position(encode_position(ended.position())))
    assert restored.next() is None


def test_errors_are_part_of_a_position() -> None:
    def make() -> Elements:
        return PrefetchDataset(MapDataset(RangeDataset(0, 5, 1), fails_at(2)), 4, Lazy())

    iterator = make().iterator()
    assert plain(iterator.next() or ()) == 0
    restored = make().iterator()
    restored.restore(decode_position(encode_position(iterator.position())))
    outcomes = [outcome_of(restored.next) for _ in range(5)]
    assert isinstance(outcomes[1].error, InvalidArgumentError)
    assert [plain(o.element) for o in outcomes if o.element is not None] == [1, 3, 4]


def test_a_failed_element_takes_its_batch_with_it_where_batches_are_fixed() -> None:
    for fixed, rest in ((True, [[3, 4, 5], [6]]), (False, [[2, 3, 4], [5, 6]])):
        mapped = MapDataset(RangeDataset(0, 7, 1), fails_at(1))
        iterator = BatchDataset(mapped, 3, False, fixed).iterator()
        with pytest.raises(InvalidArgumentError, match="no 1"):
            iterator.next()
        assert rest_of(iterator) == rest


def test_failed_elements_can_be_left_out() -> None:
    assert taken(IgnoreErrorsDataset(MapDataset(RangeDataset(0, 5, 1), fails_at(0, 3)))) == [1, 2, 4]


def test_what_datasets_refuse() -> None:
    numbers = RangeDataset(0, 5, 1)
    for make in (
        lambda: RangeDataset(0, 5, 0),
        lambda: BatchDataset(numbers, 0, False),
        lambda: ShardDataset(numbers, 2, 2),
        lambda: ShardDataset(numbers, 0, 0),
        lambda: ShuffleDataset(numbers, 0, (0, 0), True),
        lambda: WindowDataset(numbers, 1, 0, 1, False),
        lambda: InterleaveDataset(numbers, two_of, 0),
        lambda: TensorSliceDataset([np.arange(3), np.arange(4)]),
        lambda: taken(InterleaveDataset(numbers, double)),
        lambda: taken(FilterDataset(numbers, lambda x: (np.array([True]),))),
        lambda: taken(UnbatchDataset(numbers)),
        lambda: taken(DirectedInterleaveDataset(numbers, [numbers])),
    ):
        with pytest.raises(InvalidArgumentError):
            make()


# ------------------------------------------------------------------------------------------------ resources, bytes
def test_an_iterator_resource() -> None:
    resource = IteratorResource()
    with pytest.raises(Exception, match="has not been initialized"):
        resource.next()
    resource.initialize(RangeDataset(0, 3, 1))
    assert plain(resource.next() or ()) == 0
    saved = resource.save()
    resource.initialize_once(lambda: RangeDataset(7, 9, 1))
    assert plain(resource.next() or ()) == 1
    resource.restore(saved)
    assert plain(resource.next() or ()) == 1
    resource.close()
    with pytest.raises(CancelledError):
        resource.next()
    resource.initialize(RangeDataset(7, 9, 1))
    assert plain(resource.next() or ()) == 7


def test_a_position_of_another_pipeline_is_refused() -> None:
    resource, other = IteratorResource(), IteratorResource()
    resource.initialize(ShuffleDataset(RangeDataset(0, 3, 1), 2, (1, 1), True))
    other.initialize(RangeDataset(0, 3, 1))
    with pytest.raises(Exception, match="build the same pipeline"):
        other.restore(resource.save())
    assert plain(other.next() or ()) == 0


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False)
    | st.sampled_from([np.arange(6).reshape(2, 3), np.float32(1.5), np.array([b"x", b""], object), np.zeros((0, 2))]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_positions_survive_as_bytes(value: Any) -> None:
    np.testing.assert_equal(decode_position(encode_position(value)), value)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_damaged_positions_are_found_out(noise: bytes, cut: int) -> None:
    with pytest.raises(DataLossError):
        decode_position(noise)
    whole = encode_position([1, np.arange(5), "x"])
    if cut < len(whole):
        with pytest.raises(DataLossError):
            decode_position(whole[:cut])


def test_windows_have_bytes_and_other_datasets_none() -> None:
    assert continued(lambda: CacheDataset(WindowDataset(RangeDataset(0, 5, 1), 2, 2, 1, False)), 1) == [[2, 3], [4]]
    with pytest.raises(Exception, match="cannot be saved: an element that it holds contains a BatchDataset"):
        encode_position((boxed(BatchDataset(RangeDataset(0, 4, 1), 2, False)),))


def test_a_list_that_is_none_is_found_out() -> None:
    saved = encode_position((boxed(ListDataset([(np.asarray(1),)])),))
    with pytest.raises(DataLossError, match="damaged"):
        decode_position(saved.replace(b'["list",[[', b'["list",5,['))
    with pytest.raises(DataLossError, match="damaged"):
        decode_position(saved.replace(b'"list"', b'"tsil"'))


def test_a_range_of_more_numbers_than_an_int64_counts() -> None:
    numbers = RangeDataset(-1, 2**63 - 1, 1)
    assert numbers.cardinality() == 2**63 - 1
    assert taken(TakeDataset(numbers, 3)) == [-1, 0, 1]
    assert continued(lambda: TakeDataset(RangeDataset(-(2**63), 2**63 - 1, 2**62), 9), 2) == [0, 2**62]


def test_a_list_has_its_number() -> None:
    assert ListDataset([(np.asarray(1),)]).cardinality() == 1
