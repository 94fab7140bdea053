"""User tables: reading them, inferring the types of columns, and making views.

Numbers are standardised, categories become indicator columns, and missing values are
imputed; :class:`TableModel` learns all of this from the training samples only and
stores it with the model. If there are several views, a row that is empty in all columns
of a view lacks that view, and nothing is imputed there.
"""

from mklearn.data.subjects import subject_columns, subject_words
from mklearn.table.columns import (
    Column,
    Layout,
    absent_rows,
    absent_words,
    filled_in,
    find_layout,
)
from mklearn.table.errors import TableError
from mklearn.table.files import is_gram_file, read_grams, read_table, read_tables
from mklearn.table.model import TableModel

__all__ = [
    "Column",
    "Layout",
    "TableError",
    "TableModel",
    "absent_rows",
    "absent_words",
    "filled_in",
    "find_layout",
    "is_gram_file",
    "read_grams",
    "read_table",
    "read_tables",
    "subject_columns",
    "subject_words",
]
