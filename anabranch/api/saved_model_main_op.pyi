from anabranch.serving.main_ops import (
    main_op as main_op,
    main_op_with_restore as main_op_with_restore,
)
