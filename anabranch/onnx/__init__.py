"""Models in the Open Neural Network Exchange's format: read into graphs, and written from them.

The extra brings what it needs: `pip install 'anabranch[onnx]'`.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("onnx") is None:
    raise ImportError("anabranch.onnx needs the package onnx. Install it: pip install 'anabranch[onnx]'", name="onnx")

from anabranch.onnx.exporting import export_graph as export_graph, save as save
from anabranch.onnx.importing import ImportedModel as ImportedModel, import_model as import_model
