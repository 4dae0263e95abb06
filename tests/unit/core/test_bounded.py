"""Tables whose items a process bounds."""

from __future__ import annotations

import pytest

from anabranch.core.bounded import LeastRecentlyUsed, Table, limit_from, ticks


class Item:
    def __init__(self) -> None:
        self.used = 0
        self.released = False

    def release(self) -> None:
        self.released = True


def test_what_was_not_used_for_longest_leaves_its_table() -> None:
    kept, one, other = LeastRecentlyUsed(lambda: 3), Table(), Table()
    items = [Item() for _ in range(4)]
    for number, item in enumerate(items[:3]):
        kept.add(one if number % 2 else other, number, item)
    items[0].used = next(ticks)
    kept.add(one, 3, items[3])
    assert [item.released for item in items] == [False, True, False, False]
    assert sorted([*one, *other]) == [0, 2, 3]
    assert len(kept) == 3


def test_what_its_table_has_let_go_does_not_count() -> None:
    kept, gone, table = LeastRecentlyUsed(lambda: 2), Table(), Table()
    for number in range(2):
        kept.add(gone, number, Item())
    kept.add(table, "a", Item())
    gone.clear()
    kept.add(table, "b", Item())
    assert sorted(table) == ["a", "b"]
    del gone
    kept.add(table, "a", Item())  # in place of the other
    assert len(kept) == 2


@pytest.mark.parametrize("text", ["0", "-3", "many", "1.5"])
def test_a_bad_limit_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ANABRANCH_MAX_PLANS", text)
    with pytest.raises(ValueError, match="ANABRANCH_MAX_PLANS must be a positive number"):
        limit_from("ANABRANCH_MAX_PLANS", 5)


def test_a_limit_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANABRANCH_MAX_PLANS", raising=False)
    assert limit_from("ANABRANCH_MAX_PLANS", 5) == 5
    monkeypatch.setenv("ANABRANCH_MAX_PLANS", "7")
    assert limit_from("ANABRANCH_MAX_PLANS", 5) == 7
