"""Django's jobs with a fault each, and some without: what the crash points find, and how they name it."""

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.models import F
from support.django_books import DjangoBooks

from celery_once_more.testing import CrashTestError, diagnosis

pytest_plugins = ["support.django_fixtures"]


@pytest.fixture
def books(django_database, far_side):
    with DjangoBooks(far_side("honours_key"), far_side("honours_key")) as books:
        yield books


def faults(report):
    return {found.fault for result in report.failures for found in result.diagnoses}


# Wrong


def naive(books, ref):
    """Each statement commits itself."""
    books.orders.create(ref=ref)
    books.bank.post("charge", amount=5)
    books.accounts.filter(id=1).update(balance=F("balance") - 5)
    books.post.post("mail", to=ref)


@transaction.atomic
def naive_in_a_transaction(books, ref):
    books.bank.post("charge", amount=5)
    books.orders.create(ref=ref)
    books.post.post("mail", to=ref)
    books.accounts.filter(id=1).update(balance=F("balance") - 5)


def adds(books, ref):
    books.accounts.filter(id=1).update(balance=F("balance") + 1)


def adds_what_it_read(books, ref):
    with transaction.atomic():
        account = books.accounts.get(id=1)
        account.balance += 1
        account.save(update_fields=["balance"])


def looks_then_creates(books, ref):
    if not books.orders.filter(ref=ref).exists():
        books.orders.create(ref=ref)


def one_guard_for_two(books, ref):
    _, created = books.once.get_or_create(ref=ref)
    if created:
        books.bank.post("charge", key=str(ref), amount=5)
        books.post.post("mail", key=str(ref), to=ref)


def mails_in_a_transaction(books, ref):
    with transaction.atomic():
        if not books.once.filter(ref=ref).exists():
            books.post.post("mail", to=ref)
            books.once.create(ref=ref)


def mails_and_then_refuses(books, ref):
    """The second run rolls back what it did, but for the mail."""
    try:
        with transaction.atomic():
            books.post.post("mail", to=ref)
            books.once.create(ref=ref)
    except IntegrityError:
        pass


def mails_once_after_the_commit(books, ref):
    """On commit, but the guard of the rows is the mail's as well."""
    with transaction.atomic():
        _, created = books.once.get_or_create(ref=ref)
        if created:
            transaction.on_commit(lambda: books.post.post("mail", key=str(ref), to=ref))


FAULTS = [
    (adds, {}, "a relative write", diagnosis.ABSOLUTE_WRITE),
    (adds_what_it_read, {}, "a relative write", diagnosis.ABSOLUTE_WRITE),
    (looks_then_creates, {"rival": True}, "check, then insert", diagnosis.UNIQUE_INDEX),
    (one_guard_for_two, {}, "one guard for several effects", diagnosis.RESERVATION),
    (mails_in_a_transaction, {}, "an effect before its guard is committed", diagnosis.PUT_IT_LAST),
    (mails_and_then_refuses, {}, "an effect inside a transaction that rolled back", diagnosis.PUT_IT_LAST),
    (mails_once_after_the_commit, {}, "one guard for several effects", diagnosis.RESERVATION),
]


@pytest.mark.parametrize(("job", "options", "fault", "remedy"), FAULTS)
def test_each_fault_is_found_and_named(check, job, options, fault, remedy):
    report = check(job, **options)
    named = [found for result in report.failures for found in result.diagnoses if found.fault == fault]
    assert named, report
    assert all(remedy in found.remedy for found in named)
    assert fault in str(report)


@pytest.mark.parametrize(
    ("job", "reasons"),
    [
        (naive, {"an effect that nothing remembers"}),
        (naive_in_a_transaction, {"an effect before its guard is committed"}),
    ],
)
def test_a_naive_job_is_wrong_at_most_of_its_places_for_the_right_reasons(check, job, reasons):
    report = check(job, rival=True)
    assert report.counts()["wrong"] > len(report.results) / 2
    assert faults(report) >= {"an insert that nothing refuses", "a relative write"} | reasons, report


def test_a_statement_that_commits_itself_is_doubled_from_right_after_it(check):
    report = check(adds)
    assert [(str(result.point), result.outcome) for result in report.results] == [
        ("before UPDATE books_account", "equal"),
        ("after UPDATE books_account", "wrong"),
        ("after return", "wrong"),
    ]


# Right


def right(books, ref):
    books.once.get_or_create(ref=ref)
    books.bank.post("charge", key=f"charge-{ref}", amount=5)
    books.accounts.filter(id=1).update(balance=95)
    books.post.post("mail", key=f"mail-{ref}", to=ref)


def mails_after_the_commit(books, ref):
    """The hook is set whether the row is new or not: the far side takes the second mail for the first."""
    with transaction.atomic():
        books.once.get_or_create(ref=ref)
        books.accounts.filter(id=1).update(balance=95)
        transaction.on_commit(lambda: books.post.post("mail", key=f"mail-{ref}", to=ref))


@pytest.mark.parametrize("job", [right, mails_after_the_commit])
def test_a_right_job_is_clean_at_all_places_with_a_rival(check, job):
    report = check(job, rival=True)
    assert report.ok, report
    assert set(report.counts()) == {"equal"}


def test_a_hook_comes_after_the_commit(check):
    places = [str(point) for point in check(mails_after_the_commit).points]
    assert places.index("after COMMIT") + 1 == next(at for at, place in enumerate(places) if "/mail" in place)


# Around


def test_a_check_inside_an_atomic_block_is_refused_and_told_what_to_write_instead(check, books):
    with transaction.atomic(), pytest.raises(CrashTestError) as refused:
        check(right)
    assert "inside a transaction of 'default'" in str(refused.value)
    assert "django_db(transaction=True)" in str(refused.value)
    assert "TransactionTestCase" in str(refused.value)


def test_the_tests_own_connection_is_the_same_one_afterwards(check, books):
    books.seed()
    before = connections["default"].connection
    check(right)
    assert connections["default"].connection is before
    books.seed()
    assert books.look()["balance"] == 100


def test_a_state_of_models_which_equal_one_another_by_their_key_is_refused(app, books, crash_points):
    @app.task(name="job")
    def job():
        books.orders.create(ref=1)

    with pytest.raises(CrashTestError, match="state returned a Account, which equals any other of the same primary key"):
        crash_points.check(job, setup=books.seed, state=lambda: {"accounts": list(books.accounts.all())})
