"""A place for a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "model.ckpt-100")
