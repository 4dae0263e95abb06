"""The names that `tf.contrib.checkpoint` has for the classes of objects in checkpoints."""

from __future__ import annotations

from anabranch.core.trackables import AutoTrackable, Trackable
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph
from anabranch.train.python_state import PythonState

Checkpointable = AutoTrackable
CheckpointableBase = Trackable
CheckpointableObjectGraph = TrackableObjectGraph
PythonStateWrapper = PythonState
