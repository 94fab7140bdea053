"""Rows in blocks: the public names."""

from mklearn.data.blocks import ArrayBlocks, Block, Blocks, BlockSource
from mklearn.data.dask import DaskBlocks
from mklearn.data.files import (
    AnnDataBlocks,
    CSVBlocks,
    GeneratorBlocks,
    NpyBlocks,
    ParquetBlocks,
)

__all__ = [
    "AnnDataBlocks",
    "ArrayBlocks",
    "Block",
    "BlockSource",
    "Blocks",
    "CSVBlocks",
    "DaskBlocks",
    "GeneratorBlocks",
    "NpyBlocks",
    "ParquetBlocks",
]
