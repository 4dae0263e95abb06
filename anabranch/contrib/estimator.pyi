from anabranch.contrib.boosted_trees_training import (
    boosted_trees_classifier_train_in_memory as boosted_trees_classifier_train_in_memory,
    boosted_trees_regressor_train_in_memory as boosted_trees_regressor_train_in_memory,
)
from anabranch.contrib.clipped_gradients import clip_gradients_by_norm as clip_gradients_by_norm
from anabranch.contrib.replicated_models import (
    TowerOptimizer as TowerOptimizer,
    replicate_model_fn as replicate_model_fn,
)
from anabranch.estimator.added_metrics import add_metrics as add_metrics
from anabranch.estimator.baseline import BaselineEstimator as BaselineEstimator
from anabranch.estimator.canned import (
    DNNEstimator as DNNEstimator,
    DNNLinearCombinedEstimator as DNNLinearCombinedEstimator,
    LinearEstimator as LinearEstimator,
)
from anabranch.estimator.class_heads import BinaryClassHead, MultiClassHead, MultiLabelHead
from anabranch.estimator.early_stopping import (
    make_early_stopping_hook as make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook as make_stop_at_checkpoint_step_hook,
    stop_if_higher_hook as stop_if_higher_hook,
    stop_if_lower_hook as stop_if_lower_hook,
    stop_if_no_decrease_hook as stop_if_no_decrease_hook,
    stop_if_no_increase_hook as stop_if_no_increase_hook,
)
from anabranch.estimator.exports_of_modes import (
    build_supervised_input_receiver_fn_from_input_fn as build_supervised_input_receiver_fn_from_input_fn,
    export_all_saved_models as export_all_saved_models,
    export_saved_model_for_mode as export_saved_model_for_mode,
)
from anabranch.estimator.forwarded_features import (
    forward_features as forward_features,
    read_eval_metrics as read_eval_metrics,
)
from anabranch.estimator.logit_functions import (
    call_logit_fn as call_logit_fn,
    dnn_logit_fn_builder as dnn_logit_fn_builder,
    linear_logit_fn_builder as linear_logit_fn_builder,
)
from anabranch.estimator.memory_evaluation import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from anabranch.estimator.multi_head import MultiHead
from anabranch.estimator.receivers import (
    build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn,
)
from anabranch.estimator.regression_heads import LogisticRegressionHead, PoissonRegressionHead, RegressionHead
from anabranch.estimator.sequence_models import RNNClassifier as RNNClassifier, RNNEstimator as RNNEstimator

binary_classification_head = BinaryClassHead
logistic_regression_head = LogisticRegressionHead
multi_class_head = MultiClassHead
multi_head = MultiHead
multi_label_head = MultiLabelHead
poisson_regression_head = PoissonRegressionHead
regression_head = RegressionHead
