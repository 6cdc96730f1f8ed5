"""The queue of a call: publisher and worker must name the same one, however the call was routed."""

import pytest
from celery import Celery, signals
from celery.app.amqp import Queues
from celery.exceptions import Retry
from kombu import Exchange, Queue, binding
from kombu.common import Broadcast
from kombu.transport.native_delayed_delivery import calculate_routing_key

from celery_once_more import queues
from celery_once_more.run import fresh_ticket


def settle(event_id, payload=None):
    return event_id


FAST = {"task_queues": [Queue("celery"), Queue("fast", Exchange("fast"), routing_key="fast")]}
SHOP = {"task_queues": [Queue("celery"), Queue("fast", Exchange("shop"), routing_key="shop.fast")]}
TOPICS = Exchange("news", type="topic")
NEWS = {"task_queues": [Queue("celery"), Queue("news", TOPICS, routing_key="news.all")]}
STARS = {
    "task_queues": [Queue("celery"), Queue("news", TOPICS, routing_key="news.*"), Queue("rest", TOPICS, routing_key="rest.#")]
}
#: bindings of one key, and bindings that overlap
TWINS = {"task_queues": [Queue("b", TOPICS, routing_key="k.#"), Queue("a", TOPICS, routing_key="k.#")]}
OVERLAP = {"task_queues": [Queue(name, TOPICS, routing_key=name) for name in ("#", "news.#", "news.*", "*.sport", "news.sport")]}
BOUND = {"task_queues": [Queue("celery"), Queue("two", bindings=[binding(TOPICS, "x.*"), binding(Exchange("shop"), "y")])]}
KEYED = {"exchange": "news", "routing_key": "news.x"}
CAST = {"task_queues": [Queue("celery"), Broadcast("cast")]}
DRUM = {
    "task_queues": [
        Queue("celery"),
        Queue("left", Exchange("drum", type="fanout")),
        Queue("right", Exchange("drum", type="fanout")),
    ]
}


def by_key(name, args, kwargs, options, task=None, **_):
    return {"exchange": "news", "exchange_type": "topic", "routing_key": f"news.{args[0]}"}


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
    "a topic queue with a pattern": (STARS, {}, {"queue": "news"}, "news"),
    "exchange and key that a star fits": (STARS, {}, {"exchange": "news", "routing_key": "news.sport"}, "news"),
    "exchange and key that a hash fits": (STARS, {}, {"exchange": "news", "routing_key": "rest.of.it"}, "rest"),
    "exchange and key that a hash fits by nothing": (STARS, {}, {"exchange": "news", "routing_key": "rest"}, "rest"),
    "exchange and key that nothing fits": (STARS, {}, {"exchange": "news", "routing_key": "news.sport.x"}, "news.sport.x"),
    "a topic queue, and a key of another": (STARS, {}, {"queue": "news", "routing_key": "rest.of.it"}, "rest"),
    "a topic queue, and a key of none": (STARS, {}, {"queue": "news", "routing_key": "lost"}, "lost"),
    "exchange and key by a function": ({**STARS, "task_routes": (by_key,)}, {}, {}, "news"),
    "exchange and key by a route": ({**STARS, "task_routes": {"unit.*": KEYED}}, {}, {}, "news"),
    "one of two queues of one key": (TWINS, {}, {"queue": "b"}, "a"),
    "the other of two queues of one key": (TWINS, {}, {"queue": "a"}, "a"),
    "the key of two queues": (TWINS, {}, {"exchange": "news", "routing_key": "k.x"}, "a"),
    "a key that all patterns fit": (OVERLAP, {}, {"exchange": "news", "routing_key": "news.sport"}, "news.sport"),
    "a key that four patterns fit": (OVERLAP, {}, {"exchange": "news", "routing_key": "tv.sport"}, "*.sport"),
    "a key that a hash alone fits": (OVERLAP, {}, {"exchange": "news", "routing_key": "x"}, "#"),
    "another binding of a queue": (BOUND, {}, {"exchange": "news", "routing_key": "x.y"}, "two"),
    "a third binding of a queue": (BOUND, {}, {"exchange": "shop", "routing_key": "y"}, "two"),
    "a broadcast": (CAST, {}, {"queue": "cast"}, "cast"),
    "a broadcast by its exchange": (CAST, {}, {"exchange": "cast", "routing_key": "any"}, "cast"),
    "a queue of a fanout exchange": (DRUM, {}, {"queue": "left"}, "drum"),
    "a fanout exchange": (DRUM, {}, {"exchange": "drum", "routing_key": "any"}, "drum"),
    "a missing queue of a topic exchange": ({"task_create_missing_queue_exchange_type": "topic"}, {}, {"queue": "x"}, "x"),
    "topic as the default": ({"task_default_exchange_type": "topic", "task_default_routing_key": "x.y"}, {}, {}, "celery"),
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


def test_a_topic_queue_that_nobody_declared_has_its_own_name(app, store, task, sent):
    task(settle).apply_async(("evt",), queue=Queue("own", TOPICS, routing_key="own.*"))
    assert store.tickets[0].queue == "own"
    assert sent[0][:2] == ("news", "own.*")


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "in the other order"])
def test_of_several_queues_the_same_one_is_named_in_whatever_order_they_are_declared(app, order):
    app.conf.task_queues = OVERLAP["task_queues"][::order]
    assert queues.delivered_from(app, "news", "news.sport") == "news.sport"
    assert queues.delivered_from(app, "news", "tv.sport") == "*.sport"
    assert queues.delivered_from(app, "news", "news.tv") == "news.*"
    assert queues.delivered_from(app, "news", "news.tv.late") == "news.#"
    assert queues.delivered_from(app, "news", "news") == "news.#"
    assert queues.delivered_from(app, "news", "tv") == "#"


@pytest.mark.parametrize(
    ("pattern", "keys", "not_keys"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "axb", "a.*"]),
        ("a.*", ["a.b", "a.*", "a.#"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b"], ["b", "a.a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b.a", "ab"]),
        ("#.b", ["b", "a.b", "a.a.b"], ["b.a", "ab"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "a.b"]),
        ("*.#.*", ["a.b", "a.b.c"], ["a"]),
        ("#", ["a", "a.b", ""], []),
        ("*", ["a"], ["a.b"]),
        ("a.(b)+", ["a.(b)+"], ["a.bb"]),
    ],
)
def test_a_binding_takes_the_keys_that_a_topic_exchange_gives_it(app, pattern, keys, not_keys):
    app.conf.task_queues = [Queue("celery"), Queue("it", TOPICS, routing_key=pattern)]
    assert [key for key in keys if queues.delivered_from(app, "news", key) != "it"] == []
    assert [key for key in not_keys if queues.delivered_from(app, "news", key) == "it"] == []
    assert queues.delivered_from(app, "other", pattern) == pattern, "of another exchange"


# RabbitMQ's delayed delivery

#: the exchanges through which a message may come that was delayed
DELAYING = [
    "celery_delayed_27",
    "celery_delayed_0",
    "celery_delayed_delivery",
    "eu_celery_delayed_3",
    "eu_celery_delayed_delivery",
]
MANY = {
    "task_queues": [
        Queue("celery"),
        Queue("news", TOPICS, routing_key="news.*"),
        Queue("tv", Exchange("tv", type="topic"), routing_key="tv"),
        Queue("drum", Exchange("drum", type="fanout"), routing_key="beat"),
        Queue("direct", Exchange("shop"), routing_key="tv"),
    ]
}


@pytest.mark.parametrize("exchange", DELAYING)
@pytest.mark.parametrize(
    ("routing_key", "queue"),
    [("news.*", "news"), ("news.sport", "news"), ("tv", "tv"), ("beat", "drum"), ("unknown", "unknown"), ("0.1.0", "0.1.0")],
)
def test_a_delayed_message_is_mapped_back_to_its_queue(app, exchange, routing_key, queue):
    app.conf.update(MANY)
    for countdown in (1, 90, 2**27):
        delayed = calculate_routing_key(countdown, routing_key)
        assert queues.delivered_from(app, exchange, delayed) == queue
        assert queues.delivered_from(app, Exchange(exchange, type="topic"), delayed) == queue


def test_a_key_that_only_looks_delayed_is_left_alone(app):
    delayed = calculate_routing_key(1, "news.x")
    assert queues.delivered_from(app, "", delayed) == delayed
    assert queues.delivered_from(app, "my_celery_delayed", delayed) == delayed
    assert queues.delivered_from(app, "celery_delayed_27", "1.0.news") == "1.0.news"


# back to its queue


@pytest.mark.parametrize(
    ("exchange", "routing_key", "back"),
    [
        ("", "celery", {}),
        ("", "news", {}),
        (None, None, {}),
        ("elsewhere", "key", {}),
        ("news", "news.sport", {"queue": "news"}),
        ("shop", "tv", {"queue": "direct"}),
        ("celery_delayed_3", calculate_routing_key(5, "news.*"), {"queue": "news", "exchange": None, "routing_key": None}),
        ("celery_delayed_3", calculate_routing_key(5, "unknown"), {}),
    ],
)
def test_the_way_back_names_the_queue_and_no_exchange_that_delays(app, exchange, routing_key, back):
    app.conf.update(MANY)
    assert queues.way_back(app, {"exchange": exchange, "routing_key": routing_key}) == back


DELIVERIES = [("news", "news.sport"), ("celery_delayed_delivery", calculate_routing_key(5, "news.*"))]


@pytest.mark.parametrize(("exchange", "routing_key"), DELIVERIES, ids=["topic", "delayed"])
def test_a_retry_goes_to_its_own_queue_and_not_to_the_default_one(app, store, task, sent, exchange, routing_key):
    app.conf.update(MANY)
    settles = task(settle)
    delivery = {"exchange": exchange, "routing_key": routing_key, "redelivered": False}
    settles.push_request(id="evt", args=("evt",), kwargs={}, delivery_info=delivery, called_directly=False)
    try:
        with pytest.raises(Retry):
            settles.retry()
        with pytest.raises(Retry):
            settles.retry(queue="direct")
        with pytest.raises(Retry):
            settles.retry(exchange="tv", routing_key="tv")
        signature = settles.signature_from_request(countdown=5)
    finally:
        settles.pop_request()
    assert signature.options["queue"] == "news"
    assert [queues.delivered_from(app, *there[:2]) for there in sent] == ["news", "direct", "tv"]


def test_a_plain_task_is_sent_back_as_celery_does_it(app, task):
    app.conf.update(MANY)
    settles = task(settle, lock=None)
    settles.push_request(id="evt", args=("evt",), kwargs={}, delivery_info={"exchange": "news", "routing_key": "news.sport"})
    try:
        assert "queue" not in settles.signature_from_request().options
    finally:
        settles.pop_request()


def test_straight_to_a_queue_is_past_its_exchange(app, task, sent):
    app.conf.update(MANY)
    for name in ("celery", "news", "tv", "direct"):
        task(settle).apply_async((name,), lock=None, **queues.straight(app, name))
    assert [there[:2] for there in sent] == [("", name) for name in ("celery", "news", "tv", "direct")]


def test_only_a_broadcast_reaches_a_fanout_queue_unless_the_broker_is_rabbitmq(app):
    app.conf.update(MANY)
    assert queues.straight(app, "drum") is None
    with Celery("amqp", broker="pyamqp://", set_as_current=False) as other:
        other.conf.update(MANY)
        assert queues.straight(other, "drum")["queue"] == "drum"


#: settings -> a queue's name -> whether a message that goes to it stands there, and nowhere else
LISTS = {
    "the default": ({}, "celery", True),
    "declared with an exchange": (SHOP, "fast", True),
    "its routing key": (SHOP, "shop.fast", False),
    "never declared": ({}, "other", False),
    "a topic's": (NEWS, "news", False),
    "one of a broadcast's": (DRUM, "left", False),
    "a broadcast's exchange": (DRUM, "drum", False),
    "one of two with the same exchange and key": (
        {"task_queues": [Queue(name, Exchange("shop"), routing_key="same") for name in ("one", "two")]},
        "one",
        False,
    ),
}


@pytest.mark.parametrize(("conf", "name", "one_list"), LISTS.values(), ids=LISTS)
def test_a_message_can_be_looked_for_where_it_stands_in_one_list_only(conf, name, one_list):
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.update(conf)
    assert queues.is_one_list(app, name) is one_list
