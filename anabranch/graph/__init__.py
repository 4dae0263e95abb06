"""A program's structure: graphs, operations, tensors, scopes, and their exchange as GraphDef."""
