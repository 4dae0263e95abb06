"""Which rows belong to which keys, while keys come and go and steps hold rows  (`state.row_directory`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anabranch.state.row_directory import DEFAULT_ROW, FIRST_ROW, UNREAD_ROW, RowDirectory, bucket_of, split_keys


def find(directory: RowDirectory, *keys: int, now: float = 0.0, counts: bool = True) -> list[int]:
    """The rows of keys, given back at once."""
    return directory.find(np.array(keys, np.int64), now, counts).rows.tolist()


def test_a_key_gets_a_row_when_it_was_seen_often_enough() -> None:
    directory = RowDirectory("t", admission=3)
    assert find(directory, 7, 7, 8) == [DEFAULT_ROW] * 3  # once, though it comes twice
    assert find(directory, 7, counts=False) == [DEFAULT_ROW]
    assert find(directory, 7) == [DEFAULT_ROW]
    found = directory.find(np.array([7, 8], np.int64), 0.0)
    assert found.rows.tolist() == [FIRST_ROW, DEFAULT_ROW]
    assert found.targets.tolist() == [FIRST_ROW, UNREAD_ROW]
    assert directory.size() == 1


def test_what_a_step_holds_is_not_evicted_until_it_ends() -> None:
    directory = RowDirectory("t")
    held = directory.find(np.array([1, 1, 2], np.int64), 0.0)
    find(directory, 3)
    assert directory.evict(5.0, 10.0) == 1
    assert find(directory, 1, 2, 3, counts=False) == [FIRST_ROW, FIRST_ROW + 1, DEFAULT_ROW]
    again = directory.find(np.array([1], np.int64), 0.0, counts=False)
    del held
    assert directory.evict(5.0, 10.0) == 1  # the second key; another step holds the first
    again.hold.release()
    again.hold.release()
    assert directory.evict(5.0, 10.0) == 1
    assert directory.size() == 0


def test_the_row_of_an_evicted_key_is_a_tombstone_until_it_is_buried() -> None:
    directory = RowDirectory("t", grace=5.0)
    find(directory, 1)
    directory.evict(1.0, 10.0)
    assert directory.bury(14.0) == []
    assert find(directory, 2, now=14.0) == [FIRST_ROW + 1]
    assert directory.bury(15.0) == [FIRST_ROW]
    assert find(directory, 3, now=15.0) == [FIRST_ROW + 2]  # nobody has said that it has fresh values
    assert directory.bury(15.0) == [FIRST_ROW]
    directory.buried([FIRST_ROW])
    directory.buried([FIRST_ROW])
    assert find(directory, 4, 5, now=15.0) == [FIRST_ROW, FIRST_ROW + 3]


def test_keys_that_were_only_counted_are_forgotten_too() -> None:
    directory = RowDirectory("t", admission=2)
    find(directory, 1, now=0.0)
    directory.evict(5.0, 10.0)
    assert find(directory, 1, now=10.0) == [DEFAULT_ROW]
    assert find(directory, 1, now=3.0) == [FIRST_ROW]  # a clock that goes back stands still


def test_what_is_exported_by_buckets_is_restored_whatever_they_were() -> None:
    directory = RowDirectory("t", admission=2)
    keys = np.arange(-500, 500, 5, dtype=np.int64)
    for now in (1.0, 2.0):
        directory.find(keys, now)
    find(directory, 11, 12, now=3.0)
    parts = [directory.export(bucket, 8) for bucket in range(8)]
    assert min(len(part.keys) for part in parts) > 10, "multiples of a number are spread as well"
    assert directory.evict(0.0, 99.0) == 0, "what is being saved is held"
    restored = RowDirectory("t", admission=2)
    restored.slots["slot"] = np.zeros(1)
    find(restored, 1)
    restored.restore(*(np.concatenate([part[i] for part in parts]) for i in (0, 1, 3)))
    assert restored.size() == len(keys)
    assert restored.capacity == 256
    assert not restored.slots
    saved = np.concatenate([part.keys for part in parts])
    np.testing.assert_array_equal(find(restored, *saved, counts=False), FIRST_ROW + np.arange(len(keys)))
    assert find(restored, 11, 1, now=3.0) == [FIRST_ROW + len(keys), DEFAULT_ROW]


@pytest.mark.parametrize(
    ("keys", "seen", "counted"),
    [
        ([1, 1], [0.0, 0.0], []),
        ([1], [0.0], [(1, 1)]),
        ([], [], [(1, 1), (1, 2)]),
        ([1, 2], [0.0], []),
        ([1], [float("nan")], []),
        ([[1]], [[0.0]], []),
    ],
)
def test_what_is_no_directory_is_not_restored(keys: list[Any], seen: list[Any], counted: list[Any]) -> None:
    directory = RowDirectory("t")
    find(directory, 5)
    with pytest.raises(ValueError, match="twice|expected|no number"):
        directory.restore(
            np.array(keys, np.int64), np.array(seen, np.float64), np.array(counted, np.int64).reshape(-1, 2)
        )
    assert find(directory, 5) == [FIRST_ROW]


def test_numbers_out_of_range_are_refused() -> None:
    for arguments in ((0, 0.0), (1, -1.0)):
        with pytest.raises(ValueError, match="admission must be 1 or more"):
            RowDirectory("t", *arguments)


@pytest.mark.parametrize("parts", [1, 3])
def test_keys_are_split_by_parts_each_once_in_few_numbers(parts: int) -> None:
    rng = np.random.default_rng(1)
    sizes = set[int]()
    for count in [0, 1, 5, *range(10, 2000, 37)]:
        keys = rng.integers(-(2**63), 2**63 - 1, count)[rng.integers(0, max(count, 1), (count, 2))]
        split, places = split_keys(keys, parts, 8)
        np.testing.assert_array_equal(np.concatenate(split)[places], keys)
        sizes |= {len(part) for part in split}
        for number, part in enumerate(split):
            assert set((bucket_of(part, 8) % parts).tolist()) <= {number}
            assert len(part) <= 8 + 1.25 * len(set(part.tolist()))
    assert len(sizes) < 32


def test_buckets_are_in_range_for_all_keys() -> None:
    ends = np.array([-(2**63), -1, 0, 1, 2**63 - 1], np.int64)
    assert set(bucket_of(ends, 3).tolist()) <= {0, 1, 2}


class Steps(RuleBasedStateMachine):
    """Steps that begin and end at any time, evictions and burials between them; variables as a table of owners."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.running: list[tuple[dict[int, int], Any]] = []
        self.owner: dict[int, int | None] = {}

    @initialize(admission=st.integers(1, 3), grace=st.sampled_from([0.0, 2.0]))
    def begin(self, admission: int, grace: float) -> None:
        self.directory = RowDirectory("t", admission, grace)

    @rule(keys=st.lists(st.integers(-3, 6), max_size=6), counts=st.booleans(), passes=st.sampled_from([0.0, 0.5, 3.0]))
    def starts(self, keys: list[int], counts: bool, passes: float) -> None:
        self.now += passes
        found = self.directory.find(np.array(keys, np.int64), self.now, counts)
        rows = {key: row for key, row in zip(keys, found.rows.tolist(), strict=True) if row != DEFAULT_ROW}
        assert len(set(rows.values())) == len(rows)
        for key, row in rows.items():
            assert row < self.directory.capacity
            assert self.owner.setdefault(row, key) in (key, None), "a row with another key's values"
            self.owner[row] = key
        self.running.append((rows, found.hold))

    @rule(which=st.integers(0, 10))
    def ends(self, which: int) -> None:
        if self.running:
            del self.running[which % len(self.running)]

    @rule(unseen=st.sampled_from([-1.0, 0.0, 1.0, 4.0]))
    def evicts(self, unseen: float) -> None:
        self.directory.evict(unseen, self.now)

    @rule(fails=st.booleans())
    def buries(self, fails: bool) -> None:
        rows = self.directory.bury(self.now)
        assert not {row for held, _ in self.running for row in held.values()} & set(rows)
        if not fails:
            self.owner.update(dict.fromkeys(rows))
            self.directory.buried(rows)

    @invariant()
    def steps_keep_their_rows(self) -> None:
        for rows, _ in self.running:
            if rows:
                again = self.directory.find(np.array([*rows], np.int64), self.now, counts=False)
                assert again.rows.tolist() == [*rows.values()]


TestSteps = Steps.TestCase
TestSteps.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
