"""The picture of a step: a band for each device, a bar for each item, a line for each transfer."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from anabranch.proto.config_pb2 import RunMetadata
from anabranch.runtime.timeline_svg import timeline_svg

TASK = "/job:localhost/replica:0/task:0/device:"


def stats() -> Any:
    found = RunMetadata().step_stats
    first = found.dev_stats.add(device=f"{TASK}CPU:0")
    add(first, "a<b", "a<b = Island()", 1000, 5000)
    add(first, "send", "send = _Send(a<b)", 5000, 5100)
    add(first, "beside", "beside = Where(a<b)", 3000, 6000)
    second = found.dev_stats.add(device=f"{TASK}CPU:1")
    add(second, "recv", "recv = _Recv(send)", 5200, 5300)
    return found


def add(device: Any, name: str, label: str, start: int, end: int) -> None:
    device.node_stats.add(
        node_name=name,
        timeline_label=label,
        all_start_nanos=start,
        all_end_rel_nanos=end - start,
        all_start_micros=start // 1000,
    )


def test_bars_bands_and_lines() -> None:
    picture = ET.fromstring(timeline_svg(stats(), 600, "one & two"))
    by_tag: dict[str, list[Any]] = {}
    for element in picture.iter():
        by_tag.setdefault(element.tag.rpartition("}")[2], []).append(element)
    assert [e.text for e in by_tag["title"]] == [
        "a<b (Island), 4.0 µs", "beside (Where), 3.0 µs", "send (Send), 0.1 µs", "recv (Recv), 0.1 µs",
    ]  # fmt: skip
    bars = [e for e in by_tag["rect"] if e.get("rx") and e.get("width") != "10"]
    assert len(bars) == 4
    legend = {"island", "sent", "received", "on the host"}
    assert legend <= {e.text for e in by_tag["text"]}
    assert len([e for e in by_tag["line"] if e.get("stroke-dasharray")]) == 1
    island, beside, send, recv = (float(bar.get("y")) for bar in bars)
    assert island < beside  # they overlap in time
    assert island == send
    assert recv > beside
    widths = [float(bar.get("width")) for bar in bars]
    assert abs(widths[0] / widths[1] - 4 / 3) < 0.01
    assert {"one & two", "CPU:0", "CPU:1", "0 µs"} <= {e.text for e in by_tag["text"]}
    assert all(float(bar.get("x")) + float(bar.get("width")) <= 600 for bar in bars)


def test_long_names_keep_their_end() -> None:
    found = RunMetadata().step_stats
    add(found.dev_stats.add(device=f"{TASK}CPU:0"), "tower/" * 40 + "loss", "tower/loss = Island()", 0, 1000)
    text = timeline_svg(found, 400)
    assert "tower/loss</text>" in text
    assert "on the host" not in text


def test_nothing_can_be_drawn_too() -> None:
    ET.fromstring(timeline_svg(RunMetadata().step_stats))
