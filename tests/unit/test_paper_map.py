"""`docs/paper_map.md` maps the papers to code and tests; whatever it and the other documents name must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.each_case import each_case

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / "docs" / "paper_map.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
each_document = each_case("document", DOCUMENTS, lambda path: str(path.relative_to(ROOT)))

#: programs of others, which documents name without a folder
OTHERS = {"docs/conformance.md"}
COLUMNS = 130

_FILE = re.compile(r"[\w./-]+\.(?:py|pyi|md|proto|txt|csv|gz|svg|png)(?:::\w+)?")
_QUOTED = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def tables() -> Iterator[tuple[list[str], list[str]]]:
    """The rows of the map's tables: the columns' titles, and the cells."""
    titles: list[str] = []
    for line in MAP.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            titles = []
        elif not titles:
            titles = cells
        elif set(cells[0]) != {"-"}:
            yield titles, cells


ROWS = list(tables())


def folder_of(title: str) -> Path:
    """Where the paths in a column begin."""
    return {"code": ROOT / "anabranch", "tests": ROOT / "tests"}.get(title, ROOT)


@each_case("row", ROWS, lambda row: row[1][0].split(":")[0])
def test_a_row_names_what_exists(row: tuple[list[str], list[str]]) -> None:
    titles, cells = row
    assert len(cells) == len(titles)
    for title, cell in zip(titles, cells, strict=True):
        if title not in {"code", "tests", "measured by"}:
            continue
        named = [word for word in _QUOTED.findall(cell) if ".py" in word]
        assert named or cell == "not yet", f"{title}: names no file, and is not 'not yet'"
        for word in named:
            path, _, function = word.partition("::")
            file = folder_of(title) / path
            assert file.is_file(), f"{file} does not exist"
            assert not function or f"def {function}(" in file.read_text("utf-8"), f"{file} has no {function}"


def test_every_table_is_read() -> None:
    assert {titles[0] for titles, _ in ROWS} == {"row"}
    assert len(ROWS) == 49


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are made from their words."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in _LINK.findall(document.read_text("utf-8")):
        if "://" in target:
            continue
        file = (document.parent / target).resolve() if target else document
        assert file.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(file), f"{target} has no heading #{anchor}"


def prose(document: Path) -> Iterator[str]:
    """The lines of a document that stand in no block of code."""
    code = False
    for line in document.read_text("utf-8").splitlines():
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield line


def exists(path: str) -> bool:
    """Whether a path leads to a file from a folder in which documents begin theirs; a bare name may be anywhere."""
    if any((ROOT / folder / path).is_file() for folder in ("", "anabranch", "tests")):
        return True
    folders = (ROOT / folder for folder in ("anabranch", "tests", "benchmarks", "examples"))
    return "/" not in path and any(any(folder.rglob(path)) for folder in folders)


@each_document
def test_named_files_exist(document: Path) -> None:
    quoted = (word for line in prose(document) for word in _QUOTED.findall(line))
    named = {word.partition("::")[0] for word in quoted if _FILE.fullmatch(word)}
    if str(document.relative_to(ROOT)) in OTHERS:
        named = {path for path in named if "/" in path}
    missing = sorted(path for path in named if not exists(path))
    assert not missing, f"{document.name} names {missing}, which do not exist"


@each_document
def test_lines_are_short(document: Path) -> None:
    long = [
        line for line in prose(document) if len(line) > COLUMNS and not line.startswith("|")
    ]  # tables cannot be folded
    assert not long, f"{document.name} has lines of more than {COLUMNS} columns: {long}"
