"""Programs of small operations run on the thread that calls them, and on no other (decision 0110).

XLA divides an operation of a program among the threads of the client that the program was compiled for. Where none of a
program's operations takes longer than to wake a thread, that is slower than to do without. A client has the number of
threads that it was made with, so such programs are compiled for a client of our own that has one. JAX does not know of
it: its devices, and what else the process does with them, are as they were.

A variable's value is an array of the client whose program wrote it last. A program takes an array of the other client
as a NumPy array that shows the same memory: nothing is copied, unless it is to be overwritten. Copies are counted: a
variable that programs of both kinds write in turn, or one that is large, stays with JAX's own client (`Crossings`).

A client of one thread has that thread besides those that call its programs, and a program with loops may go on there.
So threads that run one step side by side would wait for it: each takes a client of its own (`own_clients`).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.processor import core_count
from anabranch.core.resources import ResourceHandle
from anabranch.core.thread_limits import threads_within

#: an option of XLA for these programs, which tells them apart in the compile cache
_APART: Final[dict[str, bool | int | str]] = {"xla_cpu_multi_thread_eigen": False}
#: the same, and none of YNNPACK's kernels: on one thread Eigen's products of float32 are as quick, and XLA's own sums
#: are quicker
_WITHOUT_YNNPACK: Final[dict[str, bool | int | str]] = {**_APART, "xla_cpu_experimental_ynn_fusion_type": ""}
#: environment variable that keeps all programs on XLA's threads, if it is 0
VARIABLE: Final = "ANABRANCH_ONE_THREAD"

#: where XLA looks when it makes a client's threads
_THREADS: Final = "PJRT_NPROC"

#: variables of more bytes are not copied to the other client
MOST_BYTES: Final = 1 << 26
#: so many bytes more may be copied in a second, which takes a fiftieth of the time
_BYTES_PER_SECOND: Final = 2e8
#: for how many threads that run the same step there are clients
MOST_CLIENTS: Final = 4
#: arrays of fewer bytes are not counted
_UNCOUNTED: Final = 1 << 16


class OneThread:
    """The client of one thread: where its arrays are, whether it is in use, and which variables it is not to have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: the sharding of its arrays, which is one object; None where there is no client
        self.sharding: jax.sharding.SingleDeviceSharding | None = None
        #: the same, followed by those of further clients, which threads have for themselves
        self._clients: list[jax.sharding.SingleDeviceSharding] = []
        #: those of further clients for which there are programs
        self._further: list[jax.sharding.SingleDeviceSharding] = []
        #: whether there are programs of it
        self.in_use = False
        #: names of options -> whether XLA knows them
        self._known: dict[tuple[str, ...], bool] = {}
        self._kept: set[ResourceHandle] = set()
        #: changes with the variables that it is not to have
        self.version = 0

    def make(self) -> None:
        """Makes the client, if there is none, and it would help. Before other threads look at the environment."""
        with self._lock:
            if self.sharding is None and helps():
                devices = [_made() for _ in range(min(processors(), MOST_CLIENTS))]
                self._clients = [jax.sharding.SingleDeviceSharding(device) for device in devices if device is not None]
                self.sharding = self._clients[0] if self._clients else None
                own_clients.count = max(len(self._clients), 1)

    def has(self, value: object) -> bool:
        """Whether a value is an array of a client of one thread."""
        where = getattr(value, "sharding", None)
        # almost always the same object; copies of arrays have others
        return where is not None and (where is self.sharding or where == self.sharding or where in self._further)

    def sharding_of(self, client: int) -> jax.sharding.SingleDeviceSharding:
        """Where a client's arrays are, by its number below `own_clients.count`; there is one. A program has them."""
        sharding = self._clients[client]
        if client and sharding not in self._further:
            self._further.append(sharding)
        return sharding

    def options(self, multiplies: Collection[str]) -> dict[str, bool | int | str] | None:
        """Options of XLA for a program of this client; None: this XLA does not know them.

        Args:
            multiplies: the types of numbers that the program multiplies matrices of.
        """
        choices = [_APART] if set(multiplies) - {"float32"} else [_WITHOUT_YNNPACK, _APART]
        with self._lock:
            return next(filter(self._are_known, choices), None)

    def _are_known(self, options: dict[str, bool | int | str]) -> bool:
        key = tuple(options)
        if key not in self._known:
            try:
                jax.jit(jnp.negative, out_shardings=self.sharding, compiler_options=options).lower(0.0).compile()
            except jax.errors.JaxRuntimeError:
                self._known[key] = False
            else:
                self._known[key] = True
        return self._known[key]

    def takes(self, handles: Iterable[ResourceHandle]) -> bool:
        """Whether programs that use these variables may run here."""
        return self._kept.isdisjoint(handles)

    def keep_away(self, handles: Iterable[ResourceHandle]) -> None:
        """From now on, no program of this client uses these variables."""
        with self._lock:
            self._kept.update(handles)
            self.version += 1


class Crossings:
    """Brings the arguments of an island's programs to the client of each, and counts what is copied for that.

    What one client has is shown to a program of the other, and whoever overwrites it next copies it. Where that happens
    too often, the island's variables stay with JAX's client.

    Args:
        handles: the variables among the arguments.
        clock: seconds, monotonic.
        is_counted: whether what is copied is counted.
    """

    def __init__(
        self,
        handles: Collection[ResourceHandle],
        clock: Callable[[], float] = time.monotonic,
        is_counted: bool = True,
    ) -> None:
        self._handles, self._clock = handles, clock
        self._least = _UNCOUNTED if is_counted else math.inf
        self._copied, self._since = 0.0, 0.0

    def to_one_thread(self, args: Sequence[Any], here: jax.sharding.SingleDeviceSharding) -> list[Any]:
        """The arguments of a program of a client of one thread, whose arrays are `here`."""
        return [
            v if type(v) is np.ndarray or (at := getattr(v, "sharding", here)) is here or at == here else self._shown(v)
            for v in args
        ]

    def to_all_threads(self, args: Sequence[Any]) -> list[Any]:
        """The arguments of a program of JAX's own client."""
        return [v if type(v) is np.ndarray or not one_thread.has(v) else self._shown(v) for v in args]

    def _shown(self, value: jax.Array) -> np.ndarray[Any, Any]:
        shown = np.asarray(value)
        if shown.nbytes >= self._least:
            now = self._clock()
            left = max(self._copied - (now - self._since) * _BYTES_PER_SECOND, 0.0)
            self._copied, self._since = left + shown.nbytes, now
            if self._copied > 2 * MOST_BYTES:
                self._copied = 0.0
                one_thread.keep_away(self._handles)
        return shown


class OwnClients:
    """Which client of one thread is whose, of threads that run the same step side by side. Any threads may ask.

    Attributes:
        count: how many clients there are.
    """

    def __init__(self) -> None:
        self.count = 1
        #: for each client, the thread that has it; 0: nobody
        self._threads: list[int] = []
        self._own = threading.local()

    @property
    def here(self) -> int:
        """The number of this thread's client; 0, which is everybody's, if it has none."""
        client: int = getattr(self._own, "client", 0)
        return client

    @here.setter
    def here(self, client: int) -> None:
        self._own.client = client

    def take(self, thread: int) -> None:
        """Gives this thread, which has that identity, a client, until it gives that back; the first if none is free.

        Two threads that come at once may get the same: they wait for each other then, and that is all. One that an
        exception kept from giving it back gets the same again.
        """
        threads = self._threads
        while len(threads) < self.count:
            threads.append(0)
        free = (client for client in range(self.count) if threads[client] in (0, thread))
        self.here = client = next(free, 0)
        if threads[client] == 0:
            threads[client] = thread

    def give_back(self, thread: int) -> None:
        """This thread's client is free."""
        client = self.here
        if self._threads[client] == thread:
            self._threads[client] = 0
        self.here = 0


one_thread = OneThread()
own_clients = OwnClients()


def processors() -> int:
    """How many threads the operations of JAX's own client have."""
    return threads_within(core_count())


def helps() -> bool:
    """Whether JAX's own client has more threads than one, and the user did not forbid another client."""
    return processors() > 1 and os.environ.get(VARIABLE) != "0" and os.environ.get(_THREADS) != "1"


def _made() -> jax.Device | None:
    """The device of a client with one thread; None where this jaxlib makes none."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    # it would tell the program's log that JAX's own client has been made already
    log = logging.getLogger("jaxlib.xla_client")
    was_off, log.disabled = log.disabled, True
    try:
        # no module of JAX's own interface makes a client; without it all programs run as before
        from jaxlib.xla_client import make_cpu_client

        client: Any = make_cpu_client(asynchronous=False)
        device: jax.Device = client.local_devices()[0]
    except Exception:
        return None
    finally:
        log.disabled = was_off
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
    return device
