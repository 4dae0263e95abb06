"""The private modules of `tensorflow.contrib` that an aliased `tensorflow` has, as `private_modules` lists others."""

from __future__ import annotations

from typing import Final

#: modules of `contrib.distributions.python.ops`
_DISTRIBUTIONS: Final = (
    *("bernoulli", "beta", "binomial", "categorical", "dirichlet", "exponential", "gamma", "kullback_leibler"),
    *("laplace", "mixture", "multinomial", "mvn_diag", "mvn_tril", "normal", "poisson", "student_t", "uniform"),
)

#: modules of `contrib.gan.python.features.python`
_GAN_FEATURES: Final = (
    *("clip_weights", "conditioning_utils", "random_tensor_pool", "spectral_normalization", "virtual_batchnorm"),
)

#: modules of `contrib.image.python.ops`
_IMAGE: Final = (
    *("dense_image_warp", "distort_image_ops", "image_ops", "interpolate_spline", "segmentation", "sparse_image_warp"),
)

#: modules of `contrib.data.python.ops`
_DATA: Final = (
    *("batching", "counter", "enumerate_ops", "error_ops", "get_single_element", "grouping", "interleave_ops"),
    *("iterator_ops", "parsing_ops", "prefetching_ops", "random_ops", "readers", "resampling", "scan_ops"),
    *("shuffle_ops", "sliding", "unique", "writers"),
)

#: modules of `contrib.estimator.python.estimator`
_ESTIMATOR: Final = (
    *("boosted_trees", "early_stopping", "export", "exporter", "extenders", "head", "hooks", "logit_fns"),
    "multi_head",
)

#: modules of `contrib.learn.python.learn.estimators`
_LEARN_ESTIMATORS: Final = (
    *("constants", "dnn", "dnn_linear_combined", "head", "kmeans", "linear", "logistic_regressor", "metric_key"),
    *("prediction_key", "rnn_common", "svm"),
)

PRIVATE_CONTRIB_MODULES: Final[dict[str, str]] = {
    **{f"contrib.learn.python.learn.estimators.{module}": "tf.contrib.learn" for module in _LEARN_ESTIMATORS},
    "contrib.learn.python.learn.estimators._sklearn": "tf.contrib.learn",
    "contrib.learn.python.learn.evaluable": "tf.contrib.learn",
    "contrib.learn.python.learn.trainable": "tf.contrib.learn",
    "contrib.learn.python.learn.models": "tf.contrib.learn.models",
    "contrib.learn.python.learn.ops": "tf.contrib.learn.ops",
    "contrib.learn.python.learn.learn_io.dask_io": "tf.contrib.learn.io",
    "contrib.learn.python.learn.learn_io.pandas_io": "tf.contrib.learn.io",
    "contrib.learn.python.learn.learn_io.numpy_io": "tf.contrib.learn.io",
    "contrib.learn.python.learn.datasets.synthetic": "anabranch.contrib.learn.samples",
    "contrib.learn.python.learn.basic_session_run_hooks": "tf.train",
    "contrib.learn.python.learn.session_run_hook": "tf.train",
    "contrib.factorization.python.ops.kmeans": "tf.contrib.factorization",
    "contrib.data.python": "tf.contrib.data",
    "contrib.data.python.ops": "tf.contrib.data",
    **{f"contrib.data.python.ops.{module}": "tf.contrib.data tf.data.experimental" for module in _DATA},
    **{f"contrib.estimator.python.estimator.{module}": "tf.contrib.estimator" for module in _ESTIMATOR},
    "contrib.feature_column.python.feature_column.sequence_feature_column": "tf.contrib.feature_column",
    "contrib.framework.python.ops.checkpoint_ops": "tf.contrib.framework",
    "contrib.framework.python.ops.ops": "tf.contrib.framework tf_slim.ops.framework_ops",
    "contrib.framework.python.ops.sort_ops": "tf.contrib.framework",
    "contrib.layers.python.layers.embedding_ops": "tf.contrib.layers",
    "contrib.layers.python.layers.feature_column_ops": "tf.contrib.layers",
    "contrib.legacy_seq2seq.python.ops.seq2seq": "tf.contrib.legacy_seq2seq",
    "contrib.lookup.lookup_ops": "tf.contrib.lookup tf.lookup",
    "contrib.losses.python.metric_learning": "tf_slim.losses.metric_learning",
    "contrib.losses.python.metric_learning.metric_loss_ops": "tf_slim.losses.metric_learning",
    "contrib.metrics.python.metrics": "tf_slim.metrics",
    "contrib.metrics.python.metrics.classification": "tf_slim.metrics.classification",
    "contrib.metrics.python.ops.confusion_matrix_ops": "tf.contrib.metrics",
    "contrib.nn.python.ops.cross_entropy": "tf.contrib.nn",
    "contrib.nn.python.ops.fwd_gradients": "anabranch.contrib.sampled_losses",
    "contrib.nn.python.ops.sampling_ops": "tf.contrib.nn",
    "contrib.summary.summary": "tf.contrib.summary",
    "contrib.training.python.training.bucket_ops": "tf.contrib.training",
    "contrib.training.python.training.device_setter": "tf.contrib.training",
    "contrib.training.python.training.sequence_queueing_state_saver": (
        "tf.contrib.training anabranch.contrib.sequence_queues _padding=padded"
    ),
    "contrib.checkpoint.python.containers": "tf.contrib.checkpoint",
    "contrib.checkpoint.python.python_state": "tf.contrib.checkpoint",
    "contrib.checkpoint.python.split_dependency": "tf.contrib.checkpoint",
    "contrib.checkpoint.python.visualize": "tf.contrib.checkpoint",
    "contrib.copy_graph.python.util": "tf.contrib.copy_graph",
    "contrib.copy_graph.python.util.copy_elements": "tf.contrib.copy_graph",
    "contrib.crf.python.ops.crf": "tf.contrib.crf",
    "contrib.cudnn_rnn.python.layers.cudnn_rnn": "tf.contrib.cudnn_rnn anabranch.contrib.cudnn_layers",
    "contrib.cudnn_rnn.python.ops.cudnn_rnn_ops": "tf.contrib.cudnn_rnn anabranch.contrib.cudnn_layers",
    **{f"contrib.distributions.python.ops.{module}": "tf.contrib.distributions" for module in _DISTRIBUTIONS},
    "contrib.eager.python.tfe": (
        "anabranch.compat.private.test_modes tf defun=function "
        "run_test_in_graph_and_eager_modes=run_in_graph_and_eager_modes "
        "run_all_tests_in_graph_and_eager_modes=run_all_in_graph_and_eager_modes"
    ),
    "contrib.factorization.python.ops.clustering_ops": "tf.contrib.factorization",
    "contrib.framework.python.framework": "tf.contrib.framework",
    "contrib.framework.python.framework.checkpoint_utils": "tf.train",
    "contrib.framework.python.framework.tensor_util": "tf.contrib.framework tf.contrib.util",
    "contrib.framework.python.framework.graph_util": "tf.contrib.framework tf.graph_util",
    "contrib.framework.python.ops": "tf.contrib.framework tf_slim.ops",
    "contrib.framework.python.ops.script_ops": "tf.contrib.framework",
    "contrib.framework.python.ops.arg_scope": "tf_slim.ops.arg_scope tf_slim.ops",
    "contrib.framework.python.ops.variables": "tf_slim.ops.variables tf_slim.ops tf.contrib.framework",
    "contrib.gan.python": "tf.contrib.gan",
    "contrib.gan.python.estimator.python.gan_estimator_impl": "tf.contrib.gan.estimator",
    "contrib.gan.python.estimator.python.head": "tf.contrib.gan.estimator",
    "contrib.gan.python.estimator.python.head_impl": "tf.contrib.gan.estimator",
    "contrib.gan.python.eval.python.classifier_metrics_impl": "tf.contrib.gan.eval",
    "contrib.gan.python.eval.python.eval_utils_impl": "tf.contrib.gan.eval",
    "contrib.gan.python.eval.python.sliced_wasserstein_impl": "tf.contrib.gan.eval",
    "contrib.gan.python.eval.python.summaries_impl": "tf.contrib.gan.eval",
    **{f"contrib.gan.python.features.python.{module}": "tf.contrib.gan.features" for module in _GAN_FEATURES},
    **{f"contrib.gan.python.features.python.{module}_impl": "tf.contrib.gan.features" for module in _GAN_FEATURES},
    "contrib.gan.python.losses.python.losses_impl": "anabranch.contrib.gan.wargs",
    "contrib.gan.python.losses.python.tuple_losses": "tf.contrib.gan.losses",
    "contrib.gan.python.losses.python.tuple_losses_impl": "tf.contrib.gan.losses losses_impl=wargs",
    "contrib.gan.python.namedtuples": "tf.contrib.gan.namedtuples",
    "contrib.gan.python.train": "tf.contrib.gan",
    "contrib.image.ops.gen_image_ops": "tf.contrib.image",
    **{f"contrib.image.python.ops.{module}": "tf.contrib.image" for module in _IMAGE},
    "contrib.integrate.python.ops.odes": "tf.contrib.integrate",
    "contrib.layers.python.layers": "tf.contrib.layers",
    "contrib.layers.python.layers.encoders": "tf.contrib.layers",
    "contrib.learn.python.learn": "tf.contrib.learn",
    "contrib.learn.python.learn.estimators": "tf.contrib.learn",
    "contrib.learn.python.learn.estimators.estimator": "tf.contrib.learn",
    "contrib.learn.python.learn.estimators.model_fn": "tf.contrib.learn",
    "contrib.learn.python.learn.estimators.run_config": "tf.contrib.learn",
    "contrib.learn.python.learn.experiment": "tf.contrib.learn",
    "contrib.learn.python.learn.export_strategy": "tf.contrib.learn",
    "contrib.learn.python.learn.graph_actions": "tf.contrib.learn",
    "contrib.learn.python.learn.learn_io": "tf.contrib.learn.io",
    "contrib.learn.python.learn.learn_io.graph_io": "tf.contrib.learn.io",
    "contrib.learn.python.learn.learn_runner": "tf.contrib.learn.learn_runner",
    "contrib.learn.python.learn.metric_spec": "tf.contrib.learn",
    "contrib.learn.python.learn.monitored_session": "tf.train",
    "contrib.learn.python.learn.monitors": "tf.contrib.learn.monitors",
    "contrib.learn.python.learn.datasets": "tf.contrib.learn.datasets",
    "contrib.learn.python.learn.datasets.base": "anabranch.contrib.learn.tables",
    "contrib.learn.python.learn.datasets.mnist": "anabranch.contrib.mnist_data",
    "contrib.layers.python.layers.feature_column": "tf.contrib.layers",
    "contrib.learn.python.learn.utils": "tf.contrib.learn.utils",
    "contrib.learn.python.learn.utils.input_fn_utils": "anabranch.contrib.learn.utils_inputs",
    "contrib.learn.python.learn.utils.saved_model_export_utils": "anabranch.contrib.learn.utils_exports",
    "contrib.learn.python.learn.preprocessing": "tf.contrib.learn.preprocessing",
    "contrib.learn.python.learn.preprocessing.categorical": "tf.contrib.learn.preprocessing",
    "contrib.learn.python.learn.preprocessing.categorical_vocabulary": "tf.contrib.learn.preprocessing",
    "contrib.learn.python.learn.preprocessing.text": "tf.contrib.learn.preprocessing",
    "contrib.losses.python.losses": "tf.contrib.losses",
    "contrib.metrics.python.ops": "tf_slim.metrics",
    "contrib.metrics.python.ops.set_ops": "tf.sets",
    "contrib.mixed_precision.python": "tf.contrib.mixed_precision",
    "contrib.mixed_precision.python.loss_scale_manager": "tf.contrib.mixed_precision",
    "contrib.mixed_precision.python.loss_scale_optimizer": "tf.contrib.mixed_precision",
    "contrib.model_pruning.python": "tf.contrib.model_pruning",
    "contrib.model_pruning.python.layers": "anabranch.contrib.pruning_layers",
    "contrib.model_pruning.python.layers.core_layers": (
        "anabranch.contrib.pruning_layers anabranch.contrib.pruning_masks MASK_COLLECTION=MASKS "
        "THRESHOLD_COLLECTION=THRESHOLDS MASKED_WEIGHT_COLLECTION=MASKED_WEIGHTS WEIGHT_COLLECTION=WEIGHTS"
    ),
    "contrib.model_pruning.python.layers.layers": "tf.contrib.model_pruning anabranch.contrib.pruning_layers",
    "contrib.model_pruning.python.layers.rnn_cells": "tf.contrib.model_pruning",
    "contrib.model_pruning.python.pruning": "tf.contrib.model_pruning",
    "contrib.model_pruning.python.strip_pruning_vars_lib": "tf.contrib.model_pruning",
    "contrib.nn.python.ops.alpha_dropout": "tf.contrib.nn",
    "contrib.nn.python.ops.scaled_softplus": "tf.contrib.nn",
    "contrib.opt.python.training": "tf.contrib.opt",
    "contrib.opt.python.training.adam_gs_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.adamax": "tf.contrib.opt",
    "contrib.opt.python.training.addsign": "tf.contrib.opt",
    "contrib.opt.python.training.agn_optimizer": (
        "tf.contrib.opt anabranch.contrib.opt_agn anabranch.contrib.opt_centers"
    ),
    "contrib.opt.python.training.drop_stale_gradient_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.elastic_average_optimizer": (
        "tf.contrib.opt anabranch.contrib.opt_elastic anabranch.contrib.opt_centers"
    ),
    "contrib.opt.python.training.external_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.ggt": "tf.contrib.opt",
    "contrib.opt.python.training.lars_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.lazy_adam_gs_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.lazy_adam_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.matrix_functions": "anabranch.contrib.opt_matrix_roots",
    "contrib.opt.python.training.model_average_optimizer": "tf.contrib.opt anabranch.contrib.opt_centers",
    "contrib.opt.python.training.moving_average_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.multitask_optimizer_wrapper": "tf.contrib.opt",
    "contrib.opt.python.training.nadam_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.powersign": "tf.contrib.opt",
    "contrib.opt.python.training.reg_adagrad_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.shampoo": "tf.contrib.opt",
    "contrib.opt.python.training.sign_decay": "tf.contrib.opt",
    "contrib.opt.python.training.variable_clipping_optimizer": "tf.contrib.opt",
    "contrib.opt.python.training.weight_decay_optimizers": "tf.contrib.opt",
    "contrib.quantize.python.common": (
        "anabranch.contrib.quantize_steps CreateOrGetQuantizationStep=quantization_step"
    ),
    "contrib.quantize.python.fold_batch_norms": "anabranch.contrib.quantize_folding FoldBatchNorms=fold_batch_norms",
    "contrib.quantize.python.graph_matcher": "anabranch.contrib.graph_patterns",
    "contrib.quantize.python.quant_ops": (
        "anabranch.contrib.quantize_ranges LastValueQuantize=last_value_quantize "
        "MovingAvgQuantize=moving_average_quantize"
    ),
    "contrib.quantize.python.quantize": "anabranch.contrib.quantize_graphs Quantize=insert_fake_quantization",
    "contrib.quantize.python.quantize_graph": "tf.contrib.quantize",
    "contrib.reduce_slice_ops.python.ops": "tf.contrib",
    "contrib.reduce_slice_ops.python.ops.reduce_slice_ops": "tf.contrib.reduce_slice_ops",
    "contrib.resampler.python.ops.resampler_ops": "tf.contrib.resampler",
    "contrib.all_reduce.python.all_reduce": "anabranch.contrib.all_reduce",
    "contrib.rnn.ops.gen_gru_ops": "generated",
    "contrib.rnn.ops.gen_lstm_ops": "generated",
    "contrib.rnn.python.ops": "tf.contrib.rnn",
    "contrib.rnn.python.ops.core_rnn": "tf.contrib.rnn",
    "contrib.rnn.python.ops.core_rnn_cell": "tf.contrib.rnn anabranch.compat.private.rnn_cells",
    "contrib.rnn.python.ops.core_rnn_cell_impl": "tf.contrib.rnn anabranch.compat.private.rnn_cells",
    "contrib.rnn.python.ops.fused_rnn_cell": "tf.contrib.rnn",
    "contrib.rnn.python.ops.gru_ops": "tf.contrib.rnn",
    "contrib.rnn.python.ops.lstm_ops": "tf.contrib.rnn",
    "contrib.rnn.python.ops.rnn": "tf.contrib.rnn",
    "contrib.rnn.python.ops.rnn_cell": (
        "tf.contrib.rnn anabranch.contrib.rnn_normalized anabranch.contrib.rnn_memory "
        "anabranch.contrib.rnn_projections _linear=linear"
    ),
    "contrib.seq2seq.python.ops": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.attention_wrapper": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.basic_decoder": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.beam_search_decoder": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.beam_search_ops": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.decoder": (
        "tf.contrib.seq2seq anabranch.contrib.rnn_extras _transpose_batch_time=transpose_batch_time"
    ),
    "contrib.seq2seq.python.ops.helper": "tf.contrib.seq2seq",
    "contrib.seq2seq.python.ops.loss": "tf.contrib.seq2seq",
    "contrib.slim.python.slim": "tf.contrib.slim",
    **{
        f"contrib.solvers.python.ops.{module}": f"anabranch.contrib.solvers.{module}"
        for module in ("lanczos", "least_squares", "linear_equations", "util")
    },
    "contrib.solvers.python.ops": "tf.contrib.solvers",
    "contrib.text.python.ops": "tf.contrib.text",
    "contrib.text.python.ops.skip_gram_ops": "tf.contrib.text",
    "contrib.tpu.python.tpu.tpu_config": "tf.contrib.tpu",
    "contrib.tpu.python.tpu.tpu_estimator": "tf.contrib.tpu",
    "contrib.tpu.python.tpu.tpu_function": "anabranch.compat.private.replicas_on_chips",
    "contrib.tpu.python.tpu.tpu_optimizer": "tf.contrib.tpu",
    "contrib.tfprof.model_analyzer": "anabranch.contrib.former_profiles",
    "contrib.tfprof.tfprof_logger": "anabranch.contrib.former_profiles",
    "contrib.training.python.training": "tf.contrib.training tf_slim.training",
    "contrib.training.python.training.hparam": "tf.contrib.training",
    "contrib.training.python.training.resample": "tf.contrib.training",
    "contrib.training.python.training.sampling_ops": "tf.contrib.training",
    "contrib.util.loader": "tf.contrib.util",
}
