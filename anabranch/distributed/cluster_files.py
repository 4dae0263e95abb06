"""Files of clusters: the description that tasks are started with, and where a running cluster is found.

A description is TOML or JSON: jobs by name, for each a list of addresses, or a table from numbers to addresses.

    [cluster]
    ps = ["host0:2222"]
    worker = ["host1:2222", "host2:2222"]

A running cluster has a folder that only its user can enter, with

- `state.json`: its tasks, replaced as a whole whenever one changes;
- `cluster.json`: the description;
- `lock`: locked by the supervisor as long as it lives, whatever ends it;
- `control`: the supervisor's socket (`distributed.cluster_control`);
- `addresses`: on Ray, an address map for clients, of tasks that have moved, replaced as a whole;
- a log file for each task.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError

_MAX_BYTES: Final = 16 << 20
_LOOK_AGAIN: Final = 0.02  # s
_ATTEMPTS: Final = 5
#: the map of tasks that have moved
MOVED_TASKS: Final = "addresses"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def read_cluster(path: str | os.PathLike[str]) -> ClusterSpec:
    """The cluster that a file describes: JSON if it ends in .json, else TOML.

    Raises:
        InvalidArgumentError: it is neither, has more than 16 MB, or describes none.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidArgumentError(None, None, f"{path} has more than {_MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8")
        content = json.loads(text) if os.fspath(path).endswith(".json") else tomllib.loads(text)
        spec = ClusterSpec(content.get("cluster", content))
        spec.check()
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgumentError(None, None, f"{path} does not describe a cluster: {error}") from None
    return spec


def clusters_directory(environ: Mapping[str, str]) -> Path:
    """Where the folders of running clusters are."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "anabranch" / "clusters"
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(cache) / "anabranch" / "clusters"


class ClusterFolder:
    """The folder of one cluster of this user, which may be running, or have been.

    Args:
        name: the cluster's: letters, digits, "_", "." and "-".

    Raises:
        InvalidArgumentError: the name has something else, or more than 64 characters.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(
                None, None, f"{name!r} cannot name a cluster: take letters, digits, '_', '.' and '-', at most 64"
            )
        self.name = name
        self.path = clusters_directory(os.environ) / name

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.path / "control"

    @property
    def description(self) -> Path:
        """The file that tasks are started with."""
        return self.path / "cluster.json"

    def take(self) -> IO[bytes]:
        """Makes the folder this process's, as long as what is returned stays open.

        Raises:
            AlreadyExistsError: a cluster of this name is running.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        lock = (self.path / "lock").open("ab")
        if not _locked(lock):
            lock.close()
            raise AlreadyExistsError(
                None,
                None,
                f"a cluster named {self.name!r} is running; stop it with `anabranch cluster stop --name {self.name}`, "
                "or start this one under another name (--name)",
            )
        for name in ("state.json", "control", MOVED_TASKS):
            (self.path / name).unlink(missing_ok=True)
        for log in self.path.glob("*.log"):
            log.unlink()
        return lock

    @property
    def is_running(self) -> bool:
        """Whether the cluster has a supervisor."""
        try:
            lock = (self.path / "lock").open("rb")
        except FileNotFoundError:
            return False
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def was_killed(self) -> bool:
        """Whether the cluster had a supervisor that ended without a farewell."""
        return (self.path / "state.json").exists() and not self.is_running

    def wait_until_free(self, timeout: float) -> bool:
        """Waits until the cluster has no supervisor; returns whether that is so within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.is_running:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replaces a file of the folder by an object as JSON: a reader finds the old one or the new one, whole."""
        descriptor, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        Path(temporary).replace(self.path / name)

    def state(self) -> dict[str, Any]:
        """What was last written of the cluster.

        Raises:
            NotFoundError: no cluster of this name was started.
        """
        try:
            state = json.loads((self.path / "state.json").read_text("utf-8"))
        except FileNotFoundError:
            raise NotFoundError(
                None,
                None,
                f"there is no cluster named {self.name!r}; `anabranch cluster start local` starts one",
            ) from None
        assert isinstance(state, dict)
        return state

    def forget(self) -> None:
        """The cluster has ended. Its logs stay until another of this name is started."""
        for name in ("state.json", "control", MOVED_TASKS):
            (self.path / name).unlink(missing_ok=True)


def _locked(lock: IO[bytes]) -> bool:
    """Takes a lock. Who only looks whether it is taken holds it for an instant, which is waited for."""
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_AGAIN if attempt + 1 < _ATTEMPTS else 0)
        else:
            return True
    return False


def running_clusters() -> list[str]:
    """The names of this user's clusters that are running on this machine."""
    directory = clusters_directory(os.environ)
    if not directory.is_dir():
        return []
    return sorted(
        folder.name
        for folder in directory.iterdir()
        if _NAME.fullmatch(folder.name) and ClusterFolder(folder.name).is_running
    )
