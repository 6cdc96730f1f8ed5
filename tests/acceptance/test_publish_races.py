"""Many publishers at once, and the same id twice: one message in the broker."""

import multiprocessing
import threading

import pytest
from support.broker import Broker
from support.lock_db import held

PROCESSES, THREADS = 4, 25


def _publish_at_once(barrier, answers):
    """In a process of its own: as many threads as fit, each with one publish, all let go by one barrier."""
    import shop

    shop.app.finalize()

    def publish():
        barrier.wait(timeout=60)
        result = shop.late.delay("a")
        answers.put((result.duplicate, result.id))

    threads = [threading.Thread(target=publish) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def broker(shop, clean_redis):
    return Broker(clean_redis.client(0))


def test_of_100_threads_in_4_processes_exactly_one_is_admitted_and_all_others_get_its_id(shop, broker):
    spawn = multiprocessing.get_context("spawn")
    barrier, queue = spawn.Barrier(PROCESSES * THREADS), spawn.Queue()
    publishers = [spawn.Process(target=_publish_at_once, args=(barrier, queue)) for _ in range(PROCESSES)]
    for publisher in publishers:
        publisher.start()
    answers = [queue.get(timeout=90) for _ in range(PROCESSES * THREADS)]
    for publisher in publishers:
        publisher.join()
    admitted = [task_id for duplicate, task_id in answers if not duplicate]
    assert len(admitted) == 1
    assert {task_id for _, task_id in answers} == set(admitted)
    assert [message["headers"]["id"] for message in broker.waiting()] == admitted


def test_one_task_id_published_twice_is_one_message(shop, broker):
    first = shop.late.apply_async(("a",), task_id="evt_123")
    again = shop.late.apply_async(("a",), task_id="evt_123")
    assert (first.duplicate, again.duplicate, again.id) == (False, True, "evt_123")
    assert [message["headers"]["id"] for message in broker.waiting()] == ["evt_123"]


def test_one_task_id_with_other_arguments_is_another_call(shop, broker, clean_redis):
    """The task id decides nothing: two digests, two locks, two messages."""
    assert not shop.late.apply_async(("a",), task_id="evt_123").duplicate
    assert not shop.late.apply_async(("b",), task_id="evt_123").duplicate
    assert len(broker.waiting()) == len(held(clean_redis.client(2))) == 2
