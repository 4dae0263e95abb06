"""Which client of one thread is whose."""

from __future__ import annotations

import threading

from anabranch.xla.one_thread import OwnClients

DEADLINE = 30.0
ONE, TWO, THREE = 11, 12, 13


def clients(count: int) -> OwnClients:
    own = OwnClients()
    own.count = count
    return own


def taken_by(own: OwnClients, thread: int) -> int:
    """The client that a thread gets, on a thread of its own."""
    found: list[int] = []

    def work() -> None:
        own.take(thread)
        found.append(own.here)

    running = threading.Thread(target=work)
    running.start()
    running.join(DEADLINE)
    return found[0]


def test_threads_at_the_same_time_have_clients_of_their_own() -> None:
    own = clients(2)
    assert [taken_by(own, ONE), taken_by(own, TWO)] == [0, 1]
    # more threads than clients: the first one is everybody's
    assert taken_by(own, THREE) == 0


def test_a_client_that_is_given_back_is_the_next_ones() -> None:
    own = clients(2)
    own.take(ONE)
    assert taken_by(own, TWO) == 1
    own.give_back(ONE)
    assert own.here == 0
    assert taken_by(own, THREE) == 0


def test_who_shares_a_client_does_not_give_away_anothers() -> None:
    own = clients(1)
    assert taken_by(own, ONE) == 0
    own.take(TWO)
    own.give_back(TWO)
    assert taken_by(own, ONE) == 0
    own.take(THREE)
    assert own.here == 0


def test_a_thread_that_did_not_give_back_gets_the_same_again() -> None:
    own = clients(2)
    assert taken_by(own, ONE) == 0
    assert taken_by(own, TWO) == 1
    assert taken_by(own, TWO) == 1


def test_a_thread_without_a_client_uses_everybodys() -> None:
    assert clients(2).here == 0
