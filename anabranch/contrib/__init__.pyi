from anabranch.contrib import (
    data as data,
    layers as layers,
    legacy_seq2seq as legacy_seq2seq,
    lookup as lookup,
    rnn as rnn,
    seq2seq as seq2seq,
    slim as slim,
    staging as staging,
    training as training,
)
