"""Arrays out of tables of pandas and dask, for the models of `tf.contrib.learn`.

Neither package is needed: what is none of their tables is returned as it is.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from anabranch.contrib.arguments import PassedOn

#: an array or a table, or what was given
Extracted: TypeAlias = Any
_NUMBERS = "biuf"


def _is_of(value: PassedOn, package: str) -> bool:
    return type(value).__module__.partition(".")[0] == package and hasattr(value, "index")


def extract_pandas_data(data: PassedOn) -> Extracted:
    """A table of pandas as an array of floats.

    Raises:
        ValueError: a column is of something else than numbers and truth values.
    """
    if not (_is_of(data, "pandas") and hasattr(data, "columns")):
        return data
    bad = [f"'{name}' type='{dtype.name}'" for name, dtype in data.dtypes.items() if dtype.kind not in _NUMBERS]
    if bad:
        raise ValueError(f"Data types for extracting pandas data must be int, float, or bool. Found: {', '.join(bad)}")
    return data.to_numpy(dtype=float)


def extract_pandas_matrix(data: PassedOn) -> Extracted:
    """A table of pandas as an array."""
    return data.to_numpy() if _is_of(data, "pandas") and hasattr(data, "columns") else data


def extract_pandas_labels(labels: PassedOn) -> Extracted:
    """A column of pandas as an array: [examples], or [examples, 1] of a table of one column.

    Raises:
        ValueError: there are several columns, or one of something else than numbers and truth values.
    """
    if not _is_of(labels, "pandas"):
        return labels
    if hasattr(labels, "columns") and len(labels.columns) > 1:
        raise ValueError("Only one column for labels is allowed.")
    values = labels.to_numpy()
    if np.asarray(values).dtype.kind not in _NUMBERS:
        raise ValueError(f"Data types for labels must be int, float, or bool, found {values.dtype}")
    return values


def extract_dask_data(data: PassedOn) -> Extracted:
    """A table of dask as one of pandas."""
    return data.compute() if _is_of(data, "dask") else data


def extract_dask_labels(labels: PassedOn) -> Extracted:
    """A column of dask as one of pandas.

    Raises:
        ValueError: there are several columns.
    """
    if _is_of(labels, "dask") and len(getattr(labels, "columns", ())) > 1:
        raise ValueError("Only one column for labels is allowed.")
    return extract_dask_data(labels)
