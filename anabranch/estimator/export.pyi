from anabranch.estimator.export_outputs import (
    ClassificationOutput as ClassificationOutput,
    ExportOutput as ExportOutput,
    PredictOutput as PredictOutput,
    RegressionOutput as RegressionOutput,
)
from anabranch.estimator.receivers import (
    ServingInputReceiver as ServingInputReceiver,
    TensorServingInputReceiver as TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn as build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn,
)
