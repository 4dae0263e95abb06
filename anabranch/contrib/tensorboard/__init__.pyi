from anabranch.contrib.tensorboard import plugins as plugins
