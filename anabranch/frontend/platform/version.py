"""`tf.version`: the versions of this package and of the graphs that it writes."""

from __future__ import annotations

from typing import Final

from anabranch.graph.graph import MIN_CONSUMER_VERSION, PRODUCER_VERSION

VERSION: Final = "0.1.0"
GIT_VERSION: Final = "unknown"
COMPILER_VERSION: Final = "XLA"
#: the version that a GraphDef says it was written by; readers refuse what needs a later one than theirs
GRAPH_DEF_VERSION: Final = PRODUCER_VERSION
GRAPH_DEF_VERSION_MIN_CONSUMER: Final = MIN_CONSUMER_VERSION
GRAPH_DEF_VERSION_MIN_PRODUCER: Final = 0
