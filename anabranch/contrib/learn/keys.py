"""The names by which `tf.contrib.learn` calls metrics, predictions, problems and tasks."""

from __future__ import annotations


class LearnTaskType:
    """What a task of a cluster does."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


class LearnEnvironment:
    """Where a program runs, as TF_CONFIG has it."""

    CLOUD = "cloud"
    GOOGLE = "google"
    LOCAL = "local"


class LearnProblemType:
    """What is learnt."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


class LearnPredictionType:
    """Whether a recurrent network says something of a whole sequence, or of each of its steps."""

    SINGLE_VALUE = 1
    MULTIPLE_VALUE = 2


class LearnPredictionKey:
    """The names of predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "scores"
    TOP_K = "top_k"
    GENERIC = "output"


class LearnMetricKey:
    """The names of metrics; what is a number in them is put in by `%`."""

    LOSS = "loss"
    AUC = "auc"
    AUC_PR = "auc_precision_recall"
    CLASS_AUC = "auc/class%d"
    CLASS_AUC_PR = "auc_precision_recall/class%d"
    PREDICTION_MEAN = "labels/prediction_mean"
    CLASS_PREDICTION_MEAN = "labels/prediction_mean/class%d"
    CLASS_LOGITS_MEAN = "labels/logits_mean/class%d"
    CLASS_PROBABILITY_MEAN = "labels/probability_mean/class%d"
    LABEL_MEAN = "labels/actual_label_mean"
    CLASS_LABEL_MEAN = "labels/actual_label_mean/class%d"
    ACCURACY = "accuracy"
    ACCURACY_BASELINE = "accuracy/baseline_label_mean"
    ACCURACY_MEAN = "accuracy/threshold_%f_mean"
    PRECISION_MEAN = "precision/positive_threshold_%f_mean"
    RECALL_MEAN = "recall/positive_threshold_%f_mean"
