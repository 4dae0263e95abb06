from anabranch.frontend.arithmetic.reduction import confusion_matrix as confusion_matrix
from anabranch.frontend.sparse.sets import (
    set_difference as set_difference,
    set_intersection as set_intersection,
    set_size as set_size,
    set_union as set_union,
)
from anabranch.tools.contributed_names import metrics

__getattr__ = metrics
