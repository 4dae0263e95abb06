"""What libraries take from TensorFlow's private modules and the public names lack, under `anabranch run`.

`tools.tensorflow_alias` says which module of TensorFlow finds its names where.
"""
