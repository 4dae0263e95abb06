"""Random scripts: programs as a user writes them, as text that both sides run."""

from __future__ import annotations
