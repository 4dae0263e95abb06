"""Fuzzers that run for as long as they are told."""

from __future__ import annotations
