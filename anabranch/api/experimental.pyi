from anabranch.frontend.switches import (
    function_executor_type as function_executor_type,
    output_all_intermediates as output_all_intermediates,
)
