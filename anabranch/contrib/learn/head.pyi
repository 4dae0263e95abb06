from anabranch.contrib.learn.class_heads import (
    binary_svm_head as binary_svm_head,
    multi_class_head as multi_class_head,
    multi_label_head as multi_label_head,
)
from anabranch.contrib.learn.heads import (
    LearnHead,
    loss_only_head as loss_only_head,
    multi_head as multi_head,
    no_op_train_fn as no_op_train_fn,
    poisson_regression_head as poisson_regression_head,
    regression_head as regression_head,
)

Head = LearnHead
