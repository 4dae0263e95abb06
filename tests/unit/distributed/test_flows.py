"""Large frames arrive whole, in their places and aligned; what is not in order is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from anabranch.distributed import flows
from anabranch.distributed.flows import ALIGNMENT, Assembly, is_large, pieces_of, without_large
from anabranch.distributed.wire import MalformedMessageError
from anabranch.runtime.messages import Frames
from tests.each_case import each_case

LIMIT = 10_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "PIECE_BYTES", 100)


def sent(frames: Frames) -> list[tuple[int, Frames]]:
    """The pieces of a message as (bytes of the frame, frames of the piece); and the message, with 0."""
    pieces = [(len(frame), [piece]) for frame in frames if is_large(frame) for piece in pieces_of(frame)]
    rest = without_large(frames) if pieces else list(frames)
    return [*pieces, (0, rest)]


def received(messages: list[tuple[int, Frames]], assembly: Assembly) -> list[Frames]:
    got = []
    for total, frames in messages:
        if total:
            assembly.take(total, frames)
        else:
            got.append(assembly.complete(list(frames)))
    return got


@each_case("seed", range(50))
def test_frames_of_any_sizes_arrive_in_their_places(seed: int) -> None:
    rng = random.Random(seed)
    messages: list[Frames] = [
        [rng.randbytes(rng.choice([0, 1, 99, 200, 201, 300, 777])) for _ in range(rng.randint(0, 6))] for _ in range(4)
    ]
    got = received([one for frames in messages for one in sent(frames)], Assembly(LIMIT))
    assert [[bytes(frame) for frame in frames] for frames in got] == messages
    for frames in got:
        for frame in frames:
            if is_large(frame):
                assert np.frombuffer(frame, np.uint8).ctypes.data % ALIGNMENT == 0


@each_case("seed", range(200))
def test_what_is_not_in_order_is_refused(seed: int) -> None:
    """Pieces are lost, repeated, exchanged and changed in size: the message is right, or refused."""
    rng = random.Random(seed)
    frames: Frames = [rng.randbytes(rng.choice([5, 250, 450])) for _ in range(3)]
    messages = sent([*frames, rng.randbytes(300)])
    damage = rng.choice(["lose", "repeat", "size", "shorten", "positions"])
    at = rng.randrange(len(messages) - 1)
    total, pieces = messages[at]
    if damage == "lose":
        del messages[at]
    elif damage == "repeat":
        messages.insert(at, messages[at])
    elif damage == "size":
        messages[at] = rng.choice([1, total - 1, total + 1, LIMIT + 1, 1 << 62]), pieces
    elif damage == "shorten":
        messages[at] = total, [bytes(pieces[0])[:-1]]
    else:
        messages[-1] = 0, [*messages[-1][1][:-1], rng.randbytes(rng.choice([0, 3, 4, 16]))]
    try:
        (got,) = received(messages, Assembly(LIMIT))
    except MalformedMessageError:
        return
    # a whole frame may have been lost with its only piece: then fewer positions are stated than there are
    assert damage == "positions"
    assert sorted(map(len, got)) == sorted([*map(len, frames), 300])


def test_no_memory_is_taken_beyond_the_limit() -> None:
    assembly = Assembly(LIMIT)
    with pytest.raises(MalformedMessageError, match="limit"):
        assembly.take(1 << 60, [b"x" * 100])
    for _ in range(9):
        assembly = Assembly(1000)
        assembly.take(600, [b"x" * 600])
        with pytest.raises(MalformedMessageError, match="limit"):
            assembly.take(600, [b"x"])
