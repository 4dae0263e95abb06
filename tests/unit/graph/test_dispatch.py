"""Functions with versions for types that are registered."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.values import PassedOn
from anabranch.graph import dispatch
from anabranch.graph.dispatch import dispatched, has_versions, register_type, version_of


class Rows:
    """A type that no other test knows."""


def test_a_version_is_called_where_an_argument_is_of_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_types", ())
    monkeypatch.setattr(dispatch, "_modules", {})
    monkeypatch.setattr(dispatch, "_versions", {})

    @dispatched
    def joined(values: PassedOn, axis: int = 0) -> Any:
        """Documented."""
        return "tensors", axis

    @dispatched
    def other(value: PassedOn) -> Any:
        return "tensor"

    assert not has_versions(Rows())
    register_type(Rows, "json")  # a module that is there, and gives no versions

    @version_of(joined)
    def _(values: PassedOn, axis: int = 0) -> Any:
        return "rows", axis

    rows = Rows()
    assert has_versions(rows)
    assert joined.__doc__ == "Documented."
    assert joined([1, 2], 1) == ("tensors", 1)
    assert joined([1, rows], axis=1) == joined(values=(rows,), axis=1) == ("rows", 1)
    assert joined(rows) == ("rows", 0)
    assert other(rows) == "tensor", "what has no version is called as it is"
    with pytest.raises(ValueError, match="has a version already"):
        version_of(joined)(lambda: None)
    with pytest.raises(ValueError, match="is not @dispatched"):
        version_of(len)(lambda: None)
