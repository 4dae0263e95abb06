from anabranch.contrib.tensorboard.plugins.embeddings import visualize_embeddings as visualize_embeddings
from anabranch.proto.projector_pb2 import (
    EmbeddingInfo as EmbeddingInfo,
    ProjectorConfig as ProjectorConfig,
    SpriteMetadata as SpriteMetadata,
)
