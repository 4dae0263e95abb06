from anabranch.contrib.learn import preprocessing as preprocessing
