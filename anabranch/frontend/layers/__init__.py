"""Layers: functions of tensors that own variables (`tf.layers`).

`base` holds the class all of them extend; the other files hold the layers by subject, each both as a class and as a
function that makes a layer and calls it once.
"""

from __future__ import annotations
