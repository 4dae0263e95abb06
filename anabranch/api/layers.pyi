from anabranch.api import layers_experimental
from anabranch.frontend.layers.base import Layer as Layer
from anabranch.frontend.layers.convolutional import (
    Conv1D as Conv1D,
    Conv2D as Conv2D,
    Conv3D as Conv3D,
    SeparableConv1D as SeparableConv1D,
    SeparableConv2D as SeparableConv2D,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    separable_conv1d as separable_conv1d,
    separable_conv2d as separable_conv2d,
)
from anabranch.frontend.layers.core import (
    Dense as Dense,
    Dropout as Dropout,
    Flatten as Flatten,
    dense as dense,
    dropout as dropout,
    flatten as flatten,
)
from anabranch.frontend.layers.input_spec import InputSpec as InputSpec
from anabranch.frontend.layers.normalization import (
    BatchNormalization as BatchNormalization,
    batch_normalization as batch_normalization,
)
from anabranch.frontend.layers.pooling import (
    AveragePooling1D as AveragePooling1D,
    AveragePooling2D as AveragePooling2D,
    AveragePooling3D as AveragePooling3D,
    MaxPooling1D as MaxPooling1D,
    MaxPooling2D as MaxPooling2D,
    MaxPooling3D as MaxPooling3D,
    average_pooling1d as average_pooling1d,
    average_pooling2d as average_pooling2d,
    average_pooling3d as average_pooling3d,
    max_pooling1d as max_pooling1d,
    max_pooling2d as max_pooling2d,
    max_pooling3d as max_pooling3d,
)
from anabranch.frontend.layers.transposed import (
    Conv2DTranspose as Conv2DTranspose,
    Conv3DTranspose as Conv3DTranspose,
    conv2d_transpose as conv2d_transpose,
    conv3d_transpose as conv3d_transpose,
)

experimental = layers_experimental
