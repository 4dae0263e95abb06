"""`tensorflow.python.eager.profiler`: a profile of the process, which TensorBoard's profile plugin shows."""

from __future__ import annotations

import datetime as dt
import os
import threading
from typing import Final

import anabranch as tf
from anabranch.io.gfile import GFile
from anabranch.runtime.kernel_profile import ProcessProfile

#: TensorBoard looks for profiles below folders with a file of events
_EVENTS_SUFFIX: Final = ".profile-empty"
_lock = threading.Lock()
_running: list[ProcessProfile] = []


class ProfilerAlreadyRunningError(Exception):
    """A profile is being made already."""


class ProfilerNotRunningError(Exception):
    """No profile is being made."""


def start() -> None:
    """Begins a profile.

    Raises:
        ProfilerAlreadyRunningError: there is one.
    """
    with _lock:
        try:
            _running.append(ProcessProfile())
        except RuntimeError as error:
            raise ProfilerAlreadyRunningError("Another profiler is running.") from error


def stop() -> bytes:
    """Ends the profile and returns it, a serialized `XSpace`.

    Raises:
        ProfilerNotRunningError: there is none.
    """
    with _lock:
        if not _running:
            raise ProfilerNotRunningError("Cannot stop profiling. No profiler is running.")
        return _running.pop().stop()


def maybe_create_event_file(logdir: str) -> None:
    """Makes an empty file of events in a folder, unless there is one of a profile."""
    if not any(name.endswith(_EVENTS_SUFFIX) for name in tf.gfile.ListDirectory(logdir)):
        tf.summary.FileWriter(logdir, filename_suffix=_EVENTS_SUFFIX).close()


def save(logdir: str, result: bytes) -> None:
    """Writes what `stop` returned where TensorBoard looks for it.

    Args:
        logdir: the folder that TensorBoard is given.
        result: the profile.
    """
    folder = os.path.join(logdir, "plugins", "profile", dt.datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
    tf.gfile.MakeDirs(folder)
    maybe_create_event_file(logdir)
    with GFile(os.path.join(folder, "local.xplane.pb"), "wb") as file:
        file.write(result)


class ProfiledBlock:
    """Profiles a block of a program.

    Args:
        logdir: the folder that TensorBoard is given.
    """

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir

    def __enter__(self) -> None:
        start()

    def __exit__(self, *_error: object) -> None:
        save(self._logdir, stop())


Profiler = ProfiledBlock
