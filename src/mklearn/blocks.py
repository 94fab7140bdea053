"""Rows in blocks, under the name that users import them by."""

from mklearn.data.blocks import (
    ArrayBlocks,
    BlockSource,
    CSVBlocks,
    GeneratorBlocks,
    NpyBlocks,
    ParquetBlocks,
)

__all__ = [
    "ArrayBlocks",
    "BlockSource",
    "CSVBlocks",
    "GeneratorBlocks",
    "NpyBlocks",
    "ParquetBlocks",
]
