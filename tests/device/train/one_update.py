"""One update of variables by an optimizer."""

from __future__ import annotations

from typing import Any

from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.session import Session


def run_once(train: Any, fetch: Any, feeds: Any = None) -> Any:
    """What is fetched after the variables were initialized and updated once."""
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train, feeds)
        return session.run(fetch)
