from anabranch.frontend.graph_editor.transforming import (
    Transformer as Transformer,
    TransformerInfo as TransformerInfo,
    assign_renamed_collections_handler as assign_renamed_collections_handler,
    copy as copy,
    copy_op_handler as copy_op_handler,
    copy_with_input_replacements as copy_with_input_replacements,
    graph_replace as graph_replace,
    keep_t_if_possible_handler as keep_t_if_possible_handler,
    replace_t_with_placeholder_handler as replace_t_with_placeholder_handler,
    transform_op_if_inside_handler as transform_op_if_inside_handler,
)
