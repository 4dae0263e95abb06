from anabranch.contrib.mnist_data import (
    DataSet as DataSet,
    dense_to_one_hot as dense_to_one_hot,
    extract_images as extract_images,
    extract_labels as extract_labels,
    load_mnist as load_mnist,
    read_data_sets as read_data_sets,
)
