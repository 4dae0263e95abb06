from anabranch.api import autograph_experimental
from anabranch.frontend.autograph.conversion import (
    set_verbosity as set_verbosity,
    to_code as to_code,
    to_graph as to_graph,
    trace as trace,
)

experimental = autograph_experimental
