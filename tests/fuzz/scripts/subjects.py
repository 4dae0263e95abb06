"""What random scripts are about."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fuzz.scripts import datasets, parsing

#: writers of scripts by subject
SUBJECTS: dict[str, Callable[[Random], str]] = {
    "datasets": datasets.write,
    "parsing": parsing.write,
}
