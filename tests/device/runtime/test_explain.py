"""Explanations of what is compiled, from inside a program."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime import explain
from anabranch.session import Session
from anabranch.xla import executable


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
    assert "new shapes or static values: x:0 of shape (5, 3)" in told


def test_static_values_are_told_as_numbers(text: io.StringIO) -> None:
    size = raw.Placeholder(dtype="int32", shape=[2], name="size")
    ones = raw.Fill(dims=size, value=np.float32(1))
    total = raw.Sum(ones, np.array([0, 1], np.int32))
    with Session() as session:
        assert [session.run(total, {size: [n, 3]}) for n in (4, 5)] == [12, 15]
    assert "new shapes or static values: size:0 = [5, 3]" in text.getvalue()


def test_a_long_compilation_of_what_is_alike_names_loops(text: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "LONG_COMPILATION", 0.0)
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    h = x = raw.Placeholder(dtype="float32", shape=[2, 2])
    for _ in range(50):
        h = raw.Tanh(x=raw.MatMul(a=h, b=x))
    few = raw.Tanh(x=raw.MatMul(a=x, b=x))
    with Session() as session:
        session.run(few, {x: np.eye(2)})
        assert "on the same shapes" not in text.getvalue()
        session.run(h, {x: np.eye(2)})
    told = " ".join(text.getvalue().split())
    assert "50 of 100 are MatMul on the same shapes. A loop (tf.while_loop, tf.nn.dynamic_rnn) is compiled once" in told


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


def test_the_placement_is_told_for_each_operation() -> None:
    output = io.StringIO()
    explain.enable(Console(file=output, width=200), placement=True)
    try:
        x = raw.Placeholder(dtype="float32", shape=[2], name="x")
        with get_default_graph().device("/cpu:1"):
            far = raw.Neg(x, name="far")
        near = raw.Exp(far, name="near")
        with Session(config=ConfigProto(device_count={"CPU": 2})) as session:
            for fetches in (near, [near, far]):
                session.run(fetches, {x: np.ones(2, np.float32)})
    finally:
        explain.disable()
    told = [line.replace(" ", "") for line in output.getvalue().splitlines()]
    assert told.count("│far│Neg│/device:CPU:1│CPU:1│askedforbytf.device│") == 1  # for both kinds of steps
    assert "│near│Exp│-│CPU:0│default│" in told
    assert any("XLAonCPU:1" in line for line in told)
    assert any("hostonCPU:0│far/recv_CPU_1_to_CPU_0(_Recv)" in line for line in told)


def test_receives_that_wait_are_told() -> None:
    output = io.StringIO()
    explain.enable(Console(file=output, width=200), placement=True)
    graph = get_default_graph()
    try:
        with graph.device("/cpu:0"):
            x = raw.Placeholder(dtype="float32", shape=[4096], name="x")
            large, number = raw.Exp(x=x, name="large"), raw.Sin(x=x[0])
        with graph.device("/cpu:1"):
            number = raw.Cos(x=number, name="near")
        with graph.device("/cpu:0"):
            number = raw.Sin(x=number)
        with graph.device("/cpu:1"):
            last = raw.Mul(x=large, y=number)
        with graph.device("/cpu:0"):
            total = raw.Sum(input=last, reduction_indices=0)
        with Session(config=ConfigProto(device_count={"CPU": 2})) as session:
            session.run(total, {x: np.zeros(4096, np.float32)})
    finally:
        explain.disable()
    told = output.getvalue()
    assert "Receives that wait" in told
    row = next(line for line in told.splitlines() if "large/recv_CPU_0_to_CPU_1" in line and "0.0164 MB" in line)
    assert "near/send_CPU_1_to_CPU_0" in row
