from anabranch.contrib.device_reductions import (
    all_max as all_max,
    all_min as all_min,
    all_prod as all_prod,
    all_sum as all_sum,
    broadcast as broadcast,
    reduce_sum as reduce_sum,
)
