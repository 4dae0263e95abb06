from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.core import compat


@given(st.text(st.characters(codec="utf-8")))
def test_text_and_bytes_round_trip(text: str) -> None:
    data = compat.as_bytes(text)
    assert data == text.encode()
    assert compat.as_text(data) == compat.as_str(data) == compat.as_text(text) == text
    assert compat.as_bytes(data) == compat.as_bytes(bytearray(data)) == data
    assert compat.as_str_any(data) == text


@pytest.mark.parametrize("value", [1, None, ["a"], 1.5])
def test_other_values(value: Any) -> None:
    assert compat.as_str_any(value) == str(value)
    assert compat.path_to_str(value) is value
    for function in (compat.as_bytes, compat.as_text):
        with pytest.raises(TypeError, match="Expected binary or unicode"):
            function(value)


def test_encoding_and_paths() -> None:
    assert compat.as_bytes("é", "latin-1") == b"\xe9"
    assert compat.as_text(b"\xe9", encoding="latin-1") == "é"
    assert compat.path_to_str(pathlib.PurePosixPath("/a/b")) == "/a/b"


def test_number_types() -> None:
    assert isinstance(np.int8(1), compat.integral_types)
    assert not isinstance(1.0, compat.integral_types)
    assert isinstance(np.float32(1), compat.real_types)
    assert isinstance(np.complex64(1), compat.complex_types)
    assert isinstance(b"", compat.bytes_or_text_types)
