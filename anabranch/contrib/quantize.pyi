from anabranch.contrib.quantize_graphs import (
    create_eval_graph as create_eval_graph,
    create_training_graph as create_training_graph,
    experimental_create_eval_graph as experimental_create_eval_graph,
    experimental_create_training_graph as experimental_create_training_graph,
)
