from anabranch.contrib.resampling import resampler as resampler
