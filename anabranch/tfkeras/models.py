"""`tf.keras.Model`: training, evaluation and prediction."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import (
    calls,
    compiling,
    composite,
    feeding,
    optimizers,
    package,
    rebasing,
    saving,
    standardizing,
)
from anabranch.tfkeras.callbacks import Progress
from anabranch.tfkeras.metrics import named
from anabranch.tfkeras.networks import KerasNetwork

_training = package.module("engine.training")
_utils = package.module("engine.training_utils")
_backend = package.module("backend")
_generic = package.module("utils.generic_utils")
_Model: Any = rebasing.rebased(_training.Model)
#: arguments of `_standardize_user_data` behind inputs and targets
_STANDARDIZED = ("sample_weight", "class_weight", "check_array_lengths", "batch_size")
#: arguments of `compile` that say how a model runs, of which graphs have one way
_WAYS_TO_RUN = ("run_eagerly", "experimental_run_tf_function", "distribute", "cloning")


@rebasing.serves(_training.Model)
class KerasModel(_Model):
    """A network that is trained: functional, from inputs to outputs, or one whose class defines `call`."""

    inputs: Any
    outputs: Any
    input_names: list[str]
    _feed_inputs: list[Any]
    _feed_input_names: list[str]
    _feed_input_shapes: list[Any]
    _per_output_metrics: Any
    _per_output_weighted_metrics: Any
    loss_functions: list[Any]
    #: whether batches are those of a data set, which losses take as they are
    _targets_are_tensors = False

    def compile(
        self,
        optimizer: PassedOn = "rmsprop",
        loss: PassedOn = None,
        metrics: PassedOn = None,
        loss_weights: PassedOn = None,
        sample_weight_mode: PassedOn = None,
        weighted_metrics: PassedOn = None,
        target_tensors: PassedOn = None,
        **kwargs: PassedOn,
    ) -> None:
        """Says how the model is trained. It is run in graphs, whatever is said of `run_eagerly`."""
        for argument in _WAYS_TO_RUN:
            kwargs.pop(argument, None)
        if isinstance(optimizer, list | tuple):
            optimizer = optimizer[0]
        if target_tensors is not None and isinstance(target_tensors, tuple):
            target_tensors = list(target_tensors)
        loss = compiling.objects(loss, package.module("losses"))
        metrics, weighted_metrics = (
            compiling.objects(one, package.module("metrics")) for one in (metrics, weighted_metrics)
        )
        names = (getattr(self, "output_names", None) or []) if self.built else []
        if names:
            compiling.check_names("sample_weight_mode", sample_weight_mode, names)
        super().compile(
            optimizers.get(optimizer),
            compiling.prepared_loss(loss, names),
            metrics,
            loss_weights,
            sample_weight_mode,
            weighted_metrics,
            target_tensors,
            **kwargs,
        )
        self.loss = loss or {}
        if self._is_compiled:
            self.loss_functions = [compiling.public_loss(one) for one in self.loss_functions]
            self._compiled_state = compiling.trainable_state(self)

    @property
    def metrics(self) -> list[Any]:
        """Those given to `compile`, then those of layers, then the model's own; not what a part was compiled with."""
        found = [*self.__dict__.get("_compile_metric_functions", []), *_added(self)]
        return list({id(metric): metric for metric in found}.values())

    def _prepare_total_loss(self, masks: PassedOn) -> Any:
        with self.as_trained():
            return super()._prepare_total_loss(masks)

    def _set_sample_weight_attributes(self, sample_weight_mode: PassedOn, skipped: PassedOn) -> None:
        """Makes the inputs for weights of examples: all count the same where no weights are fed."""
        prepare = package.module("engine.training_utils").prepare_sample_weights
        with tf.Graph().as_default():  # the package's own placeholders have no default
            made, self.sample_weight_modes = prepare(self.output_names, sample_weight_mode, skipped)
        self.sample_weights = [
            None if one is None else compiling.weights_of_examples(name, mode == "temporal")
            for one, name, mode in zip(made, self.output_names, self.sample_weight_modes, strict=True)
        ]
        kept = [i for i in range(len(made)) if i not in skipped]
        self._feed_sample_weight_modes = [self.sample_weight_modes[i] for i in kept]
        self._feed_sample_weights = [self.sample_weights[i] for i in kept]

    @property
    def _loss_weights_list(self) -> Any:
        """How much each output's loss counts, by the name that TensorFlow has for it."""
        return self.loss_weights_list

    def _cache_output_metric_attributes(self, metrics: PassedOn, weighted_metrics: PassedOn) -> None:
        super()._cache_output_metric_attributes(metrics, weighted_metrics)
        self._per_output_metrics = [named(one, metrics, weighted=False) for one in self._per_output_metrics]
        self._per_output_weighted_metrics = [
            named(one, weighted_metrics, weighted=True) for one in self._per_output_weighted_metrics
        ]

    @property
    def run_eagerly(self) -> bool:
        return False

    @run_eagerly.setter
    def run_eagerly(self, value: bool) -> None:
        """Models run in graphs."""

    # ------------------------------------------------------------------ inputs of a model whose class defines `call`
    def _was_called(self, inputs: PassedOn, outputs: PassedOn) -> None:
        self._load_awaited()
        if not self._is_graph_network and not self.inputs and not hasattr(self, "_build_input_shape"):
            self._set_inputs(inputs, outputs)

    def _set_inputs(self, inputs: PassedOn, outputs: PassedOn = None, training: PassedOn = None) -> None:
        """Makes placeholders for arrays, and calls the model on them; tensors are its inputs themselves."""
        if self.inputs:
            raise ValueError("Model inputs are already set.")
        self._feed_inputs, self._feed_input_names, self._feed_input_shapes = [], [], []
        self.input_names = []
        if isinstance(inputs, dict):
            made: Any = {name: self._input(inputs[name], name) for name in inputs}
        elif isinstance(inputs, list | tuple):
            made = [self._input(x, f"input_{index + 1}") for index, x in enumerate(inputs)]
        else:
            made = self._input(inputs, "input_1")
        if outputs is None:
            training = _backend.learning_phase() if training is None else training
            kwargs = {"training": training} if self._expects_training_arg else {}
            with tf.name_scope(self._name_scope()), calls.entered(training):
                self._maybe_build(made)
                outputs = self._compute(made, kwargs)
        self.inputs = [x for x in tf.nest.flatten(made) if not isinstance(x, str)]
        self.outputs = tf.nest.flatten(outputs)
        self.output_names = [f"output_{index + 1}" for index in range(len(self.outputs))]
        self.built = True
        self._load_awaited()

    def _load_awaited(self) -> None:
        """Reads the weights that were to be read before there were variables."""
        status = self.__dict__.get("_loading")
        if status is not None:
            status.restore_new(_backend.get_session())

    def _input(self, x: PassedOn, name: str) -> Any:
        if isinstance(x, list | tuple) and any(isinstance(one, tf.Tensor) for one in tf.nest.flatten(x)):
            # pairs of a name and a tensor, and the like; a list without tensors is an array
            return [one if isinstance(one, str) else self._input(one, f"{name}_{i + 1}") for i, one in enumerate(x)]
        self.input_names.append(name)
        if isinstance(x, composite.Rows):
            raise ValueError(composite.UNDECLARED)
        if isinstance(x, tf.Tensor) or composite.is_composite(x):
            source = getattr(x, "_keras_history", (None,))[0]
            if getattr(source, "is_placeholder", isinstance(x, tf.Tensor) and x.op.type == "Placeholder"):
                self._fed(x, name)
            return x
        array = np.asarray(x)
        if array.ndim == 1:
            array = array[:, None]
        kind = tf.as_dtype(_backend.floatx() if array.dtype.kind == "f" else array.dtype)
        made = tf.placeholder(kind, [None, *array.shape[1:]], name=name)
        self._fed(made, name)
        return made

    def _fed(self, placeholder: PassedOn, name: str) -> None:
        self._feed_inputs.append(placeholder)
        self._feed_input_names.append(name)
        shape = placeholder.shape
        self._feed_input_shapes.append(None if shape.ndims is None else tuple(shape.as_list()))

    def _standardize_user_data(self, x: PassedOn, y: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        if isinstance(x, dict) and not self.inputs:
            self._set_inputs({name: np.asarray(value) for name, value in x.items()})
        if isinstance(x, dict) and len(x) == 1 and len(self._feed_input_names) == 1:
            x = next(iter(x.values()))
        if isinstance(y, list | tuple) and y and not hasattr(y[0], "shape") and not self._is_compiled:
            y = np.asarray(y)
        if not self.inputs and not self.built and _are_arrays(x) and (y is None or self.optimizer):
            self._set_inputs(x)
        if self.inputs and not self._is_compiled and self.optimizer and y is not None:
            self._compile_on_the_way(y)
        if self.inputs and (y is None or self._is_compiled):
            given = dict(zip(_STANDARDIZED, args, strict=False)) | kwargs
            x, y, weights = standardizing.standardized(
                self,
                x,
                y,
                given.get("sample_weight"),
                given.get("class_weight"),
                given.get("check_array_lengths", True),
                given.get("batch_size"),
            )
        else:  # the package says what is missing, or makes the inputs
            x, y, weights = super()._standardize_user_data(x, y, *args, **kwargs)
        if y and len(y) == len(
            self._feed_targets
        ):  # the package makes columns of vectors, of whatever rank outputs are
            losses = self._feed_loss_fns
            y = [_of_rank(*given) for given in zip(y, self._feed_targets, losses, strict=True)]
        return x, y, weights

    def _compile_on_the_way(self, y: PassedOn) -> None:
        """Compiles a model whose outputs were not known when `compile` was called."""
        targets = [v for v in tf.nest.flatten(y) if isinstance(v, tf.Tensor)]
        self.compile(
            optimizer=self.optimizer,
            loss=self.loss,
            metrics=self._compile_metrics,
            weighted_metrics=self._compile_weighted_metrics,
            loss_weights=self.loss_weights,
            sample_weight_mode=self.sample_weight_mode,
            target_tensors=targets or None,
        )

    # ------------------------------------------------------------------ training
    def fit(self, x: PassedOn = None, y: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Trains the model, on arrays, tensors, a generator, or a data set of `tf.data`."""
        kwargs |= dict(zip(_FIT_ARGUMENTS, args, strict=False))
        compiling.check_compiled(self)
        compiling.check_call(self, "fit")
        x = composite.as_rows(x)
        compiling.check_validation(*(kwargs.get(f"validation_{what}") for what in ("data", "split", "steps")))
        if feeding.is_symbolic(x):
            kwargs.pop("batch_size", None)
            kwargs.pop("shuffle", None)
            if kwargs.pop("validation_split", None):
                raise ValueError(
                    "If your data is in the form of symbolic tensors, you cannot use `validation_split`: give "
                    "`validation_data`"
                )
            batches = feeding.Batches((x, y), kwargs.pop("steps_per_epoch", None), "steps_per_epoch")
            return self._fit_batches(iter(batches), batches.steps, kwargs)
        if not feeding.is_data(x):
            if feeding.is_data(kwargs.get("validation_data")):
                return self._fit_arrays(x, y, **kwargs)
            if (
                kwargs.get("verbose", 1)
                and kwargs.get("validation_data") is None
                and not kwargs.get("validation_split")
            ):
                compiling.print_samples(x)
            return super().fit(x, y, **_known(kwargs))
        if y is not None:
            raise ValueError(
                "You passed a dataset or dataset iterator as input `x` to your model. In that case, you should not "
                "specify a target (`y`) argument, since the dataset or dataset iterator generates both input data and "
                "target data."
            )
        for argument in ("sample_weight", "validation_split"):
            if (given := kwargs.pop(argument, None)) is not None and not (isinstance(given, float) and given == 0):
                raise ValueError(
                    f"`{argument}` argument is not supported when input `x` is a dataset or a dataset iterator: the "
                    "data set has weights as third elements, and `take` and `skip` split it"
                )
        compiling.check_no_batch_size(kwargs)
        kwargs.pop("shuffle", None)
        batches = feeding.Batches(x, kwargs.pop("steps_per_epoch", None), "steps_per_epoch")
        return self._fit_batches(iter(batches), batches.steps, kwargs)

    def _fit_batches(self, generator: PassedOn, steps: int, kwargs: dict[str, Any]) -> Any:
        """Trains on a generator, with the remaining arguments of `fit`."""
        validation, held = kwargs.pop("validation_data", None), None
        if feeding.is_data(validation) or feeding.is_symbolic(validation):
            held = feeding.Batches(validation, kwargs.get("validation_steps"), "validation_steps", anew=True)
            kwargs["validation_steps"] = held.steps
            validation = iter(held)
        if kwargs.get("verbose", 1):
            validated = f", validate on {held.steps} steps" if held else ""
            sys.stdout.write(f"Train on {steps} steps{validated}\n")
        for name in ("max_queue_size", "workers", "use_multiprocessing"):
            kwargs.pop(name, None)
        self._targets_are_tensors = True
        progress, given = Progress(), list(kwargs.pop("callbacks", None) or [])
        kwargs["callbacks"] = [*given, progress]
        try:
            return self.fit_generator(
                generator, steps, validation_data=validation, workers=0, shuffle=False, **_known(kwargs)
            )
        except feeding.Exhausted:
            tf.logging.warning(_RAN_OUT % (steps * kwargs.get("epochs", 1)))
            progress.end([*given, self.history])
            return self.history
        finally:
            self._targets_are_tensors = False

    def _fit_arrays(self, x: PassedOn, y: PassedOn, **kwargs: PassedOn) -> Any:
        """Trains on arrays, with a data set to validate on."""
        size = kwargs.pop("batch_size", None) or 32
        inputs, targets = (tf.nest.map_structure(np.asarray, part) for part in (x, y))
        count = len(tf.nest.flatten(inputs)[0])
        whole = tf.data.Dataset.from_tensor_slices((inputs, targets))
        if kwargs.pop("shuffle", True):
            whole = whole.shuffle(count)
        batches = feeding.Batches(whole.batch(size), None, "steps_per_epoch")
        kwargs.pop("validation_split", None)
        return self._fit_batches(iter(batches), batches.steps, kwargs)

    def evaluate(self, x: PassedOn = None, y: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """The losses and metrics, on arrays, tensors, a generator, or a data set of `tf.data`."""
        kwargs |= dict(zip(_EVALUATE_ARGUMENTS, args, strict=False))
        compiling.check_compiled(self)
        compiling.check_call(self, "evaluate")
        x = composite.as_rows(x)
        if feeding.is_symbolic(x):
            x, y = (x, y), None
        elif not feeding.is_data(x):
            return super().evaluate(x, y, **kwargs)
        compiling.check_no_batch_size(kwargs)
        batches = feeding.Batches(x, kwargs.pop("steps", None), "steps")
        self._targets_are_tensors = True
        try:
            with _no_end():
                return self.evaluate_generator(
                    iter(batches),
                    batches.steps,
                    callbacks=kwargs.get("callbacks"),
                    workers=0,
                    verbose=kwargs.get("verbose", 1),
                )
        finally:
            self._targets_are_tensors = False

    def predict(self, x: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """The outputs, for arrays, tensors, a generator, or a data set of `tf.data`."""
        kwargs |= dict(zip(_PREDICT_ARGUMENTS, args, strict=False))
        compiling.check_call(self, "predict")
        x = composite.as_rows(x)
        if feeding.is_symbolic(x):
            x = (x,)
        elif not feeding.is_data(x):
            if not self.outputs and _are_arrays(x):
                self._standardize_user_data(x)
            if any(map(composite.is_composite, self.outputs or ())):
                return self._predict_composite(x, kwargs.get("batch_size"))
            with compiling.lengths_explained():
                return super().predict(x, **kwargs)
        compiling.check_no_batch_size(kwargs)
        batches = feeding.Batches(x, kwargs.pop("steps", None), "steps")
        inputs = (batch[0] for batch in batches)
        with _no_end():
            return self.predict_generator(inputs, batches.steps, workers=0, verbose=kwargs.get("verbose", 0))

    def _predict_composite(self, x: PassedOn, size: int | None) -> Any:
        """The outputs for arrays, some of which are sparse or ragged tensors."""
        arrays, _, _ = self._standardize_user_data(x)
        count, size = len(arrays[0]), size or 32
        batches = [[array[start : start + size] for array in arrays] for start in range(0, count, size)]
        found = [self.predict_on_batch(batch) for batch in batches]
        each = [[one] if len(self.outputs) == 1 else one for one in found]
        joined = [composite.joined(parts) for parts in zip(*each, strict=True)]
        return joined[0] if len(joined) == 1 else joined

    def fit_generator(self, generator: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Trains on what a generator gives, or a `Sequence`."""
        with compiling.generators_explained():
            return super().fit_generator(self._met(generator), *args, **kwargs)

    def evaluate_generator(self, generator: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """The losses and metrics on what a generator gives, or a `Sequence`."""
        generator = self._met(generator)
        self._losses_of_batches: Any = []
        try:
            with compiling.generators_explained():
                outs = super().evaluate_generator(generator, *args, **kwargs)
        finally:
            losses = self.__dict__.pop("_losses_of_batches")
        mean = float(np.mean(losses))  # the package gives that of the last batch
        return [mean, *outs[1:]] if isinstance(outs, list) else mean

    def predict_generator(self, generator: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """The outputs for what a generator gives, or a `Sequence`."""
        with compiling.generators_explained():
            return super().predict_generator(self._met(generator), *args, **kwargs)

    def _met(self, generator: PassedOn) -> Any:
        """The generator, after a model whose inputs are not known has met its first batch."""
        if self.inputs and (self._is_compiled or not self.optimizer):
            return generator
        if hasattr(generator, "__getitem__"):
            first, rest = generator[0], generator
        else:
            first = next(generator)
            rest = itertools.chain([first], generator)
        compiling.check_batch(first)
        x, y = (first[0], first[1]) if isinstance(first, tuple | list) and len(first) > 1 else (first, None)
        x = x[0] if isinstance(x, tuple) and len(x) == 1 else x
        self._standardize_user_data(x, y if self.optimizer else None)
        return rest

    def train_on_batch(self, x: PassedOn, y: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        compiling.check_compiled(self)
        compiling.check_call(self, "train_on_batch")
        x, y = self._first(x, y)
        return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x: PassedOn, y: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        compiling.check_compiled(self)
        compiling.check_call(self, "test_on_batch")
        x, y = self._first(x, y)
        outs = super().test_on_batch(x, y, *args, **kwargs)
        if "_losses_of_batches" in self.__dict__:
            self._losses_of_batches.append(outs[0] if isinstance(outs, list) else outs)
        return outs

    def predict_on_batch(self, x: PassedOn) -> Any:
        compiling.check_call(self, "predict_on_batch")
        x, _ = self._first(x, None)
        return super().predict_on_batch(x)

    def _first(self, x: PassedOn, y: PassedOn) -> tuple[Any, Any]:
        """A batch: the first one of a data set, or the values of tensors."""
        x = composite.as_rows(x)
        if feeding.is_symbolic(x) and (y is None or feeding.is_symbolic(y)):
            return (feeding.values(x), None) if y is None else feeding.values((x, y))
        if not feeding.is_data(x):
            return x, y
        batch = next(iter(feeding.Batches(x, 1, "steps")))
        return batch[0], batch[1] if len(batch) > 1 else None

    def _make_train_function(self) -> None:
        """Makes the step of training, and reads what a checkpoint has of the optimizer that is there only now.

        What is trained, and updated, is what was to be when the model was compiled.
        """
        with compiling.restored(self.__dict__.get("_compiled_state", [])), self.as_trained():
            super()._make_train_function()
        self._load_awaited()

    # ------------------------------------------------------------------ files
    save = saving.save
    save_weights = saving.save_weights
    load_weights = saving.load_weights


def _added(model: PassedOn) -> list[Any]:
    """The metrics that were added to a model's layers, and to itself."""
    of_layers = [_added(part) if isinstance(part, KerasNetwork) else part.metrics for part in model.layers]
    return [*itertools.chain.from_iterable(of_layers), *model._metrics]


def _are_arrays(x: PassedOn) -> bool:
    """Whether inputs are an array or a list of arrays."""
    listed = x if isinstance(x, list | tuple) else [x]
    return bool(listed) and all(isinstance(one, np.ndarray | composite.Rows) for one in listed)


def _of_rank(array: PassedOn, target: PassedOn, loss: PassedOn) -> Any:
    """Targets without a last dimension of one, or with one for classes, where a model's outputs have another rank."""
    rank = target.shape.ndims
    if isinstance(array, np.ndarray) and array.ndim + 1 == rank and compiling.is_of_classes(loss):
        return array[..., None]
    is_column = isinstance(array, np.ndarray) and array.ndim - 1 == rank and array.shape[-1] == 1
    return array[..., 0] if is_column else array


_FIT_ARGUMENTS = (
    *("batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data", "shuffle"),
    *("class_weight", "sample_weight", "initial_epoch", "steps_per_epoch", "validation_steps", "validation_freq"),
)
_EVALUATE_ARGUMENTS = ("batch_size", "verbose", "sample_weight", "steps", "callbacks")
_PREDICT_ARGUMENTS = ("batch_size", "verbose", "steps", "callbacks")
_RAN_OUT = (
    "Your dataset ran out of data; interrupting training. Make sure that it can generate at least `steps_per_epoch * "
    "epochs` batches (in this case, %d batches). You may need to use the repeat() function when building your dataset."
)


class _no_end:
    """A block in which data that ends too early is an error that says so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, feeding.Exhausted):
            raise ValueError("the dataset has fewer batches than `steps`; give fewer steps, or repeat it") from None


def _known(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key != "nb_epoch"}
