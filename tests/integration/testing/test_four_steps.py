"""A job of four steps (a row, a charge, a mark, a mail) that uses reservations comes to the right end wherever it dies.

Each sensible choice of policies, by what the far sides can do. Where one cannot recognise what it did before, two attempts
that are alive at once may both do it: a frozen owner is only one where the far side honours the key, and what is in our own
database is never doubled.

Each scenario is a few processes. So a choice is tried on one database, as policies and databases know nothing of each other, each
kind of policy beside a rival once, and what differs in the mail alone from there on.
"""

import pytest
from sqlalchemy import insert, update
from support.books import Books, orders, payments

from celery_once_more.reservations import ASSUME_DONE, NOT_DONE, REFUSE, REPEAT, Done, Reservations, verify

#: seconds
LEASE = 60


def asks(far, effect):
    def ask(reservation):
        found = far.ask(effect, reservation.dedup_key)
        return NOT_DONE if found is None else Done(found["id"])

    return verify(ask)


#: bank, how to be sure of it, post office, how to be sure of that; whether a person may be asked
CHOICES = {
    "both honour the key": ("honours_key", lambda far, _: REPEAT, "honours_key", lambda far, _: REPEAT, False),
    "ask the bank": ("can_be_asked", asks, "honours_key", lambda far, _: REPEAT, False),
    "ask both": ("can_be_asked", asks, "can_be_asked", asks, False),
    "a person for the bank": ("neither", lambda far, _: REFUSE, "honours_key", lambda far, _: REPEAT, True),
    "a person for both": ("neither", lambda far, _: REFUSE, "neither", lambda far, _: REFUSE, True),
    "a mail at most once": ("honours_key", lambda far, _: REPEAT, "neither", lambda far, _: ASSUME_DONE, False),
}


class Shop:
    """The job, and what can be seen of it."""

    def __init__(self, engine, far_side, choice):
        bank, charged, post, mailed, self.asks_people = CHOICES[choice]
        self.books = Books(engine, far_side(bank), far_side(post))
        self.policies = charged(self.books.bank, "charge"), mailed(self.books.post, "mail")
        self.reservations = Reservations.sqlalchemy(engine)
        self.reservations.create_table()
        self.engine = engine

    def checkout(self, ref):
        books, run, (charged, mailed) = self.books, self.reservations.run, self.policies
        with books.begin() as tx:
            if self.reservations.once(("order", ref), tx=tx):
                tx.execute(insert(orders).values(ref=ref))
                tx.execute(insert(payments).values(ref=ref, state="new"))
        charge = run(("charge", ref), lambda r: self.post(books.bank, "charge", r, ref), on_unknown=charged, lease=LEASE)
        with books.begin() as tx:
            tx.execute(update(payments).where(payments.c.ref == ref).values(state="paid", owner=charge))
        run(("mail", ref), lambda r: self.post(books.post, "mail", r, ref), on_unknown=mailed, lease=LEASE)

    @staticmethod
    def post(far, effect, reservation, ref):
        return far.post(effect, key=reservation.dedup_key, reference=reservation.dedup_key, order=ref)["id"]

    def seed(self):
        self.books.seed()
        with self.engine.begin() as tx:
            tx.exec_driver_sql("DELETE FROM once_more_reservation")

    def look(self):
        found = self.books.look()
        if self.policies[1] is ASSUME_DONE:  # which may leave it out
            found["mailed"] = f"{max(1, len(found['mailed']))} at most"
        return found


@pytest.fixture
def shop(request, engine, far_side):
    return Shop(engine, far_side, request.param)


@pytest.fixture
def check(app, shop, crash_points):
    def check(**options):
        @app.task(acks_late=True, reject_on_worker_lost=True)
        def checkout(ref):
            shop.checkout(ref)

        return crash_points.check(checkout, args=(42,), setup=shop.seed, state=shop.look, parked_ok=shop.asks_people, **options)

    return check


#: places of the job; where its last step begins; some of each step
PLACES, MAIL, SOME = 41, 27, range(1, 42, 3)


def on(*cases):
    return pytest.mark.parametrize(("engine", "shop"), cases, indirect=True)


def at_the_far_sides_only(result):
    return all(difference.startswith(("charged", "mailed")) for difference in result.differences)


@on(
    ("sqlite", "both honour the key"),
    ("postgresql", "ask both"),
    ("sqlite", "a person for both"),
    ("postgresql", "a mail at most once"),
)
def test_killed_anywhere_and_beside_a_rival_it_comes_to_the_right_end(shop, check):
    report = check(rival=True, points=range(MAIL if shop.policies[1] is ASSUME_DONE else 1, PLACES + 1))
    assert len(report.points) == PLACES
    assert str(report.points[MAIL - 1]) == 'before ["mail", 42]'
    killed = [result for result in report.results if result.scenario == "killed"]
    assert all(result.ok for result in killed), str(report)
    came_to_the_right_end(shop, killed)
    honoured = shop.books.bank.kind == shop.books.post.kind == "honours_key"
    assert [result.title for result in report.failures if honoured or not at_the_far_sides_only(result)] == [], str(report)


@on(("postgresql", "ask the bank"), ("sqlite", "a person for the bank"))
def test_killed_anywhere_it_comes_to_the_right_end(shop, check):
    report = check()
    assert report.ok, str(report)
    came_to_the_right_end(shop, report.results)


def came_to_the_right_end(shop, results):
    outcomes = [result.outcome for result in results]
    assert outcomes.count("equal") > len(outcomes) / 3
    assert ("parked" in outcomes) == shop.asks_people


@on(("postgresql", "both honour the key"), ("sqlite", "ask both"))
def test_killed_twice_it_comes_to_the_right_end(check):
    report = check(depth=2, budget=20, points=SOME)
    assert report.ok, str(report)
