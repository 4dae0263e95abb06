from anabranch.contrib.gan import (
    estimator as estimator,
    eval as eval,
    features as features,
    losses as losses,
    namedtuples as namedtuples,
)
from anabranch.contrib.gan.building import (
    acgan_model as acgan_model,
    cyclegan_model as cyclegan_model,
    gan_model as gan_model,
    infogan_model as infogan_model,
    stargan_model as stargan_model,
)
from anabranch.contrib.gan.namedtuples import (
    ACGANModel as ACGANModel,
    CycleGANLoss as CycleGANLoss,
    CycleGANModel as CycleGANModel,
    GANLoss as GANLoss,
    GANModel as GANModel,
    GANTrainOps as GANTrainOps,
    GANTrainSteps as GANTrainSteps,
    InfoGANModel as InfoGANModel,
    StarGANModel as StarGANModel,
)
from anabranch.contrib.gan.steps import (
    RunTrainOpsHook as RunTrainOpsHook,
    gan_train as gan_train,
    gan_train_ops as gan_train_ops,
    get_joint_train_hooks as get_joint_train_hooks,
    get_sequential_train_hooks as get_sequential_train_hooks,
    get_sequential_train_steps as get_sequential_train_steps,
)
from anabranch.contrib.gan.whole_losses import (
    cyclegan_loss as cyclegan_loss,
    gan_loss as gan_loss,
    stargan_loss as stargan_loss,
)
