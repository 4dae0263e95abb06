"""Damages messages between a session and a live task at random: cuts, flips, enlarges, repeats, reorders, leaves out.

Whatever comes of a step is its value or an error of TensorFlow's; the task lives, its thread too, and takes no memory
that was only claimed. After each round the next session must work as if nothing had been.

    python -m tests.fuzz.frames --seconds 60 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.distributed import links, transport, wire
from anabranch.distributed.local_streams import LocalWriter
from anabranch.runtime.messages import Buffer
from tests.fuzz.sides import ROOT

#: a step that a lost message would answer
_DEADLINE_MS = 1500
#: messages that a session sends before it uses a stream, and some more
_TALK = 40


_BEGINNINGS = {bytes([kind]) for kind in (wire.MessageKind.HELLO, wire.MessageKind.WELCOME)}


class Damage:
    """Does something to messages that are sent in this process, while it is on.

    Args:
        seed: of what is done.
        share: of the messages to which something is done.
        handshakes: the share of the messages that links begin with that are not spared.

    Attributes:
        counts: what was done, by kind.
    """

    def __init__(self, seed: int, share: float = 0.2, handshakes: float = 0.0) -> None:
        self.handshakes = handshakes
        self.random = random.Random(seed)
        self.share = share
        self.is_on = False
        self.counts: Counter[str] = Counter()
        self._held: dict[int, list[bytes]] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Damages what ZeroMQ's connections and the streams of one host send."""
        originals = {cls: cls.send for cls in (transport._SocketConnection, LocalWriter)}

        def sends(original: Any) -> Any:
            def send(connection: Any, parts: Sequence[Buffer]) -> None:
                if not self.is_on or self.random.random() > self.share or self._is_spared(parts[0]):
                    original(connection, parts)
                    return
                for message in self._instead(id(connection), [bytes(part) for part in parts]):
                    original(connection, message)

            return send

        for cls, original in originals.items():
            cls.send = sends(original)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for cls, original in originals.items():
                cls.send = original  # type: ignore[method-assign]

    def _is_spared(self, header: Buffer) -> bool:
        """Most of what links begin with: who gets no answer to it gives up after 30 s only (`links.LOST_AFTER`)."""
        kind = bytes(header[6:7])
        return kind in _BEGINNINGS and self.random.random() > self.handshakes

    def _instead(self, connection: int, parts: list[bytes]) -> list[list[bytes]]:
        """The messages that are sent in place of one."""
        kinds = (self._cut, self._flip, self._flip_header, self._enlarge, self._claim, self._junk)
        kind = self.random.choice(("repeat", "hold", "drop", *kinds, *kinds))
        held = self._held.pop(connection, None)
        after = [held] if held else []
        self.counts[kind if isinstance(kind, str) else kind.__name__.strip("_")] += 1
        if kind == "repeat":
            return [parts, parts, *after]
        if kind == "hold":
            self._held[connection] = parts
            return after
        if kind == "drop":
            return after
        assert not isinstance(kind, str)
        which = self.random.randrange(len(parts))
        changed = kind(parts[which])
        return [[*parts[:which], changed, *parts[which + 1 :]], *after]

    def _cut(self, part: bytes) -> bytes:
        return part[: self.random.randrange(len(part) + 1)]

    def _flip(self, part: bytes) -> bytes:
        return self._flipped(part, len(part))

    def _flip_header(self, part: bytes) -> bytes:
        return self._flipped(part, wire.HEADER_BYTES + 8)

    def _flipped(self, part: bytes, below: int) -> bytes:
        changed = bytearray(part)
        for _ in range(self.random.choice((1, 1, 3))):
            if changed:
                changed[self.random.randrange(min(below, len(changed)))] ^= 1 << self.random.randrange(8)
        return bytes(changed)

    def _enlarge(self, part: bytes) -> bytes:
        return part + self.random.randbytes(self.random.choice((1, 4, 5000)))

    def _claim(self, part: bytes) -> bytes:
        """A header that is whole, and claims more frames or bytes than there are."""
        if len(part) < wire.HEADER_BYTES:
            return self.random.randbytes(len(part))
        with contextlib.suppress(wire.MalformedMessageError):
            header = wire.decode_header(part[: wire.HEADER_BYTES], wire.Limits())
            frames = self.random.choice((header.frames, 0, 1, 1 << 16, (1 << 32) - 1))
            size = self.random.choice((header.bytes, 0, 1 << 20, 1 << 30, (1 << 64) - 1))
            sequence = self.random.choice((header.sequence, 0, header.sequence + 1, (1 << 64) - 1))
            return (
                wire.encode_header(header._replace(frames=frames, bytes=size, sequence=sequence))
                + part[wire.HEADER_BYTES :]
            )
        return part

    def _junk(self, part: bytes) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, wire.HEADER_BYTES, len(part), 100_000)))


class Task:
    """A server in a process of its own, which damages what it sends as well while that is on."""

    def __init__(self, seed: int, share: float) -> None:
        command = [sys.executable, "-m", "tests.fuzz.frames", "--serve", "--seed", str(seed), "--share", str(share)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.target = self._line()

    def switch(self, is_on: bool) -> None:
        """Whether it damages messages from now on."""
        self._tell("on" if is_on else "off")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def memory(self) -> int:
        """The most memory that it has had, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def stop(self) -> dict[str, int]:
        """Ends it; what it damaged, by kind."""
        self._tell("stop")
        counts: dict[str, int] = json.loads(self._line())
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return counts

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def serve(damage: Damage) -> None:
    """The process of a `Task`."""
    with damage.installed(), tf.train.Server.create_local_server() as server:
        print(server.target, flush=True)
        for line in sys.stdin:
            damage.is_on = line == "on\n"
            if line == "stop\n":
                break
        print(json.dumps(damage.counts), flush=True)


class Rounds:
    """Sessions of one task, with damage in the middle of each.

    Attributes:
        outcomes: of the steps under damage: "value", or the class of the error.
        wrong: values that are none of the step's. (Frames have no checksums: a flipped bit of one may stay.)
    """

    def __init__(self, task: Task, damage: Damage) -> None:
        self.task, self.damage = task, damage
        self.outcomes: Counter[str] = Counter()
        self.wrong = 0
        self._config = tf.ConfigProto(operation_timeout_in_ms=_DEADLINE_MS)

    def play(self, steps: int = 12) -> None:
        """One session: steps that must be right, steps under damage, and a session that must be right again."""
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None], "x")
            v = tf.get_variable("v", initializer=np.ones(3, np.float32))
            fetches = [tf.reduce_sum(x) + tf.reduce_sum(v), tf.tile(x, [2])]
            more = v.assign_add([0.0, 0.0, 0.0])
            with contextlib.suppress(tf.errors.OpError), tf.Session(self.task.target, config=self._config) as session:
                session.run(tf.global_variables_initializer())
                for number in range(_TALK):
                    self._step(session, fetches, x, 3 + number % 2)
                self._switch(True)
                try:
                    for number in range(steps):
                        if not self._damaged_step(session, fetches, more, x, (3, 4000, 300_000)[number % 3]):
                            break
                finally:
                    self._switch(False)
            self._after(fetches, x)

    def _switch(self, is_on: bool) -> None:
        self.damage.is_on = is_on
        self.task.switch(is_on)

    def _step(self, session: Any, fetches: list[Any], x: Any, length: int) -> None:
        total, tiled = session.run(fetches, {x: np.ones(length, np.float32)})
        if total != length + 3 or tiled.shape != (2 * length,) or (tiled != 1).any():
            raise ValueError(f"{total} and {tiled} for {length}")

    def _damaged_step(self, session: Any, fetches: list[Any], more: Any, x: Any, length: int) -> bool:
        """Whether the link is still there."""
        try:
            session.run(more)
            self._step(session, fetches, x, length)
            self.outcomes["value"] += 1
        except tf.errors.OpError as error:
            self.outcomes[type(error).__name__] += 1
            return not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError)
        except ValueError:
            self.wrong += 1
        return True

    def _after(self, fetches: list[Any], x: Any) -> None:
        """What a session finds when nothing is damaged any more; its first tries may still meet the lost link."""
        until = time.monotonic() + links.LOST_AFTER + 10.0
        while True:
            try:
                with tf.Session(self.task.target, config=self._config) as session:
                    session.run(tf.global_variables_initializer())
                    self._step(session, fetches, x, 5)
                    return
            except tf.errors.OpError:
                if time.monotonic() > until:
                    raise


def main() -> int:
    """Plays rounds until the time is up; an error where the task is gone, or a session does not come back."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.2, help="of the messages that are damaged")
    parser.add_argument("--handshakes", type=float, default=0.0, help="of what links begin with, the share not spared")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    damage = Damage(options.seed, options.share, options.handshakes)
    if options.serve:
        serve(damage)
        return 0
    until, rounds, before = time.monotonic() + options.seconds, 0, 0
    task = Task(options.seed + 1, options.share)
    with damage.installed():
        played = Rounds(task, damage)
        while time.monotonic() < until:
            played.play()
            rounds += 1
            before = before or task.memory
    after = task.memory
    there = task.stop()
    print(f"{rounds} rounds; damaged here: {dict(damage.counts)}; by the task: {there}")
    print(f"steps: {dict(played.outcomes)}, {played.wrong} values that a flipped bit changed")
    print(f"the task's memory: {before >> 20} MiB after the first round, {after >> 20} MiB at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
