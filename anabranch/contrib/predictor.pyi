from anabranch.contrib.predictors import (
    Predictor as Predictor,
    from_estimator as from_estimator,
    from_saved_model as from_saved_model,
)
