"""What a publish costs: admitted, and refused, beside the same plain task."""

import itertools
from functools import partial

from measure import Row, commands, interleaved

PAYLOAD = {"amount": 5, "currency": "EUR", "resent": True}
_numbers = itertools.count()


def an_event():
    return f"evt_{next(_numbers)}"


def fresh(task, **options):
    """A function that prepares publishes of ``task``, each with a digest of its own."""
    return lambda n: [partial(task.apply_async, (an_event(), PAYLOAD), **options) for _ in range(n)]


def timed(server, unique, plain, rounds):
    broker = server.client(0)
    held = an_event()
    unique.delay(held, PAYLOAD)
    contenders = {
        "plain": fresh(plain),
        "admitted": fresh(unique),
        "refused": lambda n: [partial(unique.delay, held, PAYLOAD)] * n,
    }
    interleaved(contenders, rounds=10)  # connections, scripts, caches
    measured = interleaved(contenders, rounds=rounds, between=lambda: broker.delete("celery"))
    assert unique.delay(held, PAYLOAD).duplicate
    return [
        measured.row("publish of a unique task, over the same plain task", "admitted", "plain", 1.4),
        measured.row("refusal of a duplicate, with the holder's id, over a plain publish", "refused", "plain", 0.35),
    ]


def counted(server, lock_server, unique, plain, n=100):
    """Two servers, so that what the scripts call is not taken for what Celery asks."""
    broker, locks = server.client(0), lock_server.client(0)
    held = an_event()
    unique.delay(held, PAYLOAD)
    plain.delay(held, PAYLOAD)
    rows = []
    for what, prepare in (
        ("plain publish", fresh(plain)),
        ("publish", fresh(unique)),
        ("refusal", lambda n: [partial(unique.delay, held, PAYLOAD)] * n),
    ):
        acts = prepare(n)
        asked = {}
        trips = commands(locks, lambda acts=acts, asked=asked: asked.update(commands(broker, lambda: [act() for act in acts])))
        evalsha = trips.get("evalsha", (0, 0))[0] / n
        figure = f"{evalsha:g} EVALSHA; broker and results: {_listed(asked, n)}"
        wanted = {"publish": 1, "refusal": 1}.get(what)
        nothing = what != "refusal" or not {"lpush", "publish"} & asked.keys()
        rows.append(Row(what=f"commands of a {what}", figure=figure, target=f"{wanted} EVALSHA" if wanted else "",
                        met=evalsha == wanted and nothing if wanted else None))  # fmt: skip
    return rows


def _listed(asked, n):
    return ", ".join(f"{calls / n:g} {name.upper()}" for name, (calls, _) in sorted(asked.items()) if calls >= n / 2) or "none"
