"""How an estimator that was written for TPUs runs where there are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.run_config import RunConfig

NO_TPU = "there is no TPU here: use_tpu=False runs the same model on the devices that there are"


class InputPipelineConfig:
    """Which hosts call an input function, on TPUs; here each task calls it once."""

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


class _TPUConfigFields(NamedTuple):
    iterations_per_loop: int
    num_shards: int | None
    num_cores_per_replica: int | None
    per_host_input_for_training: bool | int
    tpu_job_name: str | None
    initial_infeed_sleep_secs: int | None
    input_partition_dims: Sequence[PassedOn] | None
    eval_training_input_configuration: int
    experimental_host_call_every_n_steps: int


class TPUConfig(_TPUConfigFields):
    """What only TPUs ask for. The values are checked, and nothing here uses them.

    Args:
        iterations_per_loop: steps that a TPU makes between two returns to its host.
        num_shards: replicas of the model; None: one to a core.
        num_cores_per_replica: cores that share a replica.
        per_host_input_for_training: of `InputPipelineConfig`; True: PER_HOST_V1, False: PER_SHARD_V1.
        tpu_job_name: the job of the TPU's tasks.
        initial_infeed_sleep_secs: how long the first batch is held back.
        input_partition_dims: how inputs are cut between the cores of a replica.
        eval_training_input_configuration: of `InputPipelineConfig`: PER_HOST_V1 or SLICED.
        experimental_host_call_every_n_steps: how often `host_call` is made.

    Raises:
        ValueError: a number is not positive, or cores and partitions do not fit each other.
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 2,
        num_shards: int | None = None,
        num_cores_per_replica: int | None = None,
        per_host_input_for_training: bool | int = True,
        tpu_job_name: str | None = None,
        initial_infeed_sleep_secs: int | None = None,
        input_partition_dims: Sequence[PassedOn] | None = None,
        eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1,
        experimental_host_call_every_n_steps: int = 1,
    ) -> Self:
        check_positive("TPUConfig iterations_per_loop", iterations_per_loop)
        for name, number in (("num_shards", num_shards), ("initial_infeed_sleep_secs", initial_infeed_sleep_secs)):
            if number is not None:
                check_positive(f"TPUConfig {name}", number)
        if num_cores_per_replica is not None and num_cores_per_replica not in {1, 2, 4, 8, 16, 32, 64, 128}:
            raise ValueError(f"num_cores_per_replica must be a power of two up to 128; got {num_cores_per_replica}")
        if input_partition_dims is not None:
            if num_cores_per_replica is None:
                raise ValueError("input_partition_dims requires setting num_cores_per_replica.")
            if len(input_partition_dims) not in {1, 2}:
                raise ValueError("input_partition_dims must be a list with one or two elements.")
        if per_host_input_for_training is True:
            per_host_input_for_training = InputPipelineConfig.PER_HOST_V1
        elif per_host_input_for_training is False:
            per_host_input_for_training = InputPipelineConfig.PER_SHARD_V1
        return super().__new__(
            cls,
            iterations_per_loop,
            num_shards,
            num_cores_per_replica,
            per_host_input_for_training,
            tpu_job_name,
            initial_infeed_sleep_secs,
            input_partition_dims,
            eval_training_input_configuration,
            experimental_host_call_every_n_steps,
        )


def check_positive(what: str, number: PassedOn) -> None:
    """Raises a ValueError unless `number` is a positive whole number."""
    if not isinstance(number, int) or number <= 0:
        raise ValueError(f"{what} must be a positive whole number, got {number!r}")


@dataclass(frozen=True, init=False)
class TPURunConfig(RunConfig):
    """`RunConfig` with what only TPUs ask for; `tf.estimator.tpu.RunConfig`.

    Args:
        tpu_config: a `TPUConfig`; None: one of its defaults.
        evaluation_master: the target of the sessions of evaluations; None: that of TF_CONFIG, else `master`.
        master: the target of sessions; None: that of TF_CONFIG.
        cluster: a `ClusterResolver` that is asked for the target instead.
        **kwargs: as for `RunConfig`.

    Raises:
        ValueError: both `cluster` and `master` are given, or as `RunConfig` raises it.
        NotImplementedError: as `RunConfig` raises it.
    """

    tpu_config: TPUConfig = field(default_factory=TPUConfig)

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: PassedOn = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(**kwargs)
        object.__setattr__(self, "tpu_config", tpu_config or TPUConfig())
        if cluster is not None and master is not None:
            raise ValueError("Both cluster and master cannot be set at the same time.")
        if cluster is not None:
            master = cluster.master()
        role = self.task_role
        if master is not None:
            role = dataclasses.replace(role, master=master, evaluation_master=role.evaluation_master or master)
        if evaluation_master is not None:
            role = dataclasses.replace(role, evaluation_master=evaluation_master)
        object.__setattr__(self, "task_role", role)
