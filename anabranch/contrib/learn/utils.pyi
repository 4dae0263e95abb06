from anabranch.contrib.learn import utils_exports, utils_inputs
from anabranch.contrib.learn.export_strategies import make_export_strategy as make_export_strategy
from anabranch.contrib.learn.serving_inputs import (
    InputFnOps as InputFnOps,
    build_default_serving_input_fn as build_default_serving_input_fn,
    build_parsing_serving_input_fn as build_parsing_serving_input_fn,
)

input_fn_utils = utils_inputs
saved_model_export_utils = utils_exports
