from anabranch.api import random_experimental
from anabranch.frontend.arithmetic.random import (
    categorical as categorical,
    multinomial as multinomial,
    random_gamma,
    random_normal,
    random_poisson,
    random_shuffle,
    random_uniform,
    stateless_categorical as stateless_categorical,
    stateless_multinomial as stateless_multinomial,
    stateless_normal as stateless_normal,
    stateless_truncated_normal as stateless_truncated_normal,
    stateless_uniform as stateless_uniform,
    truncated_normal as truncated_normal,
)
from anabranch.frontend.framework import get_seed as get_seed, set_random_seed as set_random_seed
from anabranch.frontend.nn.candidate_sampling import (
    all_candidate_sampler as all_candidate_sampler,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler as learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
    uniform_candidate_sampler as uniform_candidate_sampler,
)

experimental = random_experimental
gamma = random_gamma
normal = random_normal
poisson = random_poisson
shuffle = random_shuffle
uniform = random_uniform
