"""Where samples come from: views, blocks of rows, files and clusters."""

from mklearn.data.blocks import ArrayBlocks, Block, Blocks, BlockSource
from mklearn.data.dask import DaskBlocks
from mklearn.data.files import (
    AnnDataBlocks,
    CSVBlocks,
    GeneratorBlocks,
    NpyBlocks,
    ParquetBlocks,
)
from mklearn.data.views import MultiView

__all__ = [
    "AnnDataBlocks",
    "MultiView",
    "Block",
    "Blocks",
    "BlockSource",
    "ArrayBlocks",
    "NpyBlocks",
    "CSVBlocks",
    "ParquetBlocks",
    "GeneratorBlocks",
    "DaskBlocks",
]
