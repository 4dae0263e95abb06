"""Estimators: a model function with a directory, in which training goes on where it ended."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.exporting import TAGS, ModelExport
from anabranch.estimator.model_calls import check_model_function, chosen_predictions, examples_of, metrics_of
from anabranch.estimator.model_functions import (
    EstimatorSpec,
    InputFunction,
    ModeKeys,
    ModelFunction,
    WarmStartSettings,
    arguments_of,
)
from anabranch.estimator.run_config import RunConfig
from anabranch.train.device_setter import STANDARD_PS_OPS

#: the handles of what boosted trees share
_TREE_OPS = ("BoostedTreesEnsembleResourceHandleOp", "BoostedTreesQuantileStreamResourceHandleOp")
Hooks = Sequence[tf.train.SessionRunHook]


class _InitializesIterator(tf.train.SessionRunHook):
    """Initializes the iterator of an input function's dataset in each new session."""

    def __init__(self, initializer: tf.Operation) -> None:
        self._initializer = initializer

    def after_create_session(self, session: PassedOn, coord: PassedOn) -> None:
        session.run(self._initializer)


class Evaluation(NamedTuple):
    """The graph of an evaluation.

    Attributes:
        graph: with the model.
        spec: the model.
        values: the metrics by name, with the loss and the global step.
        update: adds a batch to them.
        hooks: those of the input and of the model.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    values: dict[str, Any]
    update: tf.Operation
    hooks: tuple[tf.train.SessionRunHook, ...]


class Estimator:
    """A model that is trained, evaluated, asked and exported; each builds a graph of its own from checkpoints.

    Args:
        model_fn: `model_fn(features, labels, mode, params, config)`, which returns an `EstimatorSpec`; it may leave out
            any argument but `features`.
        model_dir: where checkpoints and summaries go; None: the configuration's, or a new temporary directory.
        config: a `RunConfig`.
        params: hyperparameters, handed to `model_fn`.
        warm_start_from: a checkpoint, or `WarmStartSettings`: where training takes first values from.

    Raises:
        ValueError: `model_fn` takes other arguments, or directories differ.
    """

    #: metrics that a model does not define, since each has them
    _reserved_metrics: tuple[str, ...] = ("loss", "global_step")

    def __init__(
        self,
        model_fn: ModelFunction,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: PassedOn = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        check_model_function(model_fn, params)
        if config is not None and not isinstance(config, RunConfig):
            raise ValueError(f"config must be an instance of `RunConfig`, but provided {config}.")
        config = config or RunConfig()
        if model_dir is not None and config.model_dir is not None and config.model_dir != os.fsdecode(model_dir):
            raise ValueError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
                f"'{model_dir}', in `RunConfig`: '{config.model_dir}'"
            )
        chosen = os.fsdecode(model_dir) if model_dir is not None else config.model_dir
        if chosen is None:
            chosen = tempfile.mkdtemp()
            tf.logging.warning("Using temporary folder as model directory: %s", chosen)
        self._config = config.replace(model_dir=chosen)
        self._model_dir, self._model_fn = chosen, model_fn
        self._params = {} if params is None else copy.deepcopy(params)
        if isinstance(warm_start_from, str):
            warm_start_from = WarmStartSettings(warm_start_from)
        self._warm_start = warm_start_from

    # ------------------------------------------------------------------ what it is
    @property
    def model_dir(self) -> str:
        """Where checkpoints and summaries are."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """How it runs."""
        return self._config

    @property
    def params(self) -> PassedOn:
        """A copy of the hyperparameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function, of features, labels, mode and config."""

        def public_model_fn(features: PassedOn, labels: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    @property
    def warm_start_from(self) -> WarmStartSettings | None:
        """Where training takes first values from; None: nowhere."""
        return self._warm_start

    def eval_dir(self, name: str | None = None) -> str:
        """Where the summaries of evaluations of that name go."""
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """The prefix of the latest checkpoint; None: there is none."""
        return tf.train.latest_checkpoint(self._model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the latest checkpoint.

        Raises:
            ValueError: there is none.
        """
        return [name for name, _ in tf.train.list_variables(self._trained())]

    def get_variable_value(self, name: str) -> np.ndarray[Any, Any] | np.generic | bytes:
        """The value of a variable in the latest checkpoint: an array, or a scalar as a session gives it.

        Raises:
            ValueError: there is no checkpoint.
            NotFoundError: it has no such variable.
        """
        return tf.train.load_variable(self._trained(), name)

    def _trained(self, checkpoint_path: str | None = None) -> str:
        path = checkpoint_path or self.latest_checkpoint()
        if not path:
            raise ValueError(f"Couldn't find trained model at {self._model_dir}; train it first.")
        return path

    # ------------------------------------------------------------------ training
    def train(
        self,
        input_fn: InputFunction,
        hooks: Hooks | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[tf.train.CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Trains, from the latest checkpoint on, until the input ends or a number of steps is made.

        Args:
            input_fn: gives a dataset of pairs, or a pair, of features and labels.
            hooks: of the session.
            steps: how many steps to make.
            max_steps: the global step to stop at; not both.
            saving_listeners: are called before and after checkpoints.

        Returns:
            The estimator.

        Raises:
            ValueError: both numbers are given, or one is not positive.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        for name, number in (("steps", steps), ("max_steps", max_steps)):
            if number is not None and number <= 0:
                raise ValueError(f"Must specify {name} > 0, given: {number}")
        if max_steps is not None and self._global_step() >= max_steps:
            tf.logging.info("Skipping training since max_steps has already saved.")
            return self
        with self._graph(self._training_devices()):
            step = tf.train.create_global_step()
            features, labels, input_hooks = self._input(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self._config)
            if self._warm_start is not None:
                tf.train.warm_start(*self._warm_start)
            all_hooks = [*input_hooks, *(hooks or ()), *spec.training_hooks]
            if steps is not None or max_steps is not None:
                all_hooks.append(tf.train.StopAtStepHook(num_steps=steps, last_step=max_steps))
            self._train_steps(spec, step, all_hooks, list(saving_listeners or ()))
        return self

    def _train_steps(
        self,
        spec: EstimatorSpec,
        step: tf.Variable,
        hooks: list[tf.train.SessionRunHook],
        listeners: list[tf.train.CheckpointSaverListener],
    ) -> None:
        assert spec.loss is not None
        config = self._config
        if not any(summary.op.name == "loss" for summary in tf.get_collection(tf.GraphKeys.SUMMARIES)):
            tf.summary.scalar("loss", spec.loss)
        hooks.insert(0, tf.train.NanTensorHook(spec.loss))
        if config.log_step_count_steps is not None:
            shown = {"loss": spec.loss, "step": step}
            hooks.append(tf.train.LoggingTensorHook(shown, every_n_iter=config.log_step_count_steps))
        scaffold = self._with_saver(spec.scaffold)
        chief_hooks = list(spec.training_chief_hooks)
        if not any(isinstance(hook, tf.train.CheckpointSaverHook) for hook in (*hooks, *chief_hooks)) and (
            config.save_checkpoints_secs or config.save_checkpoints_steps
        ):
            chief_hooks.append(
                tf.train.CheckpointSaverHook(
                    self._model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    scaffold=scaffold,
                    listeners=listeners,
                )
            )
        elif listeners:
            raise ValueError(
                "saving_listeners: there must be a CheckpointSaverHook to call them; give it the listeners"
            )
        role = config.task_role
        with tf.train.MonitoredTrainingSession(
            master=role.master,
            is_chief=role.is_chief,
            checkpoint_dir=self._model_dir,
            scaffold=scaffold,
            hooks=hooks,
            chief_only_hooks=chief_hooks,
            save_checkpoint_secs=None,
            save_checkpoint_steps=None,
            save_summaries_steps=config.save_summary_steps,
            save_summaries_secs=None,
            config=role.session_config() if config.session_config is None and role.master else config.session_config,
            log_step_count_steps=config.log_step_count_steps,
            max_wait_secs=config.session_creation_timeout_secs,
        ) as session:
            loss = None
            while not session.should_stop():
                _, loss = session.run([spec.train_op, spec.loss])
        tf.logging.info("Loss for final step: %s.", loss)

    def _with_saver(self, scaffold: tf.train.Scaffold) -> tf.train.Scaffold:
        """A scaffold that keeps as many checkpoints as the configuration says, if the model's has no saver."""
        if scaffold.saver is None and not tf.get_collection(tf.GraphKeys.SAVERS):
            saver = tf.train.Saver(
                sharded=True,
                max_to_keep=self._config.keep_checkpoint_max,
                keep_checkpoint_every_n_hours=self._config.keep_checkpoint_every_n_hours,
                defer_build=True,
                save_relative_paths=True,
            )
            tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        return scaffold

    def _global_step(self) -> int:
        """The step of the latest checkpoint; 0 without one."""
        path = self.latest_checkpoint()
        return 0 if path is None else self.step_of(path)

    def step_of(self, path: str) -> int:
        """The global step of a checkpoint."""
        return int(tf.train.load_variable(path, tf.GraphKeys.GLOBAL_STEP))

    # ------------------------------------------------------------------ evaluation
    def evaluate(
        self,
        input_fn: InputFunction,
        steps: int | None = None,
        hooks: Hooks | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The metrics of the model on data.

        Args:
            input_fn: as for `train`.
            steps: how many batches; None: until the input ends.
            hooks: of the session.
            checkpoint_path: which checkpoint; None: the latest, or the initial model where there is none.
            name: of the evaluation, whose summaries go to a directory of their own.

        Returns:
            The metrics by name, with "loss" (the mean of the batches' losses) and "global_step".

        Raises:
            ValueError: `steps` is not positive, or a metric has a name that is taken.
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        evaluation = self.build_evaluation(input_fn)
        path = checkpoint_path or self.latest_checkpoint()
        return self.run_evaluation(evaluation, evaluation.spec.scaffold, steps, hooks or (), path, name)

    def build_evaluation(self, input_fn: InputFunction) -> Evaluation:
        """The graph of an evaluation, which `run_evaluation` runs."""
        with self._graph() as graph:
            step = tf.train.create_global_step()
            features, labels, input_hooks = self._input(input_fn, ModeKeys.EVAL)
            spec = self._call_model_fn(features, labels, ModeKeys.EVAL, self._config)
            values, update = metrics_of(spec, step, self._reserved_metrics)
            return Evaluation(graph, spec, values, update, (*input_hooks, *spec.evaluation_hooks))

    def run_evaluation(
        self,
        evaluation: Evaluation,
        scaffold: tf.train.Scaffold,
        steps: int | None,
        hooks: Hooks,
        checkpoint_path: str | None,
        name: str | None,
    ) -> dict[str, Any]:
        """Runs an evaluation and writes its results.

        Args:
            evaluation: what `build_evaluation` built.
            scaffold: how the session is initialized.
            steps, hooks, checkpoint_path, name: as for `evaluate`.

        Returns:
            The metrics by name.
        """
        with evaluation.graph.as_default():
            final = tf.train.FinalOpsHook(evaluation.values)
            with self._session(scaffold, checkpoint_path, [*evaluation.hooks, *hooks, final]) as session:
                batches = 0
                while not session.should_stop() and (steps is None or batches < steps):
                    session.run(evaluation.update)
                    batches += 1
            results: dict[str, Any] = dict(final.final_ops_values)
            self._write_results(results, self.eval_dir(name), evaluation.graph)
        return results

    def _write_results(self, results: Mapping[str, Any], folder: str, graph: tf.Graph) -> None:
        shown = ", ".join(f"{key} = {value}" for key, value in sorted(results.items()))
        tf.logging.info("Saving dict for global step %d: %s", results["global_step"], shown)
        summary = tf.Summary()
        for key, value in results.items():
            if key == "global_step":
                continue
            if isinstance(value, bytes):  # a serialized summary
                summary.value.extend(tf.Summary.FromString(value).value)
            elif np.ndim(value) == 0:
                summary.value.add(tag=key, simple_value=float(value))
        with tf.summary.FileWriter(folder, graph=graph) as writer:
            writer.add_summary(summary, int(results["global_step"]))

    # ------------------------------------------------------------------ prediction
    def predict(
        self,
        input_fn: InputFunction,
        predict_keys: Sequence[str] | str | None = None,
        hooks: Hooks | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """What the model says to each example, or to each batch.

        Args:
            input_fn: gives a dataset, features, or a pair whose labels do not matter.
            predict_keys: names of the predictions that are wanted; None: all.
            hooks: of the session.
            checkpoint_path: which checkpoint; None: the latest, or the initial model where there is none.
            yield_single_examples: whether to split batches.

        Yields:
            Arrays, by name if the predictions have names.

        Raises:
            ValueError: no prediction has a wanted name, or batches differ in size.
        """
        with self._graph():
            tf.train.create_global_step()
            features, _, input_hooks = self._input(input_fn, ModeKeys.PREDICT)
            spec = self._call_model_fn(features, None, ModeKeys.PREDICT, self._config)
            predictions = chosen_predictions(spec.predictions, predict_keys)
            session = self._session(
                spec.scaffold,
                checkpoint_path or self.latest_checkpoint(),
                [*input_hooks, *(hooks or ()), *spec.prediction_hooks],
            )
            with session:
                while not session.should_stop():
                    batch = session.run(predictions)
                    if yield_single_examples:
                        yield from examples_of(batch)
                    else:
                        yield batch

    def _session(
        self, scaffold: tf.train.Scaffold, checkpoint_path: str | None, hooks: Hooks
    ) -> tf.train.MonitoredSession:
        if checkpoint_path is None:
            tf.logging.info("Could not find trained model in model_dir: %s, running initialization.", self._model_dir)
        creator = tf.train.ChiefSessionCreator(
            scaffold, config=self._config.session_config, checkpoint_filename_with_path=checkpoint_path
        )
        return tf.train.MonitoredSession(creator, hooks)

    # ------------------------------------------------------------------ export
    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], PassedOn],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes the trained model as a SavedModel for serving.

        Args:
            export_dir_base: the model goes to a new directory in it, named after the time in seconds.
            serving_input_receiver_fn: gives a `ServingInputReceiver`.
            assets_extra: file in `assets.extra` of the model -> file to copy.
            as_text: whether the graph is written as text.
            checkpoint_path: which checkpoint; None: the latest.
            experimental_mode: of `ModeKeys`; other than for prediction, the function gives a receiver of labels too.

        Returns:
            The directory of the model, as bytes.

        Raises:
            ValueError: there is no checkpoint, or no receiver function.
        """
        if serving_input_receiver_fn is None:
            raise ValueError("An input_receiver_fn must be defined.")
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self.experimental_export_all_saved_models(
            export_dir_base, receivers, assets_extra, as_text, checkpoint_path
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], PassedOn]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Writes the trained model as a SavedModel with a graph for each mode, tagged "train", "eval" or "serve".

        Args:
            export_dir_base, assets_extra, as_text, checkpoint_path: as for `export_saved_model`.
            input_receiver_fn_map: by the mode, of `ModeKeys`: gives a `ServingInputReceiver`, or for training and
                evaluation a `SupervisedInputReceiver`. The graph for training has its operation in a collection, and
                the first mode in the order above saves the variables.

        Returns:
            The directory of the model, as bytes.

        Raises:
            ValueError: there is no checkpoint, or no mode.
        """
        modes = [mode for mode in TAGS if input_receiver_fn_map.get(mode) is not None]
        if not modes:
            raise ValueError(f"No valid modes for exporting found. Got {list(input_receiver_fn_map)}.")
        path = self._trained(checkpoint_path)
        with ModelExport(os.fsdecode(export_dir_base), path, self._config.session_config) as export:
            for mode in modes:
                with self._graph():
                    tf.train.create_global_step()
                    receiver = input_receiver_fn_map[mode]()
                    labels = getattr(receiver, "labels", None)
                    spec = self._call_model_fn(receiver.features, labels, mode, self._config, exporting=True)
                    export.add(spec, receiver)
            return export.finish(dict(assets_extra or {}), as_text)

    def export_savedmodel(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], PassedOn],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """`export_saved_model` by its older name."""
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )

    # ------------------------------------------------------------------ building
    def _graph(self, device_fn: Callable[[tf.Operation], str] | None = None) -> PassedOn:
        graph = tf.Graph()
        with graph.as_default():
            tf.set_random_seed(self._config.tf_random_seed)
        return _GraphOn(graph, device_fn or self._config.device_fn)

    def _training_devices(self) -> Callable[[tf.Operation], str] | None:
        """Where the operations of training go: on a cluster, variables to its parameter servers, all else here."""
        config = self._config
        if config.device_fn is not None or not config.num_ps_replicas:
            return config.device_fn
        own = f"/job:{config.task_type}/task:{config.task_id}"
        return tf.train.replica_device_setter(
            worker_device=own, cluster=config.cluster_spec, ps_ops=(*STANDARD_PS_OPS, *_TREE_OPS)
        )

    def _input(self, input_fn: InputFunction, mode: str) -> tuple[Any, Any, list[tf.train.SessionRunHook]]:
        """Features, labels and the hooks that the input needs."""
        wanted = arguments_of(input_fn)
        offered = {"mode": mode, "params": self._params_for(mode), "config": self._config}
        with tf.device("/cpu:0"):
            given = input_fn(**{name: value for name, value in offered.items() if name in wanted})
        hooks: list[tf.train.SessionRunHook] = []
        if isinstance(given, tf.data.Dataset):
            iterator = tf.data.make_initializable_iterator(given)
            hooks.append(_InitializesIterator(iterator.initializer))
            given = iterator.get_next()
        if isinstance(given, tuple | list):
            if mode == ModeKeys.PREDICT:
                return given[0], None, hooks
            if len(given) != 2:
                raise ValueError(f"input_fn should return (features, labels) as a len 2 tuple, got {len(given)} parts")
            return given[0], given[1], hooks
        return given, None, hooks

    def _params_for(self, mode: str, exporting: bool = False) -> PassedOn:
        """The hyperparameters for functions called in a mode; a subclass may know more of them."""
        return self.params

    def _call_model_fn(
        self, features: PassedOn, labels: PassedOn, mode: str, config: RunConfig, exporting: bool = False
    ) -> EstimatorSpec:
        wanted = arguments_of(self._model_fn)
        params = self._params_for(mode, exporting)
        offered = {"labels": labels, "mode": mode, "params": params, "config": config}
        if "labels" not in wanted and labels is not None:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        return self._checked_spec(
            self._model_fn(features=features, **{name: v for name, v in offered.items() if name in wanted})
        )

    def _checked_spec(self, spec: PassedOn) -> EstimatorSpec:
        """What a model function returned, as a spec; a subclass may take other kinds."""
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(f"model_fn should return an EstimatorSpec, got {type(spec).__name__}")
        return spec


class _GraphOn:
    """A graph as the default one, with a function that says where operations go."""

    def __init__(self, graph: tf.Graph, device_fn: Callable[[tf.Operation], str] | None) -> None:
        self._graph, self._contexts = graph, [graph.as_default(), graph.device(device_fn)]

    def __enter__(self) -> tf.Graph:
        for context in self._contexts:
            context.__enter__()
        return self._graph

    def __exit__(self, *exception: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*exception)  # type: ignore[arg-type]
