from anabranch.contrib.string_tables import (
    index_table_from_tensor as index_table_from_tensor,
    index_to_string as index_to_string,
    index_to_string_table_from_tensor as index_to_string_table_from_tensor,
    string_to_index as string_to_index,
    string_to_index_table_from_tensor as string_to_index_table_from_tensor,
)
from anabranch.frontend.resources.lookup import (
    FastHashSpec as FastHashSpec,
    HasherSpec as HasherSpec,
    HashTable as HashTable,
    IdTableWithHashBuckets as IdTableWithHashBuckets,
    InitializableLookupTableBase as InitializableLookupTableBase,
    StrongHashSpec as StrongHashSpec,
    index_table_from_file as index_table_from_file,
    index_to_string_table_from_file as index_to_string_table_from_file,
)
from anabranch.frontend.resources.lookup_tables import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
    LookupInterface as LookupInterface,
    TableInitializerBase as TableInitializerBase,
    TextFileIdTableInitializer as TextFileIdTableInitializer,
    TextFileIndex as TextFileIndex,
    TextFileInitializer as TextFileInitializer,
    TextFileStringTableInitializer as TextFileStringTableInitializer,
)
from anabranch.frontend.resources.mutable_tables import (
    DenseHashTable as DenseHashTable,
    MutableHashTable as MutableHashTable,
)

MutableDenseHashTable = DenseHashTable
string_to_index_table_from_file = index_table_from_file
