"""Explanations of what is compiled, from inside a program."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from anabranch.ops import raw
from anabranch.runtime import explain
from anabranch.session import Session


@pytest.fixture
def text() -> Iterator[io.StringIO]:
    output = io.StringIO()
    explain.enable(Console(file=output, width=160))
    yield output
    explain.disable()


def run_twice() -> None:
    x = raw.Placeholder(dtype="float32", shape=[None, 3], name="x")
    product = raw.MatMul(a=x, b=raw.Add(x=np.ones((3, 2), np.float32), y=np.float32(1)), name="product")
    summary = raw.HistogramSummary(tag="h", values=product, name="text")
    with Session() as session:
        for count in (2, 2, 5):
            session.run(summary, {x: np.ones((count, 3), np.float32)})


def test_stages_items_and_compilations_are_told(text: io.StringIO) -> None:
    run_twice()
    told = text.getvalue()
    assert "fetches text:0" in told
    assert "feeds x:0" in told
    for stage in ("prune", "fold", "cse", "islands"):
        assert stage in told
    assert "island of 1 operations, up to product" in told
    assert "text (HistogramSummary)" in told
    assert "first run of this step" in told
    assert "new shapes or static values of x:0: ((5, 3),)" in told


def test_the_summary_counts(text: io.StringIO) -> None:
    run_twice()
    explainer = explain.enable()
    explainer.print_summary()
    assert explainer.plans == 1
    assert [event.reason.split(" ")[0] for event in explainer.compilations] == ["first", "new"]
    assert "1 kinds of steps, 2 compilations in" in text.getvalue()


def test_the_environment_turns_it_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(explain.EXPLAIN_VARIABLE, "1")
    try:
        run_twice()
    finally:
        explain.disable()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "first run of this step" in captured.err


def test_it_is_silent_unless_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(explain.EXPLAIN_VARIABLE, "0")
    run_twice()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
