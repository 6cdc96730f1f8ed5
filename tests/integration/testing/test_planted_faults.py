"""Jobs with a fault each, and one without: what the crash points find, and how they name it."""

import pytest
from sqlalchemy import insert, text, update
from support.books import Books, accounts, once, orders, payments

from celery_once_more.testing import crash_point, diagnosis


@pytest.fixture
def books(engine, far_side, tmp_path):
    books = Books(engine, far_side("honours_key"), far_side("honours_key"))
    books.deaf = far_side("neither")
    written = tmp_path / "written"

    def write_down(ref):
        with written.open("a") as file:
            file.write(f"{ref}\n")

    def look():
        return {**Books.look(books), "deaf": books.deaf.effects, "written": written.read_text().split()}

    def seed():
        Books.seed(books)
        books.deaf.reset()
        written.write_text("")

    books.write_down, books.look, books.seed = write_down, look, seed
    return books


def naive(books, ref):
    """Insert, charge, n = n + 1, mail."""
    with books.begin() as tx:
        tx.execute(insert(orders).values(ref=ref))
    books.bank.post("charge", amount=5)
    with books.begin() as tx:
        tx.execute(update(accounts).values(balance=accounts.c.balance - 5))
    books.post.post("mail", to=ref)


def adds(books, ref):
    with books.begin() as tx:
        tx.execute(update(accounts).values(balance=accounts.c.balance + 1))


def looks_then_inserts(books, ref):
    with books.begin() as tx:
        if books.first(tx, orders, ref) is None:
            tx.execute(insert(orders).values(ref=ref))


def charges_before_the_guard_is_committed(books, ref):
    with books.begin() as tx:
        if books.first(tx, once, ref) is None:
            tx.execute(insert(once).values(ref=ref))
            books.bank.post("charge", amount=5)


def one_guard_for_two(books, ref):
    with books.begin() as tx:
        if books.first(tx, once, ref) is not None:
            return
        tx.execute(insert(once).values(ref=ref))
    books.bank.post("charge", key=str(ref), amount=5)
    books.post.post("mail", key=str(ref), to=ref)


def guarded_only_where_it_is_published(books, ref):
    books.bank.post("charge", amount=5)


def completes_whoever_holds_it(books, ref):
    """A claim in which the second run takes over, and a completion by anybody."""
    with books.begin() as tx:
        row = books.first(tx, payments, ref)
        if row is not None and row.state == "paid":
            return
        if row is None:
            tx.execute(insert(payments).values(ref=ref, state="claimed"))
    books.bank.post("charge", key=str(ref), amount=5)
    with books.begin() as tx:
        tx.execute(update(payments).where(payments.c.ref == ref).values(state="paid"))
        tx.execute(insert(orders).values(ref=ref))


def mails_in_a_transaction(books, ref):
    with books.begin() as tx:
        if books.first(tx, once, ref) is not None:
            return
        books.post.post("mail", to=ref)
        tx.execute(insert(once).values(ref=ref))


FAULTS = [
    (adds, {}, "a relative write", diagnosis.ABSOLUTE_WRITE),
    (looks_then_inserts, {"rival": True}, "check, then insert", diagnosis.UNIQUE_INDEX),
    (charges_before_the_guard_is_committed, {}, "an effect before its guard is committed", diagnosis.RESERVATION),
    (one_guard_for_two, {}, "one guard for several effects", diagnosis.RESERVATION),
    (guarded_only_where_it_is_published, {}, "no guard inside the task", diagnosis.STATE_CHECK),
    (completes_whoever_holds_it, {"rival": True}, diagnosis.LATE_WRITE, diagnosis.RESERVATION),
    (mails_in_a_transaction, {}, "an effect before its guard is committed", diagnosis.PUT_IT_LAST),
    (mails_in_a_transaction, {"rival": True, "points": ["after POST /mail"]}, "an effect inside a transaction that rolled back",
     diagnosis.PUT_IT_LAST),
]  # fmt: skip


@pytest.mark.parametrize(("job", "options", "fault", "remedy"), FAULTS)
def test_each_fault_is_found_and_named(check, job, options, fault, remedy):
    report = check(job, **options)
    assert not report.ok
    named = [found for result in report.failures for found in result.diagnoses if found.fault == fault]
    assert named, report
    assert all(remedy in found.remedy for found in named)
    assert fault in str(report)
    assert remedy in str(report)


def test_a_naive_job_is_wrong_at_most_of_its_places_for_the_right_reasons(check):
    report = check(naive, rival=True)
    assert report.counts()["wrong"] > len(report.results) / 2
    faults = {found.fault for result in report.failures for found in result.diagnoses}
    assert {"an insert that nothing refuses", "a relative write"} <= faults


def faults(report):
    return {found.fault for result in report.failures for found in result.diagnoses}


def one_guard_for_one_that_no_library_shows(books, ref):
    with books.begin() as tx:
        if books.first(tx, once, ref) is not None:
            return
        tx.execute(insert(once).values(ref=ref))
    crash_point("the guard is set")
    books.write_down(ref)
    crash_point("it is written down")


def test_a_marked_effect_that_is_left_out_is_named_by_its_mark(check):
    report = check(one_guard_for_one_that_no_library_shows, points=["the guard is set"])
    assert faults(report) == {"one guard for several effects"}, report
    assert '"it is written down" was left out' in str(report)


def writes_down(books, ref):
    books.write_down(ref)
    crash_point("it is written down")


def test_a_marked_effect_that_a_rival_doubles_is_named_by_its_mark(check):
    report = check(writes_down, rival=True)
    assert faults(report) == {"an effect that no library shows"}, report
    told = [found.text for result in report.failures if result.scenario == "rival" for found in result.diagnoses]
    assert told
    assert all('Both came by "it is written down"' in text for text in told)


def charges_by_key_and_adds(books, ref):
    books.bank.post("charge", key=str(ref), amount=5)
    adds(books, ref)


def test_a_request_that_bears_its_key_is_not_blamed_for_what_another_step_did(check):
    report = check(charges_by_key_and_adds, rival=True)
    assert not report.ok
    assert "POST /charge was sent twice" not in str(report)


def charges_by_a_key_that_nobody_honours(books, ref):
    books.deaf.post("charge", key=str(ref), amount=5)


def test_a_request_that_bears_its_key_is_blamed_where_nothing_else_is_doubled(check):
    report = check(charges_by_a_key_that_nobody_honours)
    assert "POST /charge was sent twice" in str(report)
    assert "does the far side honour it?" in str(report)


def test_no_reason_is_told_twice_in_one_line(check):
    def charges_and_mails(books, ref):
        books.bank.post("charge", amount=5)
        books.post.post("mail", to=ref)

    report = check(charges_and_mails)
    assert "Also:" in str(report)
    assert "no guard inside the task; no guard inside the task" not in str(report)


def right(books, ref):
    with books.begin() as tx:
        tx.execute(text("INSERT INTO once (ref) VALUES (:ref) ON CONFLICT DO NOTHING"), {"ref": ref})
    books.bank.post("charge", key=f"charge-{ref}", amount=5)
    with books.begin() as tx:
        books.set_balance(tx, 95)
    books.post.post("mail", key=f"mail-{ref}", to=ref)


def test_a_right_job_is_clean_at_all_places_with_a_rival_and_a_second_death(check):
    report = check(right, rival=True, depth=2, budget=60)
    assert report.ok, report
    assert set(report.counts()) == {"equal"}
