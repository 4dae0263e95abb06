"""`tf.keras.callbacks`: those whose arguments differ from the package's."""

from __future__ import annotations

from typing import Any

from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

_module = package.module("callbacks")
_ModelCheckpoint: Any = _module.ModelCheckpoint
_TensorBoard: Any = _module.TensorBoard


class ModelCheckpoint(_ModelCheckpoint):
    """Saves the model, or its weights, after epochs, or after so many samples.

    Args:
        save_freq: "epoch", or how many samples are seen between two files.
        kwargs: `period`, `load_weights_on_restart` (weights are read as training begins, where the file is there).
    """

    def __init__(
        self,
        filepath: str,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: PassedOn = "epoch",
        **kwargs: PassedOn,
    ) -> None:
        period = kwargs.pop("period", 1)
        self.load_weights_on_restart = kwargs.pop("load_weights_on_restart", False)
        if kwargs:
            raise TypeError(f"ModelCheckpoint has no argument {next(iter(kwargs))!r}")
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ValueError(f"Unrecognized save_freq: {save_freq}")
        super().__init__(str(filepath), monitor, verbose, save_best_only, save_weights_only, mode, period)
        self.save_freq = save_freq
        self._seen = 0
        self._epoch = 0

    def on_train_begin(self, logs: PassedOn = None) -> None:
        if self.load_weights_on_restart:
            try:
                self.model.load_weights(self.filepath)
            except (OSError, ValueError) as error:
                raise ValueError(f"Error loading file from {self.filepath}. Reason: {error}") from error

    def on_epoch_begin(self, epoch: int, logs: PassedOn = None) -> None:
        self._epoch = epoch

    def on_batch_end(self, batch: int, logs: PassedOn = None) -> None:
        if isinstance(self.save_freq, int):
            self._seen += (logs or {}).get("size", 1)
            if self._seen >= self.save_freq:
                self._seen = 0
                super().on_epoch_end(self._epoch, dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: PassedOn = None) -> None:
        if self.save_freq == "epoch":
            super().on_epoch_end(epoch, logs)


class TensorBoard(_TensorBoard):
    """Writes summaries of training for TensorBoard.

    Args:
        profile_batch: kept; steps are profiled by `tf.profiler`.
    """

    def __init__(
        self,
        log_dir: str = "./logs",
        histogram_freq: int = 0,
        batch_size: int = 32,
        write_graph: bool = True,
        write_grads: bool = False,
        write_images: bool = False,
        embeddings_freq: int = 0,
        embeddings_layer_names: PassedOn = None,
        embeddings_metadata: PassedOn = None,
        embeddings_data: PassedOn = None,
        update_freq: PassedOn = "epoch",
        profile_batch: int = 2,
    ) -> None:
        super().__init__(
            log_dir=str(log_dir),
            histogram_freq=histogram_freq,
            batch_size=batch_size,
            write_graph=write_graph,
            write_grads=write_grads,
            write_images=write_images,
            embeddings_freq=embeddings_freq,
            embeddings_layer_names=embeddings_layer_names,
            embeddings_metadata=embeddings_metadata,
            embeddings_data=embeddings_data,
            update_freq=update_freq,
        )
        self.profile_batch = profile_batch

    def on_batch_end(self, batch: int, logs: PassedOn = None) -> None:
        super().on_batch_end(batch, {"size": 1, **(logs or {})})


for _cls in (ModelCheckpoint, TensorBoard):
    _cls.__module__ = "tensorflow.keras.callbacks"
NAMES: dict[str, Any] = {"ModelCheckpoint": ModelCheckpoint, "TensorBoard": TensorBoard}
