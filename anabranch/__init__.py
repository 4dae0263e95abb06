"""anabranch: stateful dataflow graphs on XLA, with the graph API of TensorFlow 1.15.

``import anabranch as tf``

The public names stand in the stub beside this file, and are imported when a program first asks for them (`api`).
"""

from __future__ import annotations

# what tensors and operations can do, what can be converted to tensors, how conditionals, loops and functions are
# differentiated and written, whichever names a program uses
from anabranch.api import publish as _publish
from anabranch.autodiff import conditional as _conditional, loops as _loops
from anabranch.autodiff.gradients import lift_loops_by as _lift_loops_by
from anabranch.core.registry import load_rest_from as _load_rest_from
from anabranch.frontend import framework as _framework, operators as _operators
from anabranch.frontend.platform.version import VERSION as __version__
from anabranch.frontend.sparse import operators as _sparse_operators
from anabranch.graph import function_def as _function_def, graphdef as _graphdef, rewiring as _rewiring

# an operation family is loaded with the functions that use it, the others at the first name that is not known
_load_rest_from("anabranch.ops.vocabulary")
_lift_loops_by("anabranch.frontend.control_flow.lifted_loops")

_publish(__name__, path="")
