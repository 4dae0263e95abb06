from anabranch.frontend.arithmetic.random import (
    stateless_categorical as stateless_categorical,
    stateless_multinomial as stateless_multinomial,
    stateless_normal,
    stateless_truncated_normal as stateless_truncated_normal,
    stateless_uniform,
)

stateless_random_normal = stateless_normal
stateless_random_uniform = stateless_uniform
