from anabranch.contrib.learn import mnist as mnist, tables
from anabranch.contrib.learn.samples import (
    DATASETS as DATASETS,
    SYNTHETIC as SYNTHETIC,
    load_boston as load_boston,
    load_dataset as load_dataset,
    load_iris as load_iris,
    make_dataset as make_dataset,
)

base = tables
