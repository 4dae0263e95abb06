from anabranch.contrib.tensorboard.plugins import projector as projector
