"""Where samples come from: views, blocks of rows, files and clusters."""

from mklearn.data.blocks import (
    ArrayBlocks,
    CSVBlocks,
    GeneratorBlocks,
    NpyBlocks,
    ParquetBlocks,
)
from mklearn.data.views import MultiView

__all__ = [
    "ArrayBlocks",
    "CSVBlocks",
    "GeneratorBlocks",
    "MultiView",
    "NpyBlocks",
    "ParquetBlocks",
]
