"""Datasets of databases (WP4.5)."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.structure import TensorComponent
from anabranch.frontend.data.variants import dataset_variant
from anabranch.graph.conversion import convert_to_tensor


class SqlDataset(Dataset):
    """The rows that a query of a database gives, each as a tuple of scalars.

    Args:
        driver_name: the kind of database, a string: "sqlite".
        data_source_name: the file of the database, a string.
        query: one statement, a string.
        output_types: a tuple of the columns' dtypes: string, bool, int8, int16, int32, int64, uint8, uint16, float64.

    Raises (in the step):
        InvalidArgumentError: another driver or dtype, a file that cannot be opened, or another number of columns.
        UnknownError: the statement is wrong.

    Example:
        >>> import sqlite3
        >>> with sqlite3.connect("people.db") as connection:
        ...     _ = connection.execute("create table people(name text, age int)")
        ...     _ = connection.execute("insert into people values('Ann', 42)")
        >>> connection.close()
        >>> rows = tf.data.experimental.SqlDataset("sqlite", "people.db", "select * from people", (tf.string, tf.int32))
        >>> sess.run(tf.data.make_one_shot_iterator(rows).get_next())
        (b'Ann', 42)
    """

    def __init__(
        self, driver_name: TensorLike, data_source_name: TensorLike, query: TensorLike, output_types: Structure
    ) -> None:
        structure = nest.map_structure(
            lambda dtype: TensorComponent(dtypes.as_dtype(dtype), TensorShape([])), output_types
        )
        variant = dataset_variant(
            "SqlDataset",
            structure,
            driver_name=convert_to_tensor(driver_name, dtypes.string, name="driver_name"),
            data_source_name=convert_to_tensor(data_source_name, dtypes.string, name="data_source_name"),
            query=convert_to_tensor(query, dtypes.string, name="query"),
        )
        super().__init__(variant, structure)
