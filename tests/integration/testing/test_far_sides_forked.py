"""Far sides and the death of processes: a child only talks to them, and holds nothing of theirs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from support.waiting import eventually

import celery_once_more
from celery_once_more.testing.far_sides import FarSide

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

CHARGE = {"effect": "charge", "payload": {"amount": 5}}


@pytest.fixture
def far(far_side):
    return far_side("neither")


@pytest.fixture
def fork():
    """``fork(body)`` -> the pid of a child that runs it, then waits to be killed."""
    children = []

    def start(body):
        done, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(done)
                body()
                os.write(told, b"ok")
                os.close(told)
                signal.pause()
            except BaseException:
                os.write(told, traceback.format_exc().encode())
            finally:
                os._exit(0)
        children.append(pid)
        os.close(told)
        with os.fdopen(done) as said:
            assert said.read(2) == "ok", said.read()
        return pid

    yield start
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_child_posts_and_this_process_sees_the_effect(far, fork):
    fork(lambda: far.post("charge", amount=5))
    assert far.effects == [CHARGE]


def test_a_child_cannot_look_at_it_or_change_it(far, fork):
    def body():
        for attempt in (lambda: far.effects, lambda: far.requests, far.reset, far.release, lambda: far.disturb("answer_lost")):
            with pytest.raises(RuntimeError, match="lives in the process of the test"):
                attempt()
        far.close()  # as the end of its with-block would; nothing comes of it

    fork(body)
    assert far.post("charge", amount=5)


def test_a_child_of_a_child_posts_too(far, fork):
    def body():
        pid = os.fork()
        if pid == 0:
            far.post("charge", amount=5)
            os._exit(0)
        os.waitpid(pid, 0)

    fork(body)
    assert far.effects == [CHARGE]


def test_a_port_is_free_when_it_is_closed_whichever_children_live():
    far = FarSide("neither")
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        far.post("charge", amount=5)
        port = far.url.rpartition(":")[2]
        far.close()
        with pytest.raises(ConnectionRefusedError):
            far.post("charge", amount=5)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", int(port)))
            s.listen()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_lost_answer_is_lost_also_when_a_child_was_forked_meanwhile(far, fork):
    far.disturb("answer_held")
    ended = []

    def post():
        try:
            far.post("charge", amount=5)
        except ConnectionError:
            ended.append("lost")

    thread = threading.Thread(target=post, daemon=True)
    thread.start()
    far.wait_for_held()
    fork(lambda: None)
    far.close()  # the connection is ended, though the child was born with a copy of it
    thread.join(30)
    assert not thread.is_alive()


def test_a_child_holds_no_copy_of_its_sockets(far, fork):
    far.disturb("answer_held")
    thread = threading.Thread(target=lambda: far.post("charge", amount=5), daemon=True)
    thread.start()
    far.wait_for_held()
    pid = fork(lambda: None)
    mine, its = sockets(os.getpid()), sockets(pid)
    far.release()
    thread.join(30)
    assert len(mine - its) >= 2, "the one that listens, and the one whose answer is held"


def sockets(pid):
    folder = f"/proc/{pid}/fd"
    if not os.path.isdir(folder):
        pytest.skip("no /proc here")
    targets = []
    for fd in os.listdir(folder):
        try:
            targets.append(os.readlink(f"{folder}/{fd}"))
        except FileNotFoundError:
            continue
    return {target for target in targets if target.startswith("socket:")}


def test_whoever_dies_while_he_waits_for_his_answer_has_had_his_effect(far, fork):
    far.disturb("answer_held")
    pid = os.fork()
    if pid == 0:
        far.post("charge", amount=5)
        os._exit(0)
    far.wait_for_held()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    far.release()
    assert far.effects == [CHARGE]
    assert far.post("charge", amount=5)["id"] == "charge-2"


def test_a_request_whose_sender_is_dead_is_waited_for(far):
    """It stands in the server's queue when the test looks, and belongs to the scenario that sent it."""
    body = b'{"amount": 5}'
    for number in range(1, 101):
        with socket.create_connection(("127.0.0.1", int(far.url.rpartition(":")[2]))) as s:
            s.sendall(b"POST /charge HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        assert len(far.effects) == number


def test_half_a_request_is_none(far):
    with socket.create_connection(("127.0.0.1", int(far.url.rpartition(":")[2]))) as s:
        s.sendall(b'POST /charge HTTP/1.0\r\nContent-Length: 13\r\n\r\n{"amou')
    assert (far.requests, far.effects) == ([], [])


def test_the_first_request_imports_nothing():
    """A module that a thread imports while its process forks stays locked in the child for ever."""
    code = """if True:
        import sys
        from celery_once_more.testing.far_sides import FarSide
        with FarSide("can_be_asked") as far:
            before = set(sys.modules)
            far.post("charge", key="k1", reference="order-42", amount=5)
            far.ask("charge", "order-42")
            sys.exit(", ".join(set(sys.modules) - before) or 0)
    """
    root = str(Path(celery_once_more.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, check=True)


def test_forks_amid_requests_neither_hang_nor_lose_one(far_side):
    far, over = far_side("honours_key"), threading.Event()
    posted = []

    def post():
        while not over.is_set():
            posted.append(far.post("charge", amount=5)["id"])

    threads = [threading.Thread(target=post, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    children, statuses = [], {}
    try:
        for number in range(50):
            pid = os.fork()
            if pid == 0:
                try:
                    far.post("refund", key=f"k{number}", amount=5)
                    with FarSide("neither") as its_own:
                        its_own.post("refund")
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)

        def all_ended():
            for pid in set(children) - statuses.keys():
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    statuses[pid] = status
            return len(statuses) == 50

        eventually(all_ended, what="the ends of the children")
    finally:
        over.set()
        for pid in set(children) - statuses.keys():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for thread in threads:
        thread.join(30)
    assert set(statuses.values()) == {0}
    assert sum(effect["effect"] == "refund" for effect in far.effects) == 50
    assert sorted(posted) == sorted({f"charge-{n + 1}" for n in range(len(posted))})
