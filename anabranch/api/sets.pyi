from anabranch.frontend.sparse.sets import (
    set_difference as set_difference,
    set_intersection as set_intersection,
    set_size as set_size,
    set_union as set_union,
)

difference = set_difference
intersection = set_intersection
size = set_size
union = set_union
