"""What a database does to transactions that meet, and a network to answers: repeated inside, within bounds, as one attempt."""

import threading

import pytest
from support.proxy import Proxy

from celery_once_more.reservations import REPEAT, Busy, persist

KEY = ("charge", 42)


class Watched:
    """What its backend sends; ``at_commit`` is called with the number of each COMMIT before it is sent."""

    def __init__(self, backend):
        self.sent, self.commits, self.at_commit = [], 0, lambda number: None
        backend.watch(self.sent.append, commit=self._commit)

    def _commit(self):
        self.sent.append("COMMIT")
        self.commits += 1
        self.at_commit(self.commits)


def test_a_claim_and_a_completion_are_two_short_transactions_and_no_more(backend):
    own = backend.again()
    own.reservations.run("warm", lambda r: 1, on_unknown=REPEAT, lease=60)
    watched, inside = Watched(own), []
    own.reservations.run(KEY, lambda r: inside.extend(watched.sent), on_unknown=REPEAT, lease=60)
    claim = ["INSERT", "COMMIT"] if backend.name == "postgresql" else ["INSERT", "SELECT", "COMMIT"]
    assert inside == claim
    assert watched.sent == [*claim, "UPDATE", "COMMIT"]
    own.close()


# A network that loses answers


@pytest.fixture
def proxied(backend):
    """The backend behind a network that can be told to lose an answer."""
    if backend.name == "sqlite":
        pytest.skip("SQLite is on no network")
    proxy = Proxy(backend.url.port)
    own = backend.again(port=proxy.port)
    own.proxy = proxy
    yield own
    own.close()
    proxy.close()


@pytest.mark.parametrize("what", ["lose_reply", "cut"])
@pytest.mark.parametrize("commit", [1, 2])
@pytest.mark.parametrize("row", ["fresh", "unknown"])
def test_a_lost_commit_is_repeated_under_the_same_attempt_id(backend, proxied, commit, what, row):
    """The reply is lost and the commit took place, or the connection breaks before it."""
    if row == "unknown":
        with pytest.raises(ZeroDivisionError):
            backend.reservations.run(KEY, lambda r: 1 / 0, on_unknown=REPEAT, lease=60)
    watched, effects = Watched(proxied), []
    watched.at_commit = lambda number: getattr(proxied.proxy, what)() if number == commit else None
    result = proxied.reservations.run(
        KEY, lambda r: effects.append(r.takeovers) or "ch_1", on_unknown=REPEAT, max_takeovers=1, lease=60, save=backend.write
    )
    assert (result, effects, backend.words()) == ("ch_1", [0 if row == "fresh" else 1], ["ch_1"])
    assert watched.commits > 2 - (what == "cut")
    assert backend.row()["state"] == "done"


def test_a_connection_that_broke_while_nobody_used_it_is_no_matter(backend, proxied):
    for key in ("a", "b"):
        assert proxied.reservations.run(key, lambda r: 1, on_unknown=REPEAT, lease=60) == 1
        proxied.proxy.cut()
    with pytest.raises(ZeroDivisionError):
        proxied.reservations.run("c", lambda r: proxied.proxy.cut() or 1 / 0, on_unknown=REPEAT, lease=60)
    assert [row["state"] for row in backend.rows()] == ["done", "done", "unknown"]


def test_a_server_that_comes_back_soon_is_waited_for_and_the_completion_is_written(backend, proxied):
    back = threading.Timer(1, proxied.proxy.mend)

    def effect(reservation):
        proxied.proxy.refuse()
        back.start()
        return "ch_1"

    assert proxied.reservations.run(KEY, effect, on_unknown=REPEAT, lease=60, save=backend.write) == "ch_1"
    back.join()
    assert (backend.row()["state"], backend.words()) == ("done", ["ch_1"])


def test_a_database_that_stays_away_is_an_error_after_a_while_and_the_effect_is_not_done(backend, proxied, monkeypatch):
    monkeypatch.setattr(persist, "PATIENCE_S", 1.0)
    proxied.reservations.run("warm", lambda r: 1, on_unknown=REPEAT, lease=60)
    proxied.proxy.refuse()
    effects = []
    with pytest.raises(Exception, match=r"(?i)connect"):
        proxied.reservations.run(KEY, effects.append, on_unknown=REPEAT, lease=60)
    assert effects == []


# Transactions that meet


def test_an_attempt_waits_for_no_other_key(backend):
    """Not even while the writes of that one's completion take their time."""
    if backend.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")

    def save(tx, result):
        backend.write(tx, result)
        assert backend.again().reservations.run("other", lambda r: "ch_2", on_unknown=REPEAT, lease=60) == "ch_2"

    for _ in range(2):
        backend.reservations.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60, save=save)
    assert backend.words() == ["ch_1"]


def test_a_deadlock_of_two_completions_is_repeated(backend):
    if backend.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    with backend.transaction() as tx:
        for word in ("a", "b"):
            backend.write(tx, word)
    met, tries, results = threading.Barrier(2), [], {}

    def complete(first, second):
        def save(tx, result):
            tries.append(first)
            backend.execute(tx, f"UPDATE contract_written SET word = word WHERE id = {first}")
            if tries.count(first) == 1:
                met.wait(30)
            backend.execute(tx, f"UPDATE contract_written SET word = word WHERE id = {second}")
            backend.write(tx, result)

        results[first] = backend.reservations.run(first, lambda r: f"{first}, {second}", on_unknown=REPEAT, lease=60, save=save)

    threads = [threading.Thread(target=complete, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {1: "1, 2", 2: "2, 1"}
    assert sorted(backend.words()) == ["1, 2", "2, 1", "a", "b"]
    assert len(tries) > 2


def test_a_serialization_failure_is_repeated(backend):
    if backend.name != "postgresql":
        pytest.skip("PostgreSQL alone has them")
    tries = []

    def save(tx, result):
        tries.append(result)
        backend.write(tx, result)
        if len(tries) < 3:
            backend.execute(tx, "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'serialization_failure'; END $$")

    backend.reservations.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60, save=save)
    assert (len(tries), backend.words()) == (3, ["ch_1"])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"])
def test_the_isolation_that_the_program_has_chosen_is_no_matter(backend, level):
    if backend.name == "sqlite" and level == "REPEATABLE READ":
        pytest.skip("SQLite does not know it")
    if level not in backend.levels:
        pytest.skip("to Django, a transaction that is open always")
    own = backend.again(isolation=level)
    reservations = own.reservations

    def save(tx, result):
        backend.write(tx, result)
        raise LookupError

    with pytest.raises(LookupError):
        reservations.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60, save=save)
    assert (backend.words(), backend.row()["state"]) == ([], "unknown")
    assert reservations.run(KEY, lambda r: "ch_2", on_unknown=REPEAT, lease=60, save=backend.write) == "ch_2"
    assert backend.words() == ["ch_2"]
    own.close()


@pytest.fixture
def hasty(backend):
    """It waits for a lock for one second or less, as often as it takes."""
    own = backend.again(hasty=True)
    yield own.reservations
    own.close()


def test_a_lock_timeout_is_repeated_until_the_lock_is_free(backend, hasty):
    with pytest.raises(ZeroDivisionError):
        hasty.run(KEY, lambda r: 1 / 0, on_unknown=REPEAT, lease=60)
    other = backend.lock_the_row()
    free = threading.Timer(4, other.close)
    free.start()
    assert hasty.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60) == "ch_1"
    free.join()


def test_a_lock_that_stays_is_busy_and_nothing_is_done(backend, hasty, monkeypatch):
    monkeypatch.setattr(persist, "PATIENCE_S", 0.5)
    with pytest.raises(ZeroDivisionError):
        hasty.run(KEY, lambda r: 1 / 0, on_unknown=REPEAT, lease=60)
    other, effects = backend.lock_the_row(), []
    with pytest.raises(Busy) as told:
        hasty.run(KEY, effects.append, on_unknown=REPEAT, lease=60)
    assert told.value.retry_after > 0
    assert effects == []
    other.close()
    assert hasty.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60) == "ch_1"
