from anabranch.contrib.sparsemax_functions import (
    sparsemax as sparsemax,
    sparsemax_loss as sparsemax_loss,
)
