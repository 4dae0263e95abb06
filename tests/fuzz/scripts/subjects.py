"""What random scripts are about."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fuzz.scripts import calls, datasets, parsing, shapes, stateful, training

#: writers of scripts by subject
SUBJECTS: dict[str, Callable[[Random], str]] = {
    "calls": calls.write,
    "datasets": datasets.write,
    "parsing": parsing.write,
    "shapes": shapes.write,
    "stateful": stateful.write,
    "training": training.write,
}
