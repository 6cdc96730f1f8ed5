"""What the floor of a soak starts, it stops, whatever comes in between."""

import tempfile

import psutil
import pytest

from soak.floor import Floor


def test_where_a_worker_does_not_come_up_no_process_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = psutil.Process().children()
    with pytest.raises(AssertionError, match="KeyError: 'no such rule'"):
        Floor(mutant="no such rule")
    assert psutil.Process().children() == before
