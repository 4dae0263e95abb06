"""What random scripts are about."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fuzz.scripts import (
    calls,
    datasets,
    measures,
    nested,
    parsing,
    ragged,
    recurrent,
    savers,
    shapes,
    stateful,
    training,
)

#: writers of scripts by subject
SUBJECTS: dict[str, Callable[[Random], str]] = {
    "calls": calls.write,
    "datasets": datasets.write,
    "measures": measures.write,
    "nested": nested.write,
    "parsing": parsing.write,
    "ragged": ragged.write,
    "recurrent": recurrent.write,
    "savers": savers.write,
    "shapes": shapes.write,
    "stateful": stateful.write,
    "training": training.write,
}
