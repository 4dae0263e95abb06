"""Rows of CSV files: taken apart, and found."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from anabranch.io.csv_rows import RowFile, split_row

FIELD = st.text(st.sampled_from('ab",;\n '), max_size=6)


@given(st.lists(FIELD, min_size=1, max_size=4), st.sampled_from([",", ";"]))
def test_what_pythons_writer_wrote_is_taken_apart(fields: list[str], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerow(fields)
    assert split_row(out.getvalue(), delimiter) == fields


@given(st.lists(st.lists(FIELD, min_size=2, max_size=3), max_size=5))
def test_rows_are_found_in_a_file(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", newline="") as out:
            csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
        file = RowFile(str(path), b",")
        found = [split_row(row.decode(), ",") for row in iter(file.read, None)]
        file.close()
    assert found == rows


def test_a_position_is_the_place_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'1,"two\r\nlines"\n3,"4"\n\n5,6')
    file = RowFile(str(path), b",")
    assert file.read() == b'1,"two\r\nlines"'
    there = file.offset
    assert [file.read() for _ in range(4)] == [b'3,"4"', b"", b"5,6", None]
    again = RowFile(str(path), b",")
    again.seek(there)
    assert again.read() == b'3,"4"'
    file.close()
    again.close()


@pytest.mark.parametrize("row", ['1,2"3', '"1"2', '"a', '1,"', '""a'])
def test_quotes_out_of_place_are_refused(row: str) -> None:
    with pytest.raises(ValueError, match="quote"):
        split_row(row, ",")


@pytest.mark.parametrize("quoted", [True, False])
def test_line_ends_stand_before_fields_only(quoted: bool) -> None:
    assert split_row("\n1,\r\n2,\n\n3\n", ",", quoted) == ["1", "2", "3"]
    for row in ("1\n2,3", "1,2\r3", "1\n,2"):
        with pytest.raises(ValueError, match="cannot have quotes/CRLFs inside"):
            split_row(row, ",", quoted)


def test_what_follows_the_last_field_is_not_looked_at() -> None:
    for row in ('1,2,"', '1,2,a"b', "1,2,x\ny", '1,"2","3'):
        assert split_row(row, ",", last=1) == ["1", "2"]


def test_quotes_are_letters_where_they_are_not_used() -> None:
    assert split_row('1,2"3,"', ",", quoted=False) == ["1", '2"3', '"']


def test_a_quote_within_a_field_does_not_join_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'1,2"3\n4,5\n')
    file = RowFile(str(path), b",")
    assert [file.read() for _ in range(2)] == [b'1,2"3', b"4,5"]
    file.close()
