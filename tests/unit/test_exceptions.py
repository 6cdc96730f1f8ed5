"""Every error has one root, and comes through pickle, copies and Celery's JSON results as it was."""

import copy
import inspect
import json
import pickle

import pytest
from celery import states
from celery.exceptions import ImproperlyConfigured, TaskRevokedError

import celery_once_more
from celery_once_more import (
    ArgumentsError,
    ConfigurationError,
    DuplicateDropped,
    LockConflict,
    LockLost,
    OnceMoreError,
    StoreUnavailable,
    exceptions,
    reservations,
)
from celery_once_more.reservations import (
    AlreadyDone,
    Busy,
    FingerprintMismatch,
    LostReservation,
    OpenTransaction,
    OutcomeUnknown,
    PreviouslyFailed,
    ReservationError,
)

#: error, its attributes, its sentence
ERRORS = [
    (OnceMoreError("went wrong"), {}, "went wrong"),
    (ConfigurationError("lock is wrong"), {}, "lock is wrong"),
    (StoreUnavailable("acquire: TimeoutError: no answer"), {}, "acquire: TimeoutError: no answer"),
    (
        ArgumentsError("shop.settle", "payload['items'][3]", "has no stable JSON form: set cannot be sent as JSON"),
        {"task": "shop.settle", "argument": "payload['items'][3]"},
        "task 'shop.settle': argument payload['items'][3] has no stable JSON form: set cannot be sent as JSON",
    ),
    (
        LockConflict("shop.settle", "d" * 22, "holder id"),
        {"task": "shop.settle", "digest": "d" * 22, "holder": "holder id"},
        "task 'shop.settle': lock dddddddddddddddddddddd is held by holder id",
    ),
    (
        DuplicateDropped("shop.settle", "d" * 22, "holder id"),
        {"task": "shop.settle", "digest": "d" * 22, "holder": "holder id"},
        "task 'shop.settle': dropped as a duplicate of holder id (lock dddddddddddddddddddddd)",
    ),
    (
        LockLost("shop.settle", "d" * 22, "it lapsed"),
        {"task": "shop.settle", "digest": "d" * 22},
        "task 'shop.settle': lock dddddddddddddddddddddd was lost: it lapsed",
    ),
    (ReservationError("a key must not be empty"), {}, "a key must not be empty"),
    (
        Busy('["charge", 42]', 12.5),
        {"key": '["charge", 42]', "retry_after": 12.5},
        'reservation ["charge", 42]: another attempt has it, for 12.5 s at most unless it extends its lease',
    ),
    (
        AlreadyDone('["charge", 42]', {"id": "ch_1"}),
        {"key": '["charge", 42]', "result": {"id": "ch_1"}},
        'reservation ["charge", 42]: it is done already',
    ),
    (
        OutcomeUnknown('["charge", 42]', "the far side cannot say"),
        {"key": '["charge", 42]'},
        'reservation ["charge", 42]: nobody knows whether it was done (the far side cannot say); find out, then resolve() it',
    ),
    (
        PreviouslyFailed('["charge", 42]', "shop.CardDeclined", "no money"),
        {"key": '["charge", 42]', "error": "shop.CardDeclined", "message": "no money"},
        'reservation ["charge", 42]: it failed for good: shop.CardDeclined: no money',
    ),
    (
        FingerprintMismatch('["charge", 42]'),
        {"key": '["charge", 42]'},
        'reservation ["charge", 42]: an earlier call had the same key and another fingerprint; nothing was done',
    ),
    (
        LostReservation('["charge", 42]', "its lease has ended"),
        {"key": '["charge", 42]'},
        'reservation ["charge", 42]: this attempt has lost it (its lease has ended); nothing of its completion was written',
    ),
    (
        OpenTransaction('["charge", 42]'),
        {"key": '["charge", 42]'},
        'reservation ["charge", 42]: this thread has a transaction open, and a rollback of it would erase the evidence of an '
        "effect that was done; call it after the commit",
    ),
]
every_error = pytest.mark.parametrize(("error", "attributes", "sentence"), ERRORS, ids=[type(row[0]).__name__ for row in ERRORS])


def same(again, error, attributes, sentence):
    assert type(again) is type(error)
    assert again.args == error.args
    assert {name: getattr(again, name) for name in attributes} == attributes
    assert str(again) == sentence


def public():
    return {
        thing
        for module in (celery_once_more, exceptions)
        for name, thing in vars(module).items()
        if inspect.isclass(thing) and issubclass(thing, BaseException) and not name.startswith("_")
        if thing.__module__.startswith("celery_once_more")
    }


def test_every_public_error_is_tried_here():
    assert public() == {type(error) for error, *_ in ERRORS}


def test_every_error_has_one_root_and_is_exported():
    for error in public():
        assert issubclass(error, OnceMoreError)
        home = reservations if issubclass(error, ReservationError) else celery_once_more
        assert getattr(home, error.__name__) is error
        assert error.__name__ in home.__all__
        assert inspect.getdoc(error)


def test_errors_are_of_celerys_and_pythons_kinds_where_one_fits():
    assert issubclass(ConfigurationError, ImproperlyConfigured)
    assert issubclass(DuplicateDropped, TaskRevokedError)
    assert issubclass(ArgumentsError, TypeError)
    assert not issubclass(LockConflict, TaskRevokedError)


@every_error
def test_an_error_says_what_happened(error, attributes, sentence):
    same(error, error, attributes, sentence)


@every_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_every_pickle_protocol(error, attributes, sentence, protocol):
    same(pickle.loads(pickle.dumps(error, protocol)), error, attributes, sentence)


@every_error
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_an_error_survives_copies(error, attributes, sentence, how):
    again = how(error)
    assert again is not error
    same(again, error, attributes, sentence)


@every_error
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_an_error_survives_celerys_results(app, error, attributes, sentence, serializer):
    app.conf.update(result_serializer=serializer, accept_content=["json", "pickle"])
    app.backend.store_result("some id", error, states.FAILURE)
    same(app.AsyncResult("some id").result, error, attributes, sentence)


@every_error
def test_an_error_is_plain_json_in_celerys_results(app, error, attributes, sentence):
    stored = json.loads(app.backend.encode(app.backend.prepare_exception(error, "json")))
    assert stored["exc_type"] == type(error).__name__
    assert stored["exc_module"] == "celery_once_more.exceptions"
    assert stored["exc_message"] == list(error.args)


@every_error
def test_get_raises_the_error_that_was_stored(app, error, attributes, sentence):
    app.backend.store_result("some id", error, states.FAILURE)
    with pytest.raises(type(error)) as caught:
        app.AsyncResult("some id").get(timeout=1)
    same(caught.value, error, attributes, sentence)


def test_a_dropped_duplicate_is_revoked_to_its_caller(app):
    app.backend.store_result("some id", ERRORS[5][0], states.REVOKED)
    with pytest.raises(TaskRevokedError) as caught:
        app.AsyncResult("some id").get(timeout=1)
    assert caught.value.holder == "holder id"


@every_error
def test_a_cause_goes_on_the_chain(error, attributes, sentence):
    cause = ConnectionError("refused")
    with pytest.raises(type(error)) as caught:
        raise copy.copy(error) from cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("error", [type(row[0]) for row in ERRORS])
def test_an_error_that_was_built_with_too_little_can_still_be_shown(error):
    """A store that truncates, or somebody's own ``raise LockLost``, must not hide one error behind another."""
    for args in ((), ("only this",)):
        assert error.__name__ in repr(error(*args))
        assert isinstance(str(error(*args)), str)
