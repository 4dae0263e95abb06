from anabranch.train.cross_shard_optimizer import (
    CrossShardOptimizer as CrossShardOptimizer,
    bfloat16_scope as bfloat16_scope,
    cross_replica_sum as cross_replica_sum,
    outside_compilation as outside_compilation,
)
