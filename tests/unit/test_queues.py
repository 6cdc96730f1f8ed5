"""The queue of a call: publisher and worker must name the same one, however the call was routed."""

import pytest
from celery import signals
from celery.app.amqp import Queues
from kombu import Exchange, Queue

from celery_once_more import queues
from celery_once_more.run import fresh_ticket


def settle(event_id, payload=None):
    return event_id


FAST = {"task_queues": [Queue("celery"), Queue("fast", Exchange("fast"), routing_key="fast")]}
SHOP = {"task_queues": [Queue("celery"), Queue("fast", Exchange("shop"), routing_key="shop.fast")]}
NEWS = {"task_queues": [Queue("celery"), Queue("news", Exchange("news", type="topic"), routing_key="news.all")]}


def by_argument(name, args, kwargs, options, task=None, **_):
    return {"queue": f"q-{args[0]}"}


#: how a call is routed -> the app's settings, the task's options, the call's options, the queue's name
ROUTES = {
    "the default": ({}, {}, {}, "celery"),
    "another default": ({"task_default_queue": "main"}, {}, {}, "main"),
    "a queue by name": ({}, {}, {"queue": "other"}, "other"),
    "a queue object": ({}, {}, {"queue": Queue("other")}, "other"),
    "the task's queue": ({}, {"queue": "slow"}, {}, "slow"),
    "the call before the task": ({}, {"queue": "slow"}, {"queue": "other"}, "other"),
    "a route by name": ({"task_routes": {"unit.settle": {"queue": "routed"}}}, {}, {}, "routed"),
    "a route by pattern": ({"task_routes": {"unit.*": "routed"}}, {}, {}, "routed"),
    "the call before a route": ({"task_routes": {"unit.*": "routed"}}, {}, {"queue": "other"}, "other"),
    "a route by function": ({"task_routes": (by_argument,)}, {}, {}, "q-evt"),
    "a declared queue": (FAST, {}, {"queue": "fast"}, "fast"),
    "a declared queue of another key": (SHOP, {}, {"queue": "fast"}, "fast"),
    "exchange and key of a declared queue": (SHOP, {}, {"exchange": "shop", "routing_key": "shop.fast"}, "fast"),
    "an exchange object": (SHOP, {}, {"exchange": Exchange("shop"), "routing_key": "shop.fast"}, "fast"),
    "exchange and key of no queue": ({}, {}, {"exchange": "elsewhere", "routing_key": "key"}, "key"),
    "a key alone": ({}, {}, {"routing_key": "key"}, "celery"),
    "a topic queue with a plain key": (NEWS, {}, {"queue": "news"}, "news"),
    "a priority": ({}, {}, {"priority": 9}, "celery"),
    "a countdown": ({}, {}, {"countdown": 60}, "celery"),
    "a name with a colon and a space": ({}, {}, {"queue": "a b:c"}, "a b:c"),
}  # fmt: skip


@pytest.fixture
def sent():
    """What each publish was sent with: exchange, routing key, headers."""
    seen = []

    def receiver(exchange=None, routing_key=None, headers=None, **_):
        seen.append((getattr(exchange, "name", exchange), routing_key, headers))

    signals.before_task_publish.connect(receiver)
    yield seen
    signals.before_task_publish.disconnect(receiver)


@pytest.mark.parametrize(("conf", "options", "call", "queue"), ROUTES.values(), ids=ROUTES.keys())
@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")  # Celery's own, and projects have it
def test_publisher_and_worker_name_the_same_queue(app, store, task, sent, conf, options, call, queue):
    app.conf.update(conf)
    settles = task(settle, **options)
    settles.apply_async(("evt",), **call)
    ((exchange, routing_key, headers),) = sent
    (ticket,) = store.tickets
    assert ticket.queue == headers["once_more"]["queue"] == queue
    assert queues.delivered_from(app, exchange, routing_key) == queue
    again = fresh_ticket(settles, settles.once_more, ("evt",), {}, task_id="x", queue=queue, series=0)
    assert again.digest == ticket.digest, "the worker computes the digest of the publisher"


@pytest.mark.parametrize(("conf", "options", "call", "queue"), ROUTES.values(), ids=ROUTES.keys())
@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")
def test_the_message_goes_where_celery_alone_would_send_it(app, store, task, sent, conf, options, call, queue):
    app.conf.update(conf)
    settles = task(settle, **options)
    settles.apply_async(("evt",), **call)
    settles.apply_async(("evt",), lock=None, **call)
    ours, celerys = sent
    assert ours[:2] == celerys[:2]


def test_calls_to_two_queues_are_two_calls(store, task):
    settles = task(settle)
    settles.apply_async(("evt",), queue="a")
    settles.apply_async(("evt",), queue="b")
    a, b = store.tickets
    assert a.digest != b.digest


def test_the_apps_router_is_asked_once_per_publish(app, store, task):
    asked = []

    def route(name, args, kwargs, options, task=None, **_):
        asked.append((name, list(args), kwargs, task.name))
        return {"queue": "routed"}

    app.conf.task_routes = (route,)
    task(settle).apply_async(("evt",), {"payload": 1}, countdown=5)
    assert asked == [("unit.settle", ["evt"], {"payload": 1}, "unit.settle")]


def test_a_router_sees_the_options_that_celery_shows_it(app, store, task):
    seen = []
    app.conf.task_routes = (lambda name, args, kwargs, options, task=None, **_: seen.append(set(options)),)
    settles = task(settle)
    call = {
        "countdown": 5,
        "expires": 60,
        "priority": 3,
        "headers": {"a": 1},
        "shadow": "x",
        "link": None,
        "own": 1,
        "time_limit": 5,
    }
    settles.apply_async(("evt",), **call)
    settles.apply_async(("evt",), lock=None, **call)
    ours, celerys = seen
    assert ours == celerys


def test_a_router_of_the_call_goes_before_the_apps(app, store, task, sent):
    app.conf.task_routes = {"unit.*": "routed"}
    task(settle).apply_async(("evt",), router=queues.Resolved({"queue": Queue("own")}))
    assert store.tickets[0].queue == "own"
    assert sent[0][1] == "own"


def test_an_unknown_queue_is_celerys_error_and_leaves_no_lock(app, store, task):
    from celery.exceptions import QueueNotFound

    app.conf.task_create_missing_queues = False
    app.conf.task_queues = [Queue("celery")]
    with pytest.raises(QueueNotFound):
        task(settle).apply_async(("evt",), queue="nowhere")
    assert store.acts == []


@pytest.mark.parametrize(
    ("exchange", "routing_key", "queue"),
    [
        ("", "celery", "celery"),
        (None, "celery", "celery"),
        ("", "undeclared", "undeclared"),
        ("shop", "shop.fast", "fast"),
        ("shop", "other", "other"),
        ("other", "shop.fast", "shop.fast"),
        (None, None, None),
        ("shop", None, None),
    ],
)
def test_a_delivery_is_mapped_back_to_its_queue(app, exchange, routing_key, queue):
    app.conf.task_queues = [Queue("celery"), Queue("fast", Exchange("shop"), routing_key="shop.fast")]
    assert queues.delivered_from(app, exchange, routing_key) == queue


def test_a_queue_without_an_exchange_is_no_obstacle(app):
    app.amqp.queues = Queues({"bare": Queue("bare", exchange=None, routing_key="k"), "fast": Queue("fast", Exchange("s"), "f")})
    assert queues.delivered_from(app, "s", "f") == "fast"


def test_a_resolved_route_goes_over_the_options_and_answers_the_same_every_time():
    resolved = queues.Resolved({"queue": "a"})
    assert resolved.route({"queue": "b", "priority": 3}, "name", (), {}, None) == {"queue": "a", "priority": 3}
    assert resolved.route({}, "name") == {"queue": "a"}
