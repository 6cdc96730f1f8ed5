"""The package's signals, and the log line beside each: task, digest, holder, and what was decided."""

import dataclasses
import logging

import pytest
from celery.utils.dispatch import Signal

from celery_once_more import StoreUnavailable, report, signals
from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.locks import Answer, Holder, Lapsed
from celery_once_more.ticket import Ticket

TICKET = Ticket(
    task="shop.settle", task_id="own id", digest="d" * 22, lock=LOCK_TYPES["until_executed"], series=1, hop=0, queue="celery"
)
HOLDER = Holder(task_id="holder id", phase="running", remaining_ms=500)
LAPSED = Lapsed(task="shop.other", digest="e" * 22, task_id="lapsed id", phase="waiting")
DOWN = StoreUnavailable("acquire: TimeoutError: no answer")

#: what happens, the signals that tell it with what they carry besides sender, task_id and digest, level and text of the line
EVENTS = {
    "acquired at a publish": (
        lambda: report.acquired(TICKET, "waiting", Answer(verdict="admitted")),
        [("lock_acquired", {"phase": "waiting", "token": None})], logging.DEBUG, "taken, waiting"),
    "acquired at a start": (
        lambda: report.acquired(TICKET, "running", Answer(verdict="run", token=7)),
        [("lock_acquired", {"phase": "running", "token": 7})], logging.DEBUG, "taken, running"),
    "released": (
        lambda: report.released(TICKET, "publish failed"),
        [("lock_released", {"reason": "publish failed"})], logging.DEBUG, "freed: publish failed"),
    "conflict": (
        lambda: report.conflict(TICKET, HOLDER, "client", "dropped"),
        [("lock_conflict", {"holder": "holder id", "phase": "running", "side": "client", "decision": "dropped"})],
        logging.INFO, "is held by holder id, running: dropped"),
    "rescheduled": (
        lambda: report.rescheduled(TICKET, "server", 7.5, 2),
        [("task_rescheduled", {"side": "server", "countdown": 7.5, "tries": 2})],
        logging.INFO, "asks for it again in 7.5 s, for the 2. time"),
    "redelivered": (
        lambda: report.redelivered(TICKET, "put off", "of a message whose run lives"),
        [("task_redelivered", {"decision": "put off"})],
        logging.INFO, "one more delivery of a message whose run lives: put off"),
    "lost": (
        lambda: report.lost(TICKET, "another run holds it"),
        [("lock_lost", {"reason": "another run holds it"})], logging.WARNING, "was lost: another run holds it"),
    "store unavailable": (
        lambda: report.unavailable(TICKET, "acquire", DOWN, "published without a lock"),
        [("store_unavailable", {"act": "acquire", "error": DOWN})],
        logging.WARNING, "the lock store did not answer (acquire: TimeoutError: no answer): published without a lock"),
}  # fmt: skip
every_event = pytest.mark.parametrize(("act", "told", "level", "text"), EVENTS.values(), ids=EVENTS.keys())


@pytest.fixture
def heard():
    """Every signal that was sent, by name, with what it carried."""
    seen, receivers = [], []
    for name in signals.__all__:

        def receiver(signal=None, name=name, **what):
            seen.append((name, what))

        getattr(signals, name).connect(receiver, weak=False)
        receivers.append((getattr(signals, name), receiver))
    yield seen
    for signal, receiver in receivers:
        signal.disconnect(receiver)


@every_event
def test_each_event_is_one_signal_that_carries_what_its_documentation_says(heard, act, told, level, text):
    act()
    assert heard == [(name, {"sender": "shop.settle", "task_id": "own id", "digest": "d" * 22, **what}) for name, what in told]


@every_event
def test_each_event_is_one_log_line_with_task_and_digest(caplog, act, told, level, text):
    caplog.set_level(logging.DEBUG, "celery_once_more")
    act()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("celery_once_more", level)
    line = record.getMessage()
    assert "shop.settle[own id]" in line
    assert "d" * 22 in line
    assert text in line
    assert "\n" not in line


def test_a_holder_that_was_reaped_is_told_under_its_own_name(heard, caplog):
    report.reaped([LAPSED, LAPSED])
    said = {"sender": "shop.other", "task_id": "lapsed id", "digest": "e" * 22, "phase": "waiting"}
    assert heard == [("lock_reaped", said)] * 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.records[0].getMessage() == f"task shop.other[lapsed id]: lock {'e' * 22} lapsed while waiting, and was freed"


def test_a_period_that_is_over_is_an_ordinary_end_of_a_lock(heard, caplog):
    caplog.set_level(logging.DEBUG, "celery_once_more")
    report.reaped([dataclasses.replace(LAPSED, phase="kept")])
    said = {"sender": "shop.other", "task_id": "lapsed id", "digest": "e" * 22, "reason": "its period is over"}
    assert heard == [("lock_released", said)]
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_a_lock_that_was_taken_over_tells_of_the_lapsed_holder_first(heard):
    report.acquired(TICKET, "running", Answer(verdict="run", token=7, lapsed=(LAPSED,)))
    assert [name for name, _ in heard] == ["lock_reaped", "lock_acquired"]


def test_every_signal_is_sent_by_some_event(heard):
    for act, *_ in EVENTS.values():
        act()
    report.reaped([LAPSED])
    assert {name for name, _ in heard} == set(signals.__all__)


def test_every_signal_is_exported_and_knows_its_name():
    found = {name for name, thing in vars(signals).items() if isinstance(thing, Signal)}
    assert found == set(signals.__all__)
    assert all(getattr(signals, name).name == name for name in found)


@pytest.mark.parametrize("name", signals.__all__)
def test_an_error_in_a_receiver_stops_neither_the_others_nor_the_sender(name, caplog):
    signal, reached = getattr(signals, name), []

    def breaks(**_):
        raise ValueError("broken receiver")

    def listens(**_):
        reached.append(name)

    signal.connect(breaks)
    signal.connect(listens)
    try:
        signal.send(sender="shop.settle", task_id="own id", digest="d" * 22)
    finally:
        signal.disconnect(breaks)
        signal.disconnect(listens)
    assert reached == [name]
    assert "broken receiver" in caplog.text


def test_a_receiver_can_listen_to_one_task_alone():
    heard = []

    def receiver(sender=None, **_):
        heard.append(sender)

    signals.lock_lost.connect(receiver, sender="shop.settle")
    try:
        report.lost(TICKET, "it lapsed")
        signals.lock_lost.send(sender="shop.other", task_id="x", digest="e" * 22, reason="it lapsed")
    finally:
        signals.lock_lost.disconnect(receiver, sender="shop.settle")
    assert heard == ["shop.settle"]
