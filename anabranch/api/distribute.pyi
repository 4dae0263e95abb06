from anabranch.api import distribute_cluster_resolver
from anabranch.distributed.server import Server as Server
from anabranch.frontend.replicas import (
    ReduceOp as ReduceOp,
    ReplicaContext as ReplicaContext,
    get_replica_context as get_replica_context,
    get_strategy as get_strategy,
    has_strategy as has_strategy,
    in_cross_replica_context as in_cross_replica_context,
)

cluster_resolver = distribute_cluster_resolver
