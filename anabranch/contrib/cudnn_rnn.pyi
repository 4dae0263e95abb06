from anabranch.contrib.cudnn_layers import (
    CudnnCompatibleGRUCell as CudnnCompatibleGRUCell,
    CudnnCompatibleLSTMCell as CudnnCompatibleLSTMCell,
    CudnnGRU as CudnnGRU,
    CudnnLSTM as CudnnLSTM,
    CudnnRNNRelu as CudnnRNNRelu,
    CudnnRNNTanh as CudnnRNNTanh,
)
