from anabranch.frontend.layers.style import (
    keras_style_scope as keras_style_scope,
    set_keras_style as set_keras_style,
)
