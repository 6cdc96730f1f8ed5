"""A message that stands in an answer which a worker has not read is seen, and that there was none is not taken for one."""

import socket
from types import SimpleNamespace

import pytest

from celery_once_more.unread import unread


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def consumer(sock):
    """As far as a worker's is asked."""
    return SimpleNamespace(task_consumer=SimpleNamespace(channel=SimpleNamespace(_in_poll=SimpleNamespace(_sock=sock))))


@pytest.mark.parametrize(
    ("answer", "seen"), [(b"", False), (b"*-1\r\n", False), (b"_\r\n", False), (b"*2\r\n$6\r\ncelery\r\n", True)]
)
def test_an_answer_with_a_message_is_seen_and_stays_unread(ends, answer, seen):
    ours, theirs = ends
    theirs.sendall(answer)
    assert unread(consumer(ours)) is seen
    if answer:
        assert ours.recv(100) == answer


def test_nothing_is_unread_where_nothing_was_asked_or_the_connection_is_closed(ends):
    ours, _ = ends
    ours.close()
    for nothing in (None, SimpleNamespace(task_consumer=None), consumer(None), consumer(ours)):
        assert unread(nothing) is False
    idle = SimpleNamespace(task_consumer=SimpleNamespace(channel=SimpleNamespace(_in_poll=False)))
    assert unread(idle) is False
