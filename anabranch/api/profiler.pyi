from anabranch.frontend.platform.profiler import (
    GraphNodeProto as GraphNodeProto,
    MultiGraphNodeProto as MultiGraphNodeProto,
    ProfileOptionBuilder as ProfileOptionBuilder,
    profile as profile,
)
