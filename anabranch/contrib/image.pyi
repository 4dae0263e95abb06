from anabranch.contrib.image_colours import (
    adjust_hsv_in_yiq as adjust_hsv_in_yiq,
    random_hsv_in_yiq as random_hsv_in_yiq,
)
from anabranch.contrib.image_regions import (
    bipartite_match as bipartite_match,
    connected_components as connected_components,
)
from anabranch.contrib.image_transforms import (
    angles_to_projective_transforms as angles_to_projective_transforms,
    compose_transforms as compose_transforms,
    flat_transforms_to_matrices as flat_transforms_to_matrices,
    matrices_to_flat_transforms as matrices_to_flat_transforms,
    rotate as rotate,
    transform as transform,
    translate as translate,
    translations_to_projective_transforms as translations_to_projective_transforms,
)
from anabranch.contrib.image_warps import (
    dense_image_warp as dense_image_warp,
    interpolate_spline as interpolate_spline,
    sparse_image_warp as sparse_image_warp,
)

adjust_yiq_hsv = adjust_hsv_in_yiq
random_yiq_hsv = random_hsv_in_yiq
