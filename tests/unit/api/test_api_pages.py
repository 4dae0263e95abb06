"""The API's pages: each public name is told of once, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.tools import api
from anabranch.tools.api_links import Links
from anabranch.tools.public_names import public_modules, public_names

LINK = re.compile(r"\]\(([\w.]+\.md)(?:#([^)]+))?\)")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return api.pages()


def test_there_is_a_page_for_each_module_and_an_index_of_them(pages: dict[str, str]) -> None:
    files = {f"{name}.md" for name in public_modules()}
    assert set(pages) == {api.INDEX, *files}
    assert {file for file, _ in LINK.findall(pages[api.INDEX])} == files


def test_each_name_stands_on_the_page_of_its_module(pages: dict[str, str]) -> None:
    anchors = {file: set(ANCHOR.findall(text)) for file, text in pages.items()}
    missing = []
    for public in public_names():
        file = f"{public.name.rpartition('.')[0]}.md"
        if public.name not in anchors[file] and f"- `{public.name}`: the same as [" not in pages[file]:
            missing.append(public.name)
    assert missing == []


def test_each_thing_is_told_of_under_one_name_only(pages: dict[str, str]) -> None:
    anchors = [anchor for text in pages.values() for anchor in ANCHOR.findall(text)]
    assert len(anchors) == len(set(anchors))
    assert "- `tf.nn.tanh`: the same as [`tf.tanh`](tf.md#tf.tanh)" in pages["tf.nn.md"]


def test_no_link_is_broken(pages: dict[str, str]) -> None:
    anchors = {file: {"", *ANCHOR.findall(text)} for file, text in pages.items()}
    links = [(page, *link) for page, text in pages.items() for link in LINK.findall(text)]
    assert [link for link in links if link[2] not in anchors.get(link[1], ())] == []
    assert len(links) > 2500, "names in the texts are links"


def test_a_function_is_told_of_with_its_signature_and_example(pages: dict[str, str]) -> None:
    told = pages["tf.md"].partition('<a id="tf.map_fn"></a>')[2].partition("<a id=")[0]
    assert (
        "tf.map_fn(\n    fn: Callable[[Any], Any],\n    elems: Structure,\n    dtype: Structure | None = None," in told
    )
    assert "- `parallel_iterations, back_prop, swap_memory`: see [`while_loop`](tf.md#tf.while_loop)." in told
    assert "**Example**\n\n```python\n>>> sess.run(tf.map_fn(" in told


def test_words_are_links_where_it_is_clear_what_they_mean() -> None:
    links = Links(public_names())
    assert links.linked("see `Saver.restore`", "tf") == "see [`Saver.restore`](tf.train.md#tf.train.Saver.restore)"
    assert links.linked("`x` * 2 and ``y * 3``", "tf") == r"`x` \* 2 and ``y * 3``"


def test_the_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.main([str(tmp_path / "api")])
    assert f"begin with {tmp_path / 'api' / 'README.md'}" in capsys.readouterr().out
    assert (tmp_path / "api" / "tf.train.md").read_text("utf-8").startswith("# `tf.train`\n")
