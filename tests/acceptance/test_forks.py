"""A pool that forks while the keeper's thread is at work: its children live."""

import os
import signal

import pytest
from support.waiting import eventually

pytest_plugins = ["support.floor"]

#: more forks than could all fall between two beats
FORKS = 2


@pytest.mark.conf(once_more_lease=0.3)
def test_a_child_that_is_forked_in_the_midst_of_the_keepers_beat_does_not_hang(floor, start):
    """The beat holds what a fork copies and nobody in the child lets go of, such as the lock of a module that it imports."""
    worker = start("-c", "1", SHOP_SLOW_BEAT="1")
    for n in range(FORKS):
        beats = floor.witness.count("beat")
        eventually(lambda: floor.witness.count("beat") > beats, within=60, what="a beat")  # noqa: B023
        (child,) = worker.children
        os.kill(child, signal.SIGKILL)
        eventually(lambda: len(worker.children) == 1 and worker.children != [child], within=60, what="a new child")  # noqa: B023
        assert floor.shop.imports_slowly.delay(n).get(timeout=30) == n
