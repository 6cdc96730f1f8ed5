"""Far sides: what each kind does with a request that comes again, with faults, and what a test sees of it."""

import http.client
import pickle
import threading

import pytest
import requests

from celery_once_more import crash
from celery_once_more.testing.far_client import FarClient, FarSideError
from celery_once_more.testing.far_sides import FarSide

KINDS = ["honours_key", "can_be_asked", "neither"]
CHARGE = {"effect": "charge", "payload": {"amount": 5}}


@pytest.fixture
def keyed(far_side):
    return far_side("honours_key")


@pytest.fixture
def askable(far_side):
    return far_side("can_be_asked")


def in_thread(call):
    """Begin a call; what was begun is asked for its answer later."""
    answers = []

    def run():
        try:
            answers.append(call())
        except Exception as exc:
            answers.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def answer():
        thread.join(30)
        [found] = answers
        return found

    return answer


# --- the three kinds


def test_a_request_with_a_key_has_its_effect_once_and_its_answer_every_time(keyed):
    first = keyed.post("charge", key="k1", amount=5)
    assert keyed.post("charge", key="k1", amount=5) == first == {"id": "charge-1", "effect": "charge"}
    assert keyed.post("charge", key="k2", amount=5) == {"id": "charge-2", "effect": "charge"}
    assert keyed.effects == [CHARGE, CHARGE]
    assert [request.key for request in keyed.requests] == ["k1", "k1", "k2"]


@pytest.mark.parametrize(("effect", "amount"), [("charge", 6), ("refund", 5)])
def test_a_key_with_another_request_is_refused(keyed, effect, amount):
    keyed.post("charge", key="k1", amount=5)
    with pytest.raises(FarSideError, match="another request") as caught:
        keyed.post(effect, key="k1", amount=amount)
    assert caught.value.status == 422
    assert keyed.effects == [CHARGE]


def test_without_a_key_every_post_has_its_effect(keyed):
    keyed.post("charge", amount=5)
    keyed.post("charge", amount=5)
    assert keyed.effects == [CHARGE, CHARGE]


def test_while_the_first_request_with_a_key_is_processed_a_second_is_told_so(keyed):
    keyed.disturb("answer_held")
    first = in_thread(lambda: keyed.post("charge", key="k1", amount=5))
    keyed.wait_for_held()
    with pytest.raises(FarSideError, match="still being processed") as caught:
        keyed.post("charge", key="k1", amount=5)
    assert caught.value.status == 409
    keyed.release()
    assert first() == keyed.post("charge", key="k1", amount=5)
    assert keyed.effects == [CHARGE]


def test_many_at_once_with_one_key_have_one_effect(keyed):
    answers = [in_thread(lambda: keyed.post("charge", key="k1", amount=5)) for _ in range(20)]
    assert {answer()["id"] for answer in answers} == {"charge-1"}
    assert keyed.effects == [CHARGE]
    assert len(keyed.requests) == 20


def test_one_that_can_be_asked_tells_what_was_done_and_does_it_again(askable):
    assert askable.ask("charge", "order-42") is None
    done = askable.post("charge", reference="order-42", amount=5)
    assert askable.ask("charge", "order-42") == done
    assert askable.ask("refund", "order-42") is None
    assert askable.ask("charge", "order-43") is None
    assert askable.post("charge", reference="order-42", amount=5) != done
    assert askable.effects == [{"effect": "charge", "payload": {"amount": 5, "reference": "order-42"}}] * 2


def test_a_reference_that_is_a_number_is_found(askable):
    requests.post(f"{askable.url}/charge", json={"reference": 42}, timeout=30)
    assert askable.ask("charge", "42") == {"id": "charge-1", "effect": "charge"}


@pytest.mark.parametrize("kind", ["can_be_asked", "neither"])
def test_whoever_knows_no_keys_repeats_the_effect(far_side, kind):
    far = far_side(kind)
    for _ in range(2):
        far.post("charge", key="k1", amount=5)
    assert far.effects == [CHARGE, CHARGE]


@pytest.mark.parametrize("kind", ["honours_key", "neither"])
def test_others_cannot_be_asked(far_side, kind):
    far = far_side(kind)
    far.post("charge", reference="order-42")
    with pytest.raises(FarSideError, match="cannot be asked") as caught:
        far.ask("charge", "order-42")
    assert caught.value.status == 405


def test_a_kind_that_is_none_is_a_sentence(far_side):
    with pytest.raises(ValueError, match="'honours_key', 'can_be_asked', 'neither', not 'honors_key'"):
        far_side("honors_key")


# --- faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_answer_comes_after_the_effect(far_side, kind):
    far = far_side(kind)
    far.disturb("answer_lost")
    with pytest.raises(http.client.RemoteDisconnected):
        far.post("charge", key="k1", amount=5)
    assert far.effects == [CHARGE]
    far.post("charge", key="k1", amount=5)
    assert far.effects == ([CHARGE] if kind == "honours_key" else [CHARGE, CHARGE])


@pytest.mark.parametrize(("fault", "status", "effects"), [("error_before", 503, []), ("error_after", 502, [CHARGE])])
def test_an_error_before_the_effect_and_one_after_it(keyed, fault, status, effects):
    keyed.disturb(fault, times=2)
    for _ in range(2):
        with pytest.raises(FarSideError) as caught:
            keyed.post("charge", key="k1", amount=5)
        assert caught.value.status == status
    assert keyed.effects == effects
    assert keyed.post("charge", key="k1", amount=5)["id"] == "charge-1"


def test_a_held_answer_comes_when_it_is_released(askable):
    askable.disturb("answer_held", times=2)
    answers = [in_thread(lambda: askable.post("charge", amount=5)) for _ in range(2)]
    askable.wait_for_held(2)
    assert askable.effects == [CHARGE, CHARGE]
    askable.release()
    assert {answer()["id"] for answer in answers} == {"charge-1", "charge-2"}


def test_to_wait_for_what_nobody_holds_is_a_sentence(keyed):
    with pytest.raises(AssertionError, match="0 answers are held after 0 s, not 1"):
        keyed.wait_for_held(within_s=0)


def test_a_fault_that_is_none_is_a_sentence(keyed):
    with pytest.raises(ValueError, match="a fault is one of 'answer_lost'"):
        keyed.disturb("answer_late")


# --- what a test does with it


def test_a_reset_forgets_requests_effects_keys_and_faults_and_sends_what_is_held(keyed):
    keyed.disturb("answer_held")
    held = in_thread(lambda: keyed.post("charge", key="k1", amount=5))
    keyed.wait_for_held()
    keyed.disturb("error_before")
    keyed.reset()
    assert held()["id"] == "charge-1"
    assert (keyed.requests, keyed.effects) == ([], [])
    assert keyed.post("charge", key="k1", amount=6)["id"] == "charge-1"


def test_what_was_seen_stays_as_it_was(keyed):
    keyed.post("charge", items=[1])
    seen = keyed.effects
    seen[0]["payload"]["items"].append(2)
    assert keyed.effects == [{"effect": "charge", "payload": {"items": [1]}}]


def test_other_http_libraries_talk_to_it_with_json_forms_and_text(askable):
    charge = f"{askable.url}/charge"
    assert requests.post(charge, json={"reference": "a"}, headers={"Idempotency-Key": "k1"}, timeout=30).status_code == 201
    assert requests.post(charge, data={"reference": "b"}, timeout=30).json() == {"id": "charge-2", "effect": "charge"}
    assert requests.post(charge, data=b"\xff", timeout=30).status_code == 201
    assert requests.post(charge, data=iter([b"chunked"]), timeout=30).status_code == 411
    assert [request.payload for request in askable.requests] == [{"reference": "a"}, {"reference": "b"}, "�"]
    assert askable.requests[0].key == "k1"
    assert requests.get(charge, params={"reference": "b"}, timeout=30).json()["id"] == "charge-2"


def test_closed_it_is_gone_and_what_it_did_can_still_be_seen():
    with FarSide("neither") as far:
        far.post("charge", amount=5)
        far.disturb("answer_held")
        held = in_thread(lambda: far.post("charge", amount=5))
        far.wait_for_held()
    assert isinstance(held(), (dict, ConnectionError))
    with pytest.raises(ConnectionRefusedError):
        far.post("charge", amount=5)
    assert far.effects == [CHARGE, CHARGE]
    far.close()


def test_pickled_it_is_a_client(keyed):
    client = pickle.loads(pickle.dumps(keyed))
    assert client == FarClient(keyed.url)
    assert client.post("charge", amount=5)["id"] == "charge-1"


def test_a_crash_point_test_sees_each_send(monkeypatch, keyed):
    reached = []

    class Watcher:
        def reach(self, when, kind, what, *, key):
            reached.append((when, kind, what, len(keyed.effects)))

    monkeypatch.setattr(crash, "watcher", Watcher())
    keyed.post("charge", amount=5)
    keyed.disturb("answer_lost")
    with pytest.raises(ConnectionError):
        keyed.post("charge/card", amount=5)
    assert reached == [
        ("before", "http", "POST /charge", 0),
        ("after", "http", "POST /charge", 1),
        ("before", "http", "POST /charge/card", 1),
    ]


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(FarSideError(422, {"error": "why"})))
    assert (error.status, str(error)) == (422, "the far side answered 422: {'error': 'why'}")
