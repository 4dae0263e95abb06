from anabranch.frontend.platform.profile_options import ProfileOptionBuilder as ProfileOptionBuilder
from anabranch.frontend.platform.profiler import (
    Profiler as Profiler,
    advise as advise,
    profile as profile,
    write_op_log as write_op_log,
)
from anabranch.proto.tfprof_pb2 import (
    AdviceProto as AdviceProto,
    GraphNodeProto as GraphNodeProto,
    MultiGraphNodeProto as MultiGraphNodeProto,
    OpLogProto as OpLogProto,
)
