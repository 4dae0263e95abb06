from anabranch.estimator.early_stopping import (
    make_early_stopping_hook as make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook as make_stop_at_checkpoint_step_hook,
    stop_if_higher_hook as stop_if_higher_hook,
    stop_if_lower_hook as stop_if_lower_hook,
    stop_if_no_decrease_hook as stop_if_no_decrease_hook,
    stop_if_no_increase_hook as stop_if_no_increase_hook,
)
from anabranch.estimator.kmeans import KMeans as KMeans
from anabranch.estimator.logit_functions import (
    call_logit_fn as call_logit_fn,
    dnn_logit_fn_builder as dnn_logit_fn_builder,
    linear_logit_fn_builder as linear_logit_fn_builder,
)
from anabranch.estimator.memory_evaluation import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from anabranch.estimator.receivers import (
    build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn,
)
from anabranch.estimator.sdca import LinearSDCA as LinearSDCA
