"""Features of the same samples for several kernels, which are sliced together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Joint:
    """What the factors of a product see of the same samples.

    Attributes
    ----------
    parts : tuple of arrays, CSR matrices or arrays of strings
        The samples, as each factor sees them.
    """

    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not (isinstance(self.parts, tuple) and self.parts):
            raise ValueError("The samples of a product have a part for each factor.")
        if len({part.shape[0] for part in self.parts}) > 1:
            raise ValueError("The factors of a product see different samples.")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, and of columns of all parts; strings count as one."""
        widths = (part.shape[1] if len(part.shape) > 1 else 1 for part in self.parts)
        return self.parts[0].shape[0], sum(widths)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Joint:
        """Return some of the samples."""
        return Joint(tuple(part[rows] for part in self.parts))
