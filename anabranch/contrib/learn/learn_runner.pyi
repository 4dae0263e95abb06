from anabranch.contrib.learn.experiments import run as run
