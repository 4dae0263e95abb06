from anabranch.contrib.solvers import (
    lanczos as lanczos,
    least_squares as least_squares,
    linear_equations as linear_equations,
    util as util,
)
