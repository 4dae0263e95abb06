"""`tf.keras.callbacks`: those whose arguments differ from the package's."""

from __future__ import annotations

import os
import re
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

_module = package.module("callbacks")
_Callback: Any = _module.Callback
_ModelCheckpoint: Any = _module.ModelCheckpoint
_TensorBoard: Any = _module.TensorBoard
_ReduceLROnPlateau: Any = _module.ReduceLROnPlateau


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
        for argument in ("load_weights_on_restart", "period"):
            if argument in kwargs:
                tf.logging.warning("`%s` argument is deprecated: %s", argument, _INSTEAD[argument])
        period = kwargs.pop("period", 1)
        self.load_weights_on_restart = kwargs.pop("load_weights_on_restart", False)
        if kwargs:
            raise TypeError(f"ModelCheckpoint has no argument {next(iter(kwargs))!r}")
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ValueError(f"Unrecognized save_freq: {save_freq}")
        path = None if filepath is None else os.fspath(filepath)
        super().__init__(path, monitor, verbose, save_best_only, save_weights_only, mode, period)
        self.save_freq = save_freq
        self._seen = 0
        self._epoch = 0

    def set_model(self, model: PassedOn) -> None:
        super().set_model(model)
        if not getattr(model, "_is_graph_network", True) and type(model).__name__ != "Sequential":
            self.save_weights_only = True  # what such a model computes is in no file

    def on_train_begin(self, logs: PassedOn = None) -> None:
        path = self._get_most_recently_modified_file_matching_pattern(self.filepath)
        if self.load_weights_on_restart and path is not None:
            try:
                self.model.load_weights(path)
            except (OSError, ValueError) as error:
                raise ValueError(f"Error loading file from {path}. Reason: {error}") from error

    def _get_most_recently_modified_file_matching_pattern(self, pattern: str) -> str | None:
        """The newest file that a pattern such as "weights-{epoch:02d}.h5" may have been written as; None without one.

        TensorFlow's checkpoint of that folder goes first, where it is one; of files of one time, the one whose name
        is last in the alphabet.
        """
        folder, name = os.path.split(pattern)
        parts = [re.escape(part) for part in re.split(r"\{[^}]*\}", name)]
        matches = re.compile(".*".join(parts)).fullmatch
        latest = tf.train.latest_checkpoint(folder or ".")
        if latest is not None and matches(os.path.basename(latest)):
            return latest
        there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        files = [os.path.join(folder, one) for one in there if matches(one)]
        return max(files, key=lambda path: (os.path.getmtime(path), path), default=None)

    def on_epoch_begin(self, epoch: int, logs: PassedOn = None) -> None:
        self._epoch = epoch

    def on_batch_end(self, batch: int, logs: PassedOn = None) -> None:
        if isinstance(self.save_freq, int):
            self._seen += (logs or {}).get("size", 1)
            if self._seen >= self.save_freq:
                self._seen = 0
                self.epochs_since_last_save = self.period  # which counts epochs only
                super().on_epoch_end(self._epoch, dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: PassedOn = None) -> None:
        if self.save_freq == "epoch":
            super().on_epoch_end(epoch, logs)


_INSTEAD = {
    "load_weights_on_restart": "use `model.load_weights()` before the start of `model.fit()`",
    "period": "use `save_freq` for the number of samples between two files",
}


class ReduceLROnPlateau(_ReduceLROnPlateau):
    """Reduces the learning rate when a metric has stopped improving; see the package's."""

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        if "epsilon" in kwargs:
            tf.logging.warning("`epsilon` argument is deprecated and will be removed, use `min_delta` instead.")
            kwargs["min_delta"] = kwargs.pop("epsilon")
        super().__init__(*args, **kwargs)


class TensorBoard(_TensorBoard):
    """Writes summaries of training for TensorBoard.

    Args:
        profile_batch: kept; steps are profiled by `tf.profiler`.
    """

    histogram_freq: int
    samples_seen_at_last_write: int

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

        self._batches_seen = self._batches_validated = 0

    def on_epoch_begin(self, epoch: int, logs: PassedOn = None) -> None:
        """Has the batches that are validated on give their summaries, in the epochs that are asked for."""
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self.model._make_test_function()
            function = self.model.test_function
            if self.merged is not None and self.merged not in function.fetches:
                function.fetches.append(self.merged)
                function.fetch_callbacks[self.merged] = self._write_histograms

    def _write_histograms(self, summary: bytes) -> None:
        self.writer.add_summary(summary, self._batches_validated)
        self._batches_validated += 1

    def on_batch_end(self, batch: int, logs: PassedOn = None) -> None:
        logs = logs or {}
        self.samples_seen += logs.get("size", 1)
        if self.update_freq != "epoch" and self.samples_seen - self.samples_seen_at_last_write >= self.update_freq:
            self._write_logs(_prefixed("batch_", logs), self._batches_seen)
            self.samples_seen_at_last_write = self.samples_seen
        self._batches_seen += 1

    def on_epoch_end(self, epoch: int, logs: PassedOn = None) -> None:
        every, self.histogram_freq = self.histogram_freq, 0  # histograms come of the batches that were validated on
        try:
            super().on_epoch_end(epoch, _prefixed("epoch_", logs or {}))
        finally:
            self.histogram_freq = every
        function = getattr(getattr(self, "model", None), "test_function", None)
        if every and function is not None and self.merged in function.fetches:
            function.fetches.remove(self.merged)
            function.fetch_callbacks.pop(self.merged)

    def on_train_end(self, logs: PassedOn = None) -> None:
        super().on_train_end(logs)


def _prefixed(prefix: str, logs: dict[str, Any]) -> dict[str, Any]:
    """Values by the names that they have in files; not the numbers of batches and samples."""
    return {prefix + name: value for name, value in logs.items() if name not in ("batch", "size", "num_steps")}


class Progress(_Callback):
    """Sees how far an epoch came, to end it for all callbacks where its data ends."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = 0
        self._batches: list[dict[str, Any]] = []

    def on_epoch_begin(self, epoch: int, logs: PassedOn = None) -> None:
        self._epoch, self._batches = epoch, []

    def on_batch_end(self, batch: int, logs: PassedOn = None) -> None:
        self._batches.append(dict(logs or {}))

    def end(self, callbacks: list[Any]) -> None:
        """Ends epoch and training: with the mean of the losses, and metrics as they stand."""
        logs = dict(self._batches[-1]) if self._batches else {}
        logs = {name: value for name, value in logs.items() if name not in ("batch", "size")}
        if "loss" in logs:
            sizes = [one.get("size", 1) for one in self._batches]
            logs["loss"] = sum(one["loss"] * n for one, n in zip(self._batches, sizes, strict=True)) / sum(sizes)
        for callback in callbacks:
            callback.on_epoch_end(self._epoch, dict(logs))
        for callback in callbacks:
            callback.on_train_end()


_CLASSES = (ModelCheckpoint, ReduceLROnPlateau, TensorBoard)
for _cls in _CLASSES:
    _cls.__module__ = "tensorflow.keras.callbacks"
NAMES: dict[str, Any] = {cls.__name__: cls for cls in _CLASSES}
