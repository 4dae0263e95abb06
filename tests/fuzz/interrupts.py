"""Interrupts training loops at random moments and looks at what is left.

    python -m tests.fuzz.interrupts --seconds 3600 --seed 1

Every case runs the steps of one of the loops below until an exception from outside ends them: a signal whose handler
raises (Ctrl-C, SystemExit at SIGTERM, an exception of the program's own), `_thread.interrupt_main`, or an exception
that another thread throws. Then each variable must have a value, these must be values that a whole step leaves, and the
session must go on. What has failed is printed with its seed and the number of the case, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import faulthandler
import os
import queue
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from _thread import interrupt_main
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import anabranch as tf

#: after so long (s) a case hangs
_HANGS: Final = 120
#: an interrupt comes after so long at most (s)
_SOON: Final = 0.03


class ThrownError(Exception):
    """What the program's own handler raises, and what threads throw at the main thread."""


# ---------------------------------------------------------------------------------------------------- the loops
class Loop:
    """A session and the step that it repeats. `first` and `second` are changed alike by every whole step."""

    #: whether one island is all there is to a step, so that it is whole whatever comes from outside
    one_island = False

    def __init__(self) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.first = tf.get_variable("first", initializer=np.int64(0), use_resource=True)
            self.second = tf.get_variable("second", initializer=np.int64(0), use_resource=True)
            self.build()
            self.everything = {v.op.name: v for v in tf.global_variables()}
            self.initialise = tf.global_variables_initializer()
            self.open()
        self.number = 0

    def open(self) -> None:
        """Makes the session, with new variables and queues."""
        self.session = tf.Session(config=self.config(), graph=self.graph)
        self.session.run(self.initialise)

    def config(self) -> Any:
        return None

    def build(self) -> None:
        """Adds the step to the graph."""

    def both(self) -> Any:
        """Adds one to each of the two variables, in one island."""
        return tf.group(self.first.assign_add(1), self.second.assign_add(1))

    def step(self) -> None:
        self.number += 1
        self.session.run(self.train)

    def look(self, whole: bool) -> None:
        """Fails where a variable is gone, or, if steps were `whole`, half a step is left; then makes a step.

        Raises:
            AssertionError: that is so.
        """
        values = self.session.run(self.everything)
        assert all(np.isfinite(value).all() for value in values.values()), values
        if whole or self.one_island:
            assert values["first"] == values["second"], (values["first"], values["second"])
        before = values["first"]
        self.step()
        assert self.session.run(self.first) > before
        self.mend()

    def mend(self) -> None:
        """Makes the variables equal again, for the next case."""
        with self.graph.as_default():
            self.second.load(self.session.run(self.first), self.session)

    def end(self) -> None:
        self.session.close()


class Training(Loop):
    """A network that learns: one island."""

    one_island = True

    def build(self) -> None:
        self.x = tf.placeholder(tf.float32, [None, 20])
        hidden = tf.layers.dense(self.x, 30, tf.nn.relu)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(hidden, 1) - 1))
        self.train = tf.group(tf.train.AdamOptimizer(1e-3).minimize(loss), self.both())
        self.rng = np.random.default_rng(0)

    def step(self) -> None:
        self.session.run(self.train, {self.x: self.rng.normal(size=(self.rows(), 20))})

    def rows(self) -> int:
        return 32


class ChangingShapes(Training):
    """Shapes that change, so that steps run kernel by kernel, and are compiled now and then."""

    def rows(self) -> int:
        return int(self.rng.integers(1, 200))


class ManyVariables(Loop):
    """A network of so many variables that updates are calls of a function in C, if there is one."""

    one_island = True
    layers = 10

    def build(self) -> None:
        self.x = tf.placeholder(tf.float32, [2, 240])
        h = 0.0
        for number in range(self.layers):
            weights = tf.get_variable(f"weights{number}", [240, 240], initializer=tf.zeros_initializer())
            bias = tf.get_variable(f"bias{number}", [240], initializer=tf.zeros_initializer())
            h += tf.reduce_sum(tf.nn.bias_add(tf.matmul(self.x, weights), bias))
        self.train = tf.group(tf.train.MomentumOptimizer(0.5, 0.0).minimize(h), self.both())

    def step(self) -> None:
        self.session.run(self.train, {self.x: np.full((2, 240), 0.5, np.float32)})

    def look(self, whole: bool) -> None:
        values = self.session.run(self.everything)
        steps = values["first"]
        for name, value in values.items():
            if name.startswith(("weights", "bias")) and not name.endswith("Momentum"):
                each = 1.0 if name.startswith("bias") else 0.5
                np.testing.assert_array_equal(value, np.full_like(value, -each * float(steps)), name)
        super().look(whole)


class SeveralIslands(Loop):
    """Text between two islands."""

    def build(self) -> None:
        text = tf.as_string(self.first.assign_add(1))
        self.train = self.second.assign(tf.string_to_number(tf.strings.join([text, ""]), tf.int64))


class Checked(Loop):
    """An island with a check that fails now and then, and a variable that it writes without reading it."""

    def build(self) -> None:
        self.row = tf.placeholder(tf.int32, [])
        one = tf.gather(tf.constant([1, 1, 1], tf.int64), self.row)
        with tf.control_dependencies([self.first.assign_add(one)]):
            self.train = self.second.assign(self.first.read_value())

    def step(self) -> None:
        self.number += 1
        self.session.run(self.train, {self.row: 0})
        if self.number % 3 == 0:
            try:
                self.session.run(self.train, {self.row: 7})
            except tf.errors.InvalidArgumentError:
                return
            raise AssertionError("the check did not fail")


class HostLoop(Loop):
    """A loop with text in its body, which the executor runs; its iterations are whole."""

    one_island = True

    def build(self) -> None:
        def body(i: Any) -> Any:
            with tf.control_dependencies([self.both()]):
                return tf.string_to_number(tf.as_string(i + 1), tf.int32)

        self.train = tf.while_loop(lambda i: i < 5, body, [tf.constant(0)])


class Queues(Loop):
    """Steps that fill a queue, and steps that empty it: what went in and did not come out is in it."""

    def build(self) -> None:
        queue = tf.FIFOQueue(10, tf.int64, shapes=[[]])
        self.put = queue.enqueue(self.first.assign_add(1))
        with tf.control_dependencies([queue.dequeue()]):
            self.train = self.second.assign_add(1)
        self.size = queue.size()

    def step(self) -> None:
        self.session.run(self.put)
        self.session.run(self.train)

    def look(self, whole: bool) -> None:
        size, first, second = self.session.run([self.size, self.first, self.second])
        if whole:
            assert first - second == size, (first, second, size)
            for _ in range(size):
                self.session.run(self.train)
            self.mend()
        else:
            # a request that nobody holds any more may stand in the queue (docs/decisions/0019-interrupts.md)
            self.session.close()
            self.open()
        super().look(whole)


class SeveralThreads(Training):
    """Two threads that train, besides the main one."""

    def __init__(self) -> None:
        super().__init__()
        self.over, self.failed = threading.Event(), list[BaseException]()
        self.threads = [threading.Thread(target=self.beside) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def beside(self) -> None:
        x = np.ones((32, 20), np.float32)
        try:
            while not self.over.is_set():
                self.session.run(self.train, {self.x: x})
        except BaseException as error:
            self.failed.append(error)

    def look(self, whole: bool) -> None:
        super().look(whole)
        assert not self.failed, self.failed

    def mend(self) -> None:
        pass

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        super().end()


class TwoDevices(Loop):
    """Two variables on two devices, the second follows the first."""

    def config(self) -> Any:
        return tf.ConfigProto(device_count={"CPU": 2})

    def build(self) -> None:
        with tf.device("/cpu:0"):
            one = self.first.assign_add(1)
        with tf.device("/cpu:1"):
            self.train = self.second.assign(one * tf.get_variable("factor", initializer=np.int64(1), use_resource=True))


class Saving(Loop):
    """A saver inside the loop; what it saves is whole."""

    one_island = True

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="interrupts")
        super().__init__()

    def build(self) -> None:
        self.train = self.both()
        self.saver = tf.train.Saver(max_to_keep=2)

    def step(self) -> None:
        super().step()
        self.save()

    def save(self) -> str:
        path: str = self.saver.save(self.session, os.path.join(self.directory, "model"), self.number)
        return path

    def look(self, whole: bool) -> None:
        latest = tf.train.latest_checkpoint(self.directory)
        if latest is not None:
            reader = tf.train.load_checkpoint(latest)
            assert reader.get_tensor("first") == reader.get_tensor("second")
        self.number += 1
        assert tf.train.latest_checkpoint(self.directory) in (latest, self.save())
        super().look(whole)

    def end(self) -> None:
        super().end()
        shutil.rmtree(self.directory)


LOOPS: Final[list[type[Loop]]] = [
    Training,
    ChangingShapes,
    ManyVariables,
    SeveralIslands,
    Checked,
    HostLoop,
    Queues,
    SeveralThreads,
    TwoDevices,
    Saving,
]


# ---------------------------------------------------------------------------------------------------- the interrupts
def _raise_own(*_: object) -> None:
    raise ThrownError("a handler of the program")


def _raise_exit(*_: object) -> None:
    sys.exit(3)


def _throw() -> None:
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(ThrownError))


def _signal(number: int) -> Callable[[], None]:
    return lambda: signal.pthread_kill(threading.main_thread().ident or 0, number)


#: how the main thread is interrupted, and whether steps of several items are whole then
INTERRUPTS: Final[dict[str, tuple[Callable[[], None], bool]]] = {
    "SIGINT": (_signal(signal.SIGINT), True),
    "SIGTERM": (_signal(signal.SIGTERM), True),
    "SIGUSR1": (_signal(signal.SIGUSR1), True),
    "interrupt_main": (interrupt_main, True),
    "SetAsyncExc": (_throw, False),
}
_EXPECTED: Final = (KeyboardInterrupt, SystemExit, ThrownError)


def _interrupted(loop: Loop, moments: list[tuple[float, Callable[[], None]]]) -> None:
    """Repeats the step until all interrupts have come."""
    # not an event: an exception that comes while the main thread sets one leaves its lock taken
    begun, over = queue.SimpleQueue[None](), threading.Event()

    def interrupt() -> None:
        begun.get()
        for wait, fire in moments:
            time.sleep(wait)
            fire()
        over.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    _repeat(loop, begun, over, len(moments))
    thread.join()


def _repeat(loop: Loop, begun: queue.SimpleQueue[None], over: threading.Event, more: int) -> None:
    """Repeats the step; one interrupt may end it, and `more` may come where that one is caught."""
    try:
        if more:
            _repeat(loop, begun, over, more - 1)
        begun.put(None)
        while not over.is_set():
            loop.step()
        time.sleep(0.001)  # for the last of them
        # of two signals at once, the second waits for such a call if the handler of the first has raised in one
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except _EXPECTED:
        pass


class Fuzzer:
    """The cases of a seed, one after the other.

    Attributes:
        counts: how many cases of each loop, and of each way to interrupt it.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._loops: dict[type[Loop], Loop] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.cases = 0

    def run(self, seconds: float) -> None:
        """Runs cases for so long.

        Raises:
            AssertionError: one of them failed; its seed, number and kind.
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _raise_exit)
        signal.signal(signal.SIGUSR1, _raise_own)
        for kind in LOOPS:
            self._loops[kind] = kind()
            self._loops[kind].step()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end or self.cases < len(LOOPS):
                self._case(LOOPS[self.cases] if self.cases < len(LOOPS) else self._rng.choice(LOOPS))
        finally:
            for loop in self._loops.values():
                loop.end()

    def _case(self, kind: type[Loop]) -> None:
        self.cases += 1
        names = self._rng.choices(list(INTERRUPTS), k=self._rng.choice([1, 1, 1, 2, 3]))
        moments = [(self._rng.uniform(0, _SOON) * self._rng.random() ** 2, INTERRUPTS[name][0]) for name in names]
        if self._rng.random() < 0.05:  # a new session: its first steps are compiled
            self._loops.pop(kind).end()
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        try:
            if kind not in self._loops:
                self._loops[kind] = kind()
            _interrupted(self._loops[kind], moments)
            self._loops[kind].look(all(INTERRUPTS[name][1] for name in names))
        except BaseException as error:
            told = f"seed {self._seed}, case {self.cases}: {kind.__name__} interrupted by {', '.join(names)}"
            raise AssertionError(told) from error
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.counts.update([kind.__name__, *names])


def main() -> int:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(description="Interrupts training loops at random moments.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    try:
        fuzzer.run(arguments.seconds)
    except AssertionError:
        traceback.print_exc()
        return 1
    told = ", ".join(f"{name} {count}" for name, count in fuzzer.counts.items())
    print(f"seed {arguments.seed}: {fuzzer.cases} cases, none failed ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
