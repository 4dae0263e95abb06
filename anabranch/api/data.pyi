from anabranch.api import data_experimental
from anabranch.frontend.data.datasets import Dataset as Dataset
from anabranch.frontend.data.iterators import (
    Iterator as Iterator,
    get_legacy_output_classes,
    get_legacy_output_shapes,
    get_legacy_output_types,
    make_initializable_iterator as make_initializable_iterator,
    make_one_shot_iterator as make_one_shot_iterator,
)
from anabranch.frontend.data.options import Options as Options
from anabranch.frontend.data.readers import (
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    TextLineDataset as TextLineDataset,
    TFRecordDataset as TFRecordDataset,
)
from anabranch.frontend.data.specs import DatasetSpec as DatasetSpec

experimental = data_experimental
get_output_classes = get_legacy_output_classes
get_output_shapes = get_legacy_output_shapes
get_output_types = get_legacy_output_types
