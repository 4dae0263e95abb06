"""What stands for a worker that messages reach."""

from __future__ import annotations

import gc
from collections.abc import Callable

from anabranch.errors import OpError
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.pipeline import plan_step
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import WorkerReply, WorkerRequest
from anabranch.runtime.local_worker import placer_for
from anabranch.runtime.messages import Frames
from anabranch.runtime.remote_worker import RemoteWorkerSession
from anabranch.runtime.step_messages import kind_of


class LockedTransport:
    """A transport whose lock is held while it sends, during which anything may be collected. See `Transport`."""

    def __init__(self) -> None:
        self.sends = False
        self.forgotten: list[int] = []

    def start(self, frames: Frames, on_reply: Callable[[Frames | OpError], None]) -> None:
        assert not self.sends, "this thread would wait for itself"
        self.sends = True
        gc.collect()
        self.sends = False
        if kind_of(frames) is None:
            request = WorkerRequest.FromString(bytes(frames[0]))
            if request.HasField("release"):
                assert request.release.forgotten
                self.forgotten.append(request.release.partition)

    def call(self, frames: Frames) -> Frames:
        self.start(frames, lambda _: None)
        return [WorkerReply().SerializeToString()]

    def post(self, frames: Frames) -> None:
        raise AssertionError("nothing is aborted here")


def test_partitions_that_are_collected_while_a_message_is_sent_are_forgotten_with_the_next() -> None:
    with Graph().as_default():
        fetch = raw.RandomUniform(shape=[1], dtype=1)
        (partition,) = plan_step([fetch], [], [], placer_for(None, PlacementPolicy())).partitions
    transport = LockedTransport()
    session = RemoteWorkerSession(transport, "session", None, PlacementPolicy(), ConfigProto())
    dropped, kept = session.register(partition), session.register(partition)
    number = dropped._number
    # the collector alone can find it
    dropped.itself = dropped  # type: ignore[attr-defined]
    del dropped
    kept.start(1, [], lambda _: None)
    assert transport.forgotten == []
    kept.start(2, [], lambda _: None)
    kept.start(3, [], lambda _: None)
    assert transport.forgotten == [number]
