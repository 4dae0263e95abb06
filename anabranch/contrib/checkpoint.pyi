from anabranch.core.trackables import NoDependency as NoDependency
from anabranch.frontend.variables.template import capture_dependencies as capture_dependencies
from anabranch.train.checkpoint_manager import CheckpointManager as CheckpointManager
from anabranch.train.checkpointables import (
    Checkpointable as Checkpointable,
    CheckpointableBase as CheckpointableBase,
    CheckpointableObjectGraph as CheckpointableObjectGraph,
    PythonStateWrapper as PythonStateWrapper,
)
from anabranch.train.object_inspection import (
    dot_graph_from_checkpoint as dot_graph_from_checkpoint,
    list_objects as list_objects,
    object_metadata as object_metadata,
)
from anabranch.train.python_state import NumpyState as NumpyState
from anabranch.train.split_dependency import split_dependency as split_dependency
from anabranch.train.tracked_containers import (
    List as List,
    Mapping as Mapping,
    UniqueNameTracker as UniqueNameTracker,
)
