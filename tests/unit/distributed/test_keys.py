"""The keys of a cluster: kept for their owner only, and never shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from anabranch.distributed.keys import FILE_VARIABLE, SECRET_VARIABLE, CurveKeys
from anabranch.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError


@pytest.fixture(autouse=True)
def _no_keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)


def test_keys_are_saved_for_their_owner_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, path = CurveKeys.generate(), tmp_path / "keys"
    keys.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CurveKeys.load(path) == keys != CurveKeys.generate()
    assert CurveKeys.load() is None
    monkeypatch.setenv(FILE_VARIABLE, os.fspath(path))
    assert CurveKeys.load() == keys
    other = CurveKeys.generate()
    monkeypatch.setenv(SECRET_VARIABLE, other.secret.hex())
    assert CurveKeys.load() == other
    assert CurveKeys.load(path) == keys
    with pytest.raises(FileExistsError):
        other.save(path)


def test_keys_are_not_shown() -> None:
    keys = CurveKeys(b"0123456789abcdef0123456789abcdef")
    for text in (repr(keys), str(keys), f"{keys}"):
        assert "0123" not in text
        assert keys.secret.hex() not in text


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    CurveKeys.generate().save(path)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(PermissionDeniedError, match=f"mode {mode:04o}.*chmod 600"):
            CurveKeys.load(path)


def test_what_holds_no_keys_is_refused_without_showing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="`anabranch cluster keys`"):
        CurveKeys.load(tmp_path / "none")
    path = tmp_path / "keys"
    path.touch(0o600)
    for text in ("", "c0ffee", "g" * 64, "c0" * 33, "\x00\xff" * 40):
        path.write_text(text, "utf-8")
        with pytest.raises(InvalidArgumentError, match="does not hold the keys") as caught:
            CurveKeys.load(path)
        assert not text or text not in str(caught.value)
    monkeypatch.setenv(SECRET_VARIABLE, "short")
    with pytest.raises(InvalidArgumentError, match=SECRET_VARIABLE):
        CurveKeys.load()
    with pytest.raises(InvalidArgumentError, match="32 bytes"):
        CurveKeys(b"short")
