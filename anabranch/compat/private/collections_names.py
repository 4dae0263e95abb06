"""What `tensorflow.python.util.compat` has beside the public names: Python's abstract containers."""

from __future__ import annotations

import collections.abc

collections_abc = collections.abc
