"""The compile cache on disk: a second process starts warm, and the cache stays within its bound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.xla import compile_cache

#: A step that takes XLA a second or so: a chain of products, each of its own shape, so that none is merged.
PROGRAM = """
import json
import numpy as np
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.xla.variants import compile_log

x = y = raw.Placeholder(dtype="float32", shape=[8, 8])
for size in range(9, 49):  # from 8 columns on
    y = raw.Tanh(x=raw.MatMul(a=y, b=np.full((size - 1, size), 0.1, np.float32)))
with Session() as session:
    for _ in range(40):  # 32 times at most by its operations' own kernels
        value = session.run(y, {x: np.ones((8, 8), np.float32)})
print(json.dumps([value.sum().item(), sum(event.seconds for event in compile_log.events)]))
"""


def run_program(cache: Path, **environment: str) -> tuple[float, float]:
    """The program's result, and how long its compilations took (s)."""
    env = {**os.environ, "ANABRANCH_CACHE_DIR": str(cache), **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    result: tuple[float, float] = tuple(json.loads(done.stdout))
    return result


@pytest.mark.slow
def test_a_second_process_starts_warm(tmp_path: Path) -> None:
    cold_value, cold = run_program(tmp_path)
    files = {program.path for program in compile_cache.cached_programs(tmp_path / "xla")}
    assert files
    warm_value, warm = run_program(tmp_path)
    assert warm_value == cold_value
    assert {
        program.path for program in compile_cache.cached_programs(tmp_path / "xla")
    } == files  # nothing compiled anew
    print(f"cold {cold:.3f} s, warm {warm:.3f} s")


@pytest.mark.slow
def test_a_bound_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    _, seconds = run_program(tmp_path, ANABRANCH_CACHE_BYTES="0")
    assert seconds > 0, "nothing was compiled"
    assert compile_cache.cached_programs(tmp_path / "xla") == []


def store(directory: Path, **entries: tuple[int, int]) -> None:
    """Files of the cache: name -> (size, time of the last use)."""
    directory.mkdir(exist_ok=True)
    for name, (size, used) in entries.items():
        path = directory / f"{name}-cache"
        path.write_bytes(bytes(size))
        os.utime(path, (used, used))


def names(directory: Path) -> list[str]:
    return [program.path.name.removesuffix("-cache") for program in compile_cache.cached_programs(directory)]


@pytest.mark.parametrize(
    ("limit", "left", "freed"),
    [(1000, ["old", "mid", "new"], 0), (600, ["old", "mid", "new"], 0), (500, ["mid", "new"], 100), (299, [], 600)],
)
def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, limit: int, left: list[str], freed: int) -> None:
    store(tmp_path, mid=(200, 2000), new=(300, 3000), old=(100, 1000))
    (tmp_path / "other file").write_bytes(bytes(10_000))
    assert compile_cache.trim_cache(tmp_path, limit) == freed
    assert names(tmp_path) == left
    assert (tmp_path / "other file").exists()


def test_no_directory_is_an_empty_cache(tmp_path: Path) -> None:
    assert compile_cache.cached_programs(tmp_path / "none") == []
    assert compile_cache.trim_cache(tmp_path / "none", 0) == 0


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(**variables: Any) -> Any:
        for name in ("ANABRANCH_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return compile_cache.cache_directory()

    assert of(ANABRANCH_CACHE_DIR="/somewhere") == Path("/somewhere/xla")
    assert of(ANABRANCH_CACHE_DIR="") is None
    assert of(XDG_CACHE_HOME="/caches") == Path("/caches/anabranch/xla")
    assert of() == Path.home() / ".cache" / "anabranch" / "xla"


def test_the_bound_is_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANABRANCH_CACHE_BYTES", raising=False)
    assert compile_cache.cache_limit() == compile_cache.DEFAULT_CACHE_BYTES
    monkeypatch.setenv("ANABRANCH_CACHE_BYTES", "1000")
    assert compile_cache.cache_limit() == 1000
    monkeypatch.setenv("ANABRANCH_CACHE_BYTES", "2GB")
    with pytest.raises(ValueError, match="ANABRANCH_CACHE_BYTES must be a number of bytes, got '2GB'"):
        compile_cache.cache_limit()
