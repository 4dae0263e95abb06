from anabranch.contrib.learn.csv_tables import (
    TableOfExamples,
    load_csv_with_header as load_csv_with_header,
    load_csv_without_header as load_csv_without_header,
)
from anabranch.contrib.learn.samples import load_boston as load_boston, load_iris as load_iris
from anabranch.contrib.mnist_data import Datasets as Datasets

Dataset = TableOfExamples
