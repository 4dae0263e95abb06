"""Messages that are wire-compatible with TensorFlow's file formats, and their conversion to the values of graphs.

The classes are generated from the `.proto` files beside this one (see `README.md` there). Enums are wrappers:
`DataType.Name(1)`, `DataType.Value("DT_FLOAT")`; their numbers stand in the modules, such as `graph_pb2.DT_FLOAT`.
"""
