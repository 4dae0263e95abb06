from anabranch.contrib.opt_adam import (
    AdaMaxOptimizer as AdaMaxOptimizer,
    AdamGSOptimizer as AdamGSOptimizer,
    LazyAdamGSOptimizer as LazyAdamGSOptimizer,
    LazyAdamOptimizer as LazyAdamOptimizer,
    NadamOptimizer as NadamOptimizer,
)
from anabranch.contrib.opt_agn import (
    AGNCustomGetter as AGNCustomGetter,
    AGNOptimizer as AGNOptimizer,
)
from anabranch.contrib.opt_elastic import (
    ElasticAverageCustomGetter as ElasticAverageCustomGetter,
    ElasticAverageOptimizer as ElasticAverageOptimizer,
)
from anabranch.contrib.opt_external import (
    ExternalOptimizerInterface as ExternalOptimizerInterface,
    ScipyOptimizerInterface as ScipyOptimizerInterface,
)
from anabranch.contrib.opt_ggt import GGTOptimizer as GGTOptimizer
from anabranch.contrib.opt_model_average import (
    ModelAverageCustomGetter as ModelAverageCustomGetter,
    ModelAverageOptimizer as ModelAverageOptimizer,
)
from anabranch.contrib.opt_moving_average import MovingAverageOptimizer as MovingAverageOptimizer
from anabranch.contrib.opt_rates import (
    LARSOptimizer as LARSOptimizer,
    RegAdagradOptimizer as RegAdagradOptimizer,
)
from anabranch.contrib.opt_shampoo import ShampooOptimizer as ShampooOptimizer
from anabranch.contrib.opt_signs import (
    AddSignOptimizer as AddSignOptimizer,
    PowerSignOptimizer as PowerSignOptimizer,
    get_cosine_decay_fn as get_cosine_decay_fn,
    get_linear_decay_fn as get_linear_decay_fn,
    get_restart_decay_fn as get_restart_decay_fn,
)
from anabranch.contrib.opt_weight_decay import (
    AdamWOptimizer as AdamWOptimizer,
    DecoupledWeightDecayExtension as DecoupledWeightDecayExtension,
    MomentumWOptimizer as MomentumWOptimizer,
    extend_with_decoupled_weight_decay as extend_with_decoupled_weight_decay,
)
from anabranch.contrib.opt_wrappers import (
    DropStaleGradientOptimizer as DropStaleGradientOptimizer,
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
    VariableClippingOptimizer as VariableClippingOptimizer,
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
