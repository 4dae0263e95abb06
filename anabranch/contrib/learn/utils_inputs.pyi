from anabranch.contrib.learn.serving_inputs import (
    InputFnOps as InputFnOps,
    build_default_serving_input_fn as build_default_serving_input_fn,
    build_parsing_serving_input_fn as build_parsing_serving_input_fn,
)
