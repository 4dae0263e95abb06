from anabranch.contrib.learn.csv_tables import (
    TableOfExamples,
    load_csv_with_header as load_csv_with_header,
    load_csv_without_header as load_csv_without_header,
)
from anabranch.contrib.mnist_data import Datasets as Datasets

Dataset = TableOfExamples
