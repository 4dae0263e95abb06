"""A cluster's socket for requests (`distributed.cluster_control`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.distributed import cluster_control
from anabranch.errors import InvalidArgumentError, UnavailableError

DEADLINE = 20.0


def long_path(folder: Path) -> Path:
    """A path in a folder that exists, longer than the system takes as the address of a socket."""
    folder = folder / ("a" * 60) / ("b" * 60)
    folder.mkdir(parents=True)
    return folder / "control"


def test_requests_are_answered_however_long_the_path_is(tmp_path: Path) -> None:
    for path in (tmp_path / "control", long_path(tmp_path)):
        control = cluster_control.ControlSocket(path, lambda request: {"asked": request["do"]})
        try:
            assert cluster_control.ask(path, {"do": "status"}, DEADLINE) == {"asked": "status"}
        finally:
            control.close()
        assert path.is_socket()
        with pytest.raises(UnavailableError, match="does not answer"):
            cluster_control.ask(path, {"do": "status"}, DEADLINE)


def test_a_path_too_long_for_a_system_without_proc_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_control, "_DESCRIPTORS", tmp_path / "none")
    with pytest.raises(InvalidArgumentError, match="too long for a socket; let XDG_RUNTIME_DIR name a shorter folder"):
        cluster_control.ControlSocket(long_path(tmp_path), lambda _: {})


def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cluster_control.ControlSocket(tmp_path / ("c" * 120) / "control", lambda _: {})
