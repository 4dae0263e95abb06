"""Attributes are replaced, and put back in the order that restores them."""

from __future__ import annotations

import pytest

from anabranch.testing.stubs import StubOutForTesting


class Base:
    value = 1

    @staticmethod
    def answer() -> int:
        return 42


class Derived(Base):
    pass


def test_attributes_are_put_back() -> None:
    with StubOutForTesting() as stubs:
        stubs.Set(Base, "value", 2)
        stubs.Set(Base, "value", 3)
        stubs.Set(Base, "answer", staticmethod(lambda: 0))
        assert (Derived.value, Base.answer()) == (3, 0)
    assert (Base.value, Base().answer()) == (1, 42)


def test_a_base_is_changed_where_it_defines_the_attribute() -> None:
    stubs = StubOutForTesting()
    stubs.SmartSet(Derived, "value", 5)
    assert (Base.value, "value" in vars(Derived)) == (5, False)
    stubs.SmartUnsetAll()
    assert Base.value == 1


def test_what_there_is_not_cannot_be_replaced() -> None:
    for replace in (StubOutForTesting().Set, StubOutForTesting().SmartSet):
        with pytest.raises(AttributeError):
            replace(Base, "nothing", 1)
