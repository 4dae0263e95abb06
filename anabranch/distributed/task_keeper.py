"""What keeps one task running on a machine where somebody else has put it, and tells who asks how it is.

It runs the local engine for one task. On Ray it is what an actor is (`distributed.ray_cluster`).
"""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch.distributed.addresses import ADDRESS_MAP_VARIABLE
from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.own_folders import OwnFolder
from anabranch.distributed.process_engine import ProcessEngine
from anabranch.distributed.restarts import RestartLimits, RestartRule
from anabranch.distributed.task_engine import TaskProgram, TaskStatus
from anabranch.distributed.task_places import MapEdition, MapFile
from anabranch.errors import UnavailableError

#: how long (s) a keeper holds a question for news that there are none of
_NEWS_WITHIN: Final = 30.0
#: output that a keeper keeps until it is asked for; what is more is in its machine's log only
_MOST_OUTPUT: Final = 4 << 20
#: what the names of keepers' folders begin with
FOLDERS: Final = "anabranch-task-"


@dataclass(frozen=True)
class News:
    """What a keeper has to tell of its task.

    Attributes:
        status: how it is; None: nothing is known yet.
        output: what it has written since the last news.
    """

    status: TaskStatus | None
    output: bytes = b""


class TaskKeeper:
    """Runs one task on this machine. Its methods may run on several threads, in another order than they were asked."""

    def __init__(self) -> None:
        self._folder = OwnFolder(FOLDERS)
        self._map = MapFile(self._folder.path / "addresses")
        self._ports: HeldPorts | None = None
        self._engine: ProcessEngine | None = None
        self._name = ""
        self._has_news = threading.Condition()
        self._reported: TaskStatus | None = None
        self._status: TaskStatus | None = None
        self._output: collections.deque[bytes] = collections.deque()
        self._size = 0

    def port(self, wanted: int | None) -> int:
        """A port of this machine that is kept free for the task: the one that is wanted, unless somebody has it.

        Raises:
            UnavailableError: the machine has none.
        """
        if self._ports is None and wanted is not None:
            with contextlib.suppress(UnavailableError):
                self._ports = HeldPorts(1, host="", wanted=[wanted])
        if self._ports is None:
            self._ports = HeldPorts(1, host="")
        return self._ports.ports[0]

    def begin(self, program: dict[str, Any], limits: dict[str, Any], edition: MapEdition) -> None:
        """Starts the task's process, and keeps it running.

        Args:
            program: a `TaskProgram`, whose command is the machine's own Python where it says "python".
            limits: `RestartLimits`.
            edition: where the tasks of the cluster are.

        Raises:
            OSError: the map cannot be written.
        """
        self._map.write(edition)
        own = TaskProgram(**program | {"rule": RestartRule(program["rule"])})
        if own.command[0] == "python":
            own = replace(own, command=[sys.executable, *own.command[1:]])
        own = replace(own, environment={**own.environment, ADDRESS_MAP_VARIABLE: str(self._map.path)})
        self._name = own.name
        self._engine = ProcessEngine([own], self._folder.path, RestartLimits(**limits), self._wrote, self._changed)
        self._engine.start()

    def tell(self, edition: MapEdition) -> None:
        """Tasks have moved: their addresses are written where this one reads them."""
        try:
            self._map.write(edition)
        except OSError as error:
            self._wrote(self._name, f"the addresses of tasks stay as they were: {error}".encode())

    def news(self) -> News:
        """Waits until there is something to tell, or for half a minute."""
        with self._has_news:
            self._has_news.wait_for(lambda: self._output or self._status != self._reported, _NEWS_WITHIN)
            output = b"".join(self._output)
            self._output.clear()
            self._size = 0
            self._reported = self._status
            return News(self._reported, output)

    def stop_task(self) -> None:
        """See `ProcessEngine`."""
        if self._engine is not None:
            self._engine.stop_task(self._name)

    def restart_task(self) -> None:
        """See `ProcessEngine`."""
        if self._engine is not None:
            self._engine.restart_task(self._name)

    def close(self) -> None:
        """Ends the task."""
        if self._engine is not None:
            self._engine.close()
        if self._ports is not None:
            self._ports.close()
        self._folder.close()

    def _changed(self, statuses: list[TaskStatus]) -> None:
        with self._has_news:
            (self._status,) = statuses
            self._has_news.notify_all()

    def _wrote(self, task: str, line: bytes, /) -> None:
        with self._has_news:
            self._output.append(line + b"\n")
            self._size += len(line) + 1
            while self._size > _MOST_OUTPUT:
                self._size -= len(self._output.popleft())
            self._has_news.notify_all()
