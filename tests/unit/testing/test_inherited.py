"""What a forked process does to the connections that it inherited does not reach its parent's."""

import os
import socket

import pytest

from celery_once_more.testing.inherited import cut_inherited_sockets

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is inherited without a fork")


def in_child(act):
    """The exit status of a forked process that does this."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def connected():
    """The two ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            near.settimeout(10)
            far.settimeout(10)
            yield near, far


@pytest.mark.parametrize("end", [0, 1])
def test_a_connection_that_the_child_shuts_down_is_open_in_its_parent(connected, end):
    def goodbye():
        cut_inherited_sockets()
        with pytest.raises(OSError, match="socket"):
            connected[end].sendall(b"goodbye")
        with pytest.raises(OSError, match="socket"):
            connected[end].shutdown(socket.SHUT_RDWR)
        connected[end].close()

    assert in_child(goodbye) == 0
    near, far = connected
    near.sendall(b"hello")
    assert far.recv(100) == b"hello"


def test_a_descriptor_that_is_to_be_kept_is_kept(connected):
    near, far = connected

    def hello():
        cut_inherited_sockets(keep={near.fileno()})
        near.sendall(b"hello")

    assert in_child(hello) == 0
    assert far.recv(100) == b"hello"


def test_two_processes_may_talk_through_a_pair_of_sockets():
    here, there = socket.socketpair()

    def hello():
        cut_inherited_sockets()
        there.sendall(b"hello")

    assert in_child(hello) == 0
    assert here.recv(100) == b"hello"
    here.close()
    there.close()
