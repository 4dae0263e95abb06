from anabranch.contrib.gan.gan_estimator import GANEstimator as GANEstimator, SummaryType as SummaryType
from anabranch.contrib.gan.gan_head import GANHead as GANHead, gan_head as gan_head
