"""What fuzzing starts from, and what it has found, is read or refused in time."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
from benchmarks import fuzz


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_the_corpus_is_read_or_refused(name):
    assert fuzz.replay(name) > 1


def test_the_corpus_reaches_the_end_of_the_readers():
    """Otherwise fuzzing would look at errors only."""
    from mklearn.persistence import load
    from mklearn.table import read_grams, read_table

    for path in sorted((fuzz.CORPUS / "archive").iterdir()):
        load(path)
    for kind, end in enumerate(fuzz.KINDS):
        data = (fuzz.CORPUS / "table" / end[1:]).read_bytes()
        assert data[0] == kind
        path = fuzz.written(data[1:], end)
        (read_grams if end in (".npy", ".npz") else read_table)(path)
        path.unlink()
