from anabranch.contrib.learn import preprocessing as preprocessing
from anabranch.contrib.mode_keys import LearnModeKeys

ModeKeys = LearnModeKeys
