"""What a demonstration says that is started again after its end."""

from __future__ import annotations

from pathlib import Path


def finished(step: int, directory: Path) -> str:
    """Says that the run in a directory has ended, and how to go on."""
    return f"the run in {directory} is finished: it is at step {step} (--steps {step * 2} goes on, --fresh starts over)"
