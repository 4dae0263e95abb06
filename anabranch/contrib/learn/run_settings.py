"""`tf.contrib.learn.RunConfig`: that of `tf.estimator` with settings of sessions as arguments of its own."""

from __future__ import annotations

import os

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


class LearnRunConfig(tf.estimator.RunConfig):
    """How a model is trained; what is not listed here is as in `tf.estimator.RunConfig`.

    Args:
        master, evaluation_master: not used; a cluster is described in the environment (TF_CONFIG).
        num_cores: threads of operations; 0: as many as there are cores.
        log_device_placement: whether a session prints where operations run.
        gpu_memory_fraction: the part of a GPU's memory that a process may take.
        session_config: the settings of sessions; None: those above.
        further: other arguments of `tf.estimator.RunConfig`.
    """

    def __init__(
        self,
        master: str | None = None,
        num_cores: int = 0,
        log_device_placement: bool = False,
        gpu_memory_fraction: float = 1,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_secs: PassedOn = ...,
        save_checkpoints_steps: int | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        protocol: str | None = None,
        evaluation_master: str = "",
        model_dir: str | os.PathLike[str] | None = None,
        session_config: tf.ConfigProto | None = None,
        **further: PassedOn,
    ) -> None:
        if session_config is None:
            session_config = tf.ConfigProto(
                log_device_placement=log_device_placement,
                inter_op_parallelism_threads=num_cores,
                intra_op_parallelism_threads=num_cores,
                gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction),
            )
        if save_checkpoints_secs is ...:
            save_checkpoints_secs = 600 if save_checkpoints_steps is None else None
        super().__init__(
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            protocol=protocol,
            **further,
        )

    @property
    def tf_config(self) -> tf.ConfigProto:
        """The settings of sessions, which programs change."""
        settings = self.session_config
        assert settings is not None
        return settings

    @property
    def environment(self) -> str:
        """Always "local", where programs ask for "cloud" too."""
        return "local"
