from anabranch.contrib.gan.gan_estimator import GANEstimator as GANEstimator, SummaryType as SummaryType
