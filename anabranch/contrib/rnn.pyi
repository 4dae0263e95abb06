from anabranch.contrib.rnn_blocks import (
    LSTMBlockFusedCell as LSTMBlockFusedCell,
    LSTMBlockWrapper as LSTMBlockWrapper,
)
from anabranch.contrib.rnn_cells import (
    GRUBlockCell as GRUBlockCell,
    GRUBlockCellV2 as GRUBlockCellV2,
    NASCell as NASCell,
    UGRNNCell as UGRNNCell,
)
from anabranch.contrib.rnn_extras import (
    LayerNormBasicLSTMCell as LayerNormBasicLSTMCell,
    LSTMBlockCell as LSTMBlockCell,
    stack_bidirectional_dynamic_rnn as stack_bidirectional_dynamic_rnn,
    stack_bidirectional_rnn as stack_bidirectional_rnn,
    transpose_batch_time as transpose_batch_time,
)
from anabranch.contrib.rnn_fused import (
    FusedRNNCell as FusedRNNCell,
    FusedRNNCellAdaptor as FusedRNNCellAdaptor,
    TimeReversedFusedRNN as TimeReversedFusedRNN,
    best_effort_input_batch_size as best_effort_input_batch_size,
)
from anabranch.contrib.rnn_grids import (
    BidirectionalGridLSTMCell as BidirectionalGridLSTMCell,
    CoupledInputForgetGateLSTMCell as CoupledInputForgetGateLSTMCell,
    GridLSTMCell as GridLSTMCell,
    TimeFreqLSTMCell as TimeFreqLSTMCell,
)
from anabranch.contrib.rnn_independent import (
    GLSTMCell as GLSTMCell,
    IndRNNCell as IndRNNCell,
    IndyGRUCell as IndyGRUCell,
    IndyLSTMCell as IndyLSTMCell,
    IntersectionRNNCell as IntersectionRNNCell,
    SRUCell as SRUCell,
)
from anabranch.contrib.rnn_pictures import (
    Conv1DLSTMCell as Conv1DLSTMCell,
    Conv2DLSTMCell as Conv2DLSTMCell,
    Conv3DLSTMCell as Conv3DLSTMCell,
    ConvLSTMCell as ConvLSTMCell,
    PhasedLSTMCell as PhasedLSTMCell,
)
from anabranch.contrib.rnn_projections import (
    AttentionCellWrapper as AttentionCellWrapper,
    CompiledWrapper as CompiledWrapper,
    EmbeddingWrapper as EmbeddingWrapper,
    HighwayWrapper as HighwayWrapper,
    InputProjectionWrapper as InputProjectionWrapper,
    OutputProjectionWrapper as OutputProjectionWrapper,
)
from anabranch.frontend.nn.rnn import (
    static_bidirectional_rnn as static_bidirectional_rnn,
    static_rnn as static_rnn,
    static_state_saving_rnn as static_state_saving_rnn,
)
from anabranch.frontend.nn.rnn_cell_base import LayerRNNCell as LayerRNNCell, RNNCell as RNNCell
from anabranch.frontend.nn.rnn_cells import (
    BasicLSTMCell as BasicLSTMCell,
    BasicRNNCell as BasicRNNCell,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    LSTMStateTuple as LSTMStateTuple,
    MultiRNNCell as MultiRNNCell,
)
from anabranch.frontend.nn.rnn_wrappers import (
    DeviceWrapper as DeviceWrapper,
    DropoutWrapper as DropoutWrapper,
    ResidualWrapper as ResidualWrapper,
)
