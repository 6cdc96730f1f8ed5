"""Where a record says that its message is, and what leads there; nothing is sent to any broker."""

import pytest
from celery import Celery
from kombu import Connection

from celery_once_more.brokers import broker
from celery_once_more.runtime import runtime

URL = "redis://:secret@127.0.0.1:1/0"


def app_with(url=URL, **conf):
    app = Celery("unit", broker=url, set_as_current=False)
    app.conf.update(conf)
    return app


def test_a_place_names_the_queue_and_the_broker():
    here = broker(app_with())
    place = here.place("celery")
    assert here.queue(place) == "celery"
    assert broker(app_with("redis://127.0.0.1:1/1")).queue(place) is None


def test_a_place_tells_nothing_of_the_password():
    assert broker(app_with()).mark == broker(app_with("redis://:other@127.0.0.1:1/0")).mark


def test_a_publisher_and_a_reaper_that_spell_one_broker_in_two_ways_mean_the_same():
    assert broker(app_with("redis://127.0.0.1/0")).mark == broker(app_with("redis://127.0.0.1:6379")).mark


@pytest.mark.parametrize("url", ["pyamqp://127.0.0.1:1//", "memory://", None, [URL, URL], f"{URL};{URL}"])
def test_a_broker_that_is_no_redis_or_one_of_several_cannot_be_asked(url):
    assert broker(app_with(url)) is None


def test_what_is_published_over_a_connection_of_its_own_is_looked_for_only_where_that_leads_to_the_same_broker():
    app = app_with()
    rt = runtime(app)
    place = rt.place("celery")
    with app.producer_pool.acquire(block=True) as producer:
        assert rt.place("celery", by={"producer": producer}) == place
    assert rt.place("celery", by={"connection": app.connection_for_write()}) == place
    assert rt.place("celery", by={"connection": Connection("redis://127.0.0.1:1/1")}) is None


def test_the_eta_is_said_in_milliseconds_and_never_below_zero():
    rt = runtime(app_with())
    assert [rt.place("celery", eta).eta_ms for eta in (0, 1.5, -3)] == [0, 1500, 0]
