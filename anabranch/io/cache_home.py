"""Where what can be made anew is kept between processes: in the user's cache directory, or where a variable says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: environment variable that names the directory; empty: nothing is kept
CACHE_DIR_VARIABLE: Final = "ANABRANCH_CACHE_DIR"


def cache_home() -> Path | None:
    """The directory, which need not exist; None where keeping things is turned off."""
    value = os.environ.get(CACHE_DIR_VARIABLE)
    if value is not None:
        return Path(value) if value else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "anabranch"
