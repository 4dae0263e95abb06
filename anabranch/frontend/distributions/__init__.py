"""Probability distributions with parameters that are tensors: samples, densities, statistics, divergences."""

from __future__ import annotations
