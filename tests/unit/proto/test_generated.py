"""The message classes are generated for the oldest protobuf that the project accepts.

Classes that a newer compiler wrote import where the tests run with a new runtime, and nowhere else.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = sorted((ROOT / "anabranch/proto").glob("*_pb2.py"))


def _oldest_accepted() -> tuple[int, ...]:
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [match[1] for text in requirements if (match := re.match(r"protobuf>=([0-9.]+)", text))]
    return tuple(int(part) for part in bound.split("."))


def test_every_description_has_its_classes() -> None:
    described = {path.stem for path in (ROOT / "anabranch/proto").glob("*.proto")}
    assert {path.stem.removesuffix("_pb2") for path in GENERATED} == described


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
def test_the_oldest_accepted_runtime_can_load(path: Path) -> None:
    (written_for,) = re.findall(r"^# Protobuf Python Version: ([0-9.]+)$", path.read_text(), re.MULTILINE)
    assert tuple(int(part) for part in written_for.split(".")) <= _oldest_accepted()
