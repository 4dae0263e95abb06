from anabranch.contrib.feature_columns import (
    bucketized_column as bucketized_column,
    create_feature_spec_for_parsing as create_feature_spec_for_parsing,
    crossed_column as crossed_column,
    embedding_column as embedding_column,
    input_from_feature_columns as input_from_feature_columns,
    one_hot_column as one_hot_column,
    real_valued_column as real_valued_column,
    sparse_column_with_hash_bucket as sparse_column_with_hash_bucket,
    sparse_column_with_integerized_feature as sparse_column_with_integerized_feature,
    sparse_column_with_keys as sparse_column_with_keys,
    sparse_column_with_vocabulary_file as sparse_column_with_vocabulary_file,
    weighted_sparse_column as weighted_sparse_column,
)
from anabranch.contrib.feature_sums import (
    check_feature_columns as check_feature_columns,
    infer_real_valued_columns as infer_real_valued_columns,
    joint_weighted_sum_from_feature_columns as joint_weighted_sum_from_feature_columns,
    make_place_holder_tensors_for_base_features as make_place_holder_tensors_for_base_features,
    parse_feature_columns_from_examples as parse_feature_columns_from_examples,
    parse_feature_columns_from_sequence_examples as parse_feature_columns_from_sequence_examples,
    sequence_input_from_feature_columns as sequence_input_from_feature_columns,
    shared_embedding_columns as shared_embedding_columns,
    weighted_sum_from_feature_columns as weighted_sum_from_feature_columns,
)
from anabranch.contrib.layer_functions import (
    bow_encoder as bow_encoder,
    embed_sequence as embed_sequence,
    embedding_lookup_unique as embedding_lookup_unique,
    flatten as flatten,
    variance_scaling_initializer as variance_scaling_initializer,
    xavier_initializer as xavier_initializer,
)
from anabranch.contrib.regularizers import (
    apply_regularization as apply_regularization,
    l1_l2_regularizer as l1_l2_regularizer,
    l1_regularizer as l1_regularizer,
    l2_regularizer as l2_regularizer,
    sum_regularizer as sum_regularizer,
)
from anabranch.frontend.nn.embedding import safe_embedding_lookup_sparse as safe_embedding_lookup_sparse
from anabranch.tools.contributed_names import layers

xavier_initializer_conv2d = xavier_initializer

__getattr__ = layers
