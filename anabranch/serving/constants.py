"""The names that a SavedModel is made of: files, collections, tags, keys of signatures."""

from __future__ import annotations

from typing import Final

# ---------------------------------------------------------------------- files and collections
ASSETS_DIRECTORY: Final = "assets"
ASSETS_KEY: Final = "saved_model_assets"
LEGACY_INIT_OP_KEY: Final = "legacy_init_op"
MAIN_OP_KEY: Final = "saved_model_main_op"
TRAIN_OP_KEY: Final = "saved_model_train_op"
SAVED_MODEL_FILENAME_PB: Final = "saved_model.pb"
SAVED_MODEL_FILENAME_PBTXT: Final = "saved_model.pbtxt"
SAVED_MODEL_SCHEMA_VERSION: Final = 1
VARIABLES_DIRECTORY: Final = "variables"
VARIABLES_FILENAME: Final = "variables"
#: signatures that stand for an operation, which no program may use for its own
INIT_OP_SIGNATURE_KEY: Final = "__saved_model_init_op"
TRAIN_OP_SIGNATURE_KEY: Final = "__saved_model_train_op"

# ---------------------------------------------------------------------- tags
GPU: Final = "gpu"
SERVING: Final = "serve"
TPU: Final = "tpu"
TRAINING: Final = "train"

# ---------------------------------------------------------------------- signatures
DEFAULT_SERVING_SIGNATURE_DEF_KEY: Final = "serving_default"
CLASSIFY_INPUTS: Final = "inputs"
CLASSIFY_METHOD_NAME: Final = "tensorflow/serving/classify"
CLASSIFY_OUTPUT_CLASSES: Final = "classes"
CLASSIFY_OUTPUT_SCORES: Final = "scores"
PREDICT_INPUTS: Final = "inputs"
PREDICT_METHOD_NAME: Final = "tensorflow/serving/predict"
PREDICT_OUTPUTS: Final = "outputs"
REGRESS_INPUTS: Final = "inputs"
REGRESS_METHOD_NAME: Final = "tensorflow/serving/regress"
REGRESS_OUTPUTS: Final = "outputs"
