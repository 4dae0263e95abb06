"""When Recvs start: the documented example, the exceptions, and promises on random steps (WP5.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from anabranch.placement.receive_schedule import WORTH_BYTES, Item, order, schedule_receives, simulate

BIG = 10 * WORTH_BYTES


def example(**receive: Any) -> list[Item]:
    """A sender of 1 ms, a chain of three operations of 1 ms elsewhere, and what takes both."""
    return [
        Item("a", 1e-3),
        Item("b", 0.5e-3, [0], **{"received": BIG, **receive}),
        Item("b", 1e-3),
        Item("b", 1e-3, [2]),
        Item("b", 1e-3, [3]),
        Item("b", 1e-3, [1, 4]),
    ]


def test_the_example_of_the_docstring() -> None:
    schedule = schedule_receives(example())
    assert schedule.after == {1: 3}
    assert schedule.at_once.start[1] == pytest.approx(1e-3)
    assert schedule.delayed.start[1] == pytest.approx(2e-3)
    assert schedule.delayed.start[5] == schedule.at_once.start[5] == pytest.approx(3e-3)
    assert order(6, schedule.after) == [0, 2, 3, 1, 4, 5]


@pytest.mark.parametrize(
    "receive",
    [
        {"received": WORTH_BYTES - 1},  # too small
        {"kept": True},  # fetched
        {"frame": 1},  # in another loop than what it could wait for
        {"seconds": 2.5e-3},  # the transfer takes all the time that there is
    ],
)
def test_what_is_received_at_once(receive: dict[str, Any]) -> None:
    items = example()
    for name, value in receive.items():
        setattr(items[1], name, value)
    assert not schedule_receives(items).after


def test_what_starts_with_the_first_of_its_inputs_waits_for_none_of_them() -> None:
    items = example()
    items[5].waits_for_all = False
    assert not schedule_receives(items).after


def test_tensors_that_are_taken_one_after_the_other_do_not_pile_up() -> None:
    """Four tensors come at once; each is taken by a later step of a chain."""
    items = [Item("a", 1e-6)] + [Item("b", 1e-6, [0], BIG) for _ in range(4)]
    for number in range(4):
        items.append(Item("b", 1e-3, [1 + number, *([len(items) - 1] if number else [])]))
    schedule = schedule_receives(items)
    assert schedule.at_once.peak == {"b": 4 * BIG}
    assert schedule.delayed.peak == {"b": 2 * BIG}
    assert schedule.after == {3: 5, 4: 6}


@st.composite
def steps(draw: Any) -> list[Item]:
    """Random items; a Recv follows one sender of another device, and is taken on its own device."""
    items: list[Item] = []
    for number in range(draw(st.integers(1, 14))):
        device = draw(st.sampled_from("abc"))
        near = [n for n, item in enumerate(items) if item.device == device]
        far = [n for n, item in enumerate(items) if item.device != device and item.received is None]
        seconds = draw(st.integers(0, 5))
        frame = draw(st.sampled_from([0, 0, 0, 1]))
        if far and draw(st.booleans()):
            items.append(Item(device, seconds, [draw(st.sampled_from(far))], draw(st.integers(0, 3)) * BIG, frame))
        else:
            inputs = draw(st.lists(st.sampled_from(near), unique=True, max_size=3)) if near else []
            items.append(Item(device, seconds, sorted(inputs), None, frame, draw(st.integers(0, 9)) > 0))
        items[number].kept = draw(st.integers(0, 9)) == 0
    return items


@given(steps())
def test_nothing_starts_later_and_no_device_holds_more(items: list[Item]) -> None:
    schedule = schedule_receives(items)
    for number, item in enumerate(items):
        if item.received is None:
            assert schedule.delayed.start[number] == schedule.at_once.start[number]
        else:
            assert schedule.delayed.start[number] >= schedule.at_once.start[number]
    assert all(most <= schedule.at_once.peak[device] for device, most in schedule.delayed.peak.items())
    assert schedule.at_once == simulate(items, {})


@given(steps())
def test_there_is_an_order_that_respects_everything(items: list[Item]) -> None:
    after = schedule_receives(items).after
    found = order(len(items), after)
    assert sorted(found) == list(range(len(items)))
    position = {number: at for at, number in enumerate(found)}
    for number, item in enumerate(items):
        assert all(position[source] < position[number] for source in item.inputs)
    assert all(position[waited] < position[receive] for receive, waited in after.items())


@given(steps())
def test_a_receive_waits_for_what_all_of_its_takers_wait_for(items: list[Item]) -> None:
    before: list[set[int]] = []
    for item in items:
        before.append({s for i in item.inputs for s in (i, *before[i])} if item.waits_for_all else set())
    for receive, waited in schedule_receives(items).after.items():
        consumers = [number for number, item in enumerate(items) if receive in item.inputs]
        assert consumers
        assert all(waited in before[consumer] for consumer in consumers)
        assert (items[waited].device, items[waited].frame) == (items[receive].device, items[receive].frame)
