"""Random programs of deliveries, deaths, frozen owners, time, verification and people, and what must hold after each step.

An attempt that is begun and left alone was killed; one that goes on later was frozen. The far side says the truth, and a person
who resolves knows it.
"""

from collections import Counter
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from celery_once_more.reservations import (
    ASSUME_DONE,
    NOT_DONE,
    REFUSE,
    REPEAT,
    Busy,
    Done,
    LostReservation,
    OutcomeUnknown,
    PreviouslyFailed,
    ReservationError,
    terms,
    verify,
)
from celery_once_more.reservations.keys import run_key

KEYS = ("a", "b")
LEASE, DAY = 60, 24 * 3600
REFUSALS = (Busy, OutcomeUnknown, PreviouslyFailed)
any_key = st.sampled_from(KEYS)


class NothingDone(Exception):
    pass


class Final(Exception):
    pass


@dataclass(eq=False)
class Begun:
    key: str
    held: object
    at: float
    effected: bool = False
    #: somebody was told that it will not do it any more
    spoken_for: bool = False


class Machine(RuleBasedStateMachine):
    #: set by the test
    backend = clock = None
    #: what has happened in all programs
    seen = Counter()

    @initialize(policies=st.tuples(*[st.sampled_from(["REPEAT", "REFUSE", "ASSUME_DONE", "verify"])] * len(KEYS)))
    def begin_program(self, policies):
        self.backend.clear()
        self.policies = dict(zip(KEYS, policies, strict=True))
        self.begun, self.effects, self.tokens, self.ends, self.known = [], Counter(), Counter(), {}, set()

    @property
    def flow(self):
        return self.backend.reservations._flow

    def policy(self, key):
        def answer(reservation):
            if self.effects[key]:
                return Done("truth")
            self.speak_for(key)
            return NOT_DONE

        ask = verify(answer)
        return {"REPEAT": REPEAT, "REFUSE": REFUSE, "ASSUME_DONE": ASSUME_DONE, "verify": ask}[self.policies[key]]

    def repeats(self, key):
        return self.policies[key] == "REPEAT"

    def save(self, key):
        return lambda tx, result: self.backend.write(tx, key)

    def count(self, what):
        self.seen[what] += 1

    def effect(self, key, reservation):
        self.effects[key] += 1
        self.known.add((key, reservation.dedup_key))
        return f"effect {self.effects[key]}"

    def speak_for(self, key):
        for one in self.begun:
            if one.key == key and not self.repeats(key):
                one.spoken_for = True

    @rule(key=any_key)
    def deliver(self, key):
        try:
            self.backend.reservations.run(
                key, lambda r: self.effect(key, r), on_unknown=self.policy(key), lease=LEASE, save=self.save(key)
            )
        except REFUSALS as exc:
            self.count(type(exc).__name__)
        else:
            self.count("delivered")

    @rule(key=any_key)
    def begin(self, key):
        said = terms.check(on_unknown=self.policy(key), lease=LEASE, limit_s=None, not_done=NothingDone, final=Final)
        try:
            held = self.flow.enter(run_key(key), said, self.save(key))
        except REFUSALS as exc:
            self.count(type(exc).__name__)
            return
        if isinstance(held, Done):
            self.count("done before")
            return
        self.begun.append(Begun(key, held, self.clock.ahead))
        self.count("taken over" if held.attempt.takeovers else "begun")

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def go_on(self, data):
        """A frozen or slow owner does its effect; where somebody spoke for it, it was killed."""
        self.do_effect(data.draw(st.sampled_from(self.begun)))

    def do_effect(self, one):
        if not one.spoken_for and not one.effected:
            self.effect(one.key, one.held.reservation)
            one.effected = True

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def complete(self, data):
        one = data.draw(st.sampled_from(self.begun))
        self.do_effect(one)
        if not one.effected:
            return
        self.begun.remove(one)
        try:
            self.flow.complete(one.held, "late", self.save(one.key))
        except LostReservation:
            self.count("lost")
        else:
            assert self.clock.ahead - one.at < LEASE
            self.count("completed")

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), error=st.sampled_from([NothingDone, Final, KeyboardInterrupt]))
    def break_off(self, data, error):
        one = data.draw(st.sampled_from(self.begun))
        self.begun.remove(one)
        self.flow.broken(one.held, KeyboardInterrupt() if one.effected else error())
        self.deliver(one.key)

    @rule()
    def expire(self):
        self.clock.move(LEASE + 1)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), effected=st.booleans())
    def another_comes_late(self, data, effected):
        """The owner is killed or frozen, before or after its effect, until its lease has ended and the next has begun."""
        one = data.draw(st.sampled_from(self.begun))
        if effected:
            self.do_effect(one)
        self.expire()
        self.begin(one.key)

    @rule(key=any_key)
    def resolve(self, key):
        try:
            said = {"done": "truth"} if self.effects[key] else {"not_done": True}
            self.backend.reservations.resolve(key, **said)
        except ReservationError:
            return
        self.count("resolved")
        self.speak_for(key)

    @rule()
    def purge(self):
        self.clock.move(31 * DAY)
        before = {row["label"] for row in self.backend.rows() if row["state"] in ("running", "unknown")}
        self.backend.reservations.purge()
        left = {row["label"] for row in self.backend.rows()}
        assert before <= left
        for key in KEYS:
            if f'"{key}"' not in left:  # its key is new; so is all that is counted of it
                self.count("purged")
                self.speak_for(key)
                self.effects[key], self.begun = 0, [one for one in self.begun if one.key != key]
                self.ends.pop(key, None)
                self.backend.unwrite(key)

    @invariant()
    def an_effect_is_done_once_unless_it_may_be_repeated(self):
        for key in KEYS:
            assert self.effects[key] <= 1 or self.repeats(key)
        assert len(self.known) == len({key for key, _ in self.known})

    @invariant()
    def no_local_write_is_doubled(self):
        assert max(Counter(self.backend.words()).values(), default=0) <= 1

    @invariant()
    def tokens_do_not_fall_and_what_is_done_stays(self):
        for row in self.backend.rows():
            key = row["label"].strip('"')
            assert row["token"] >= self.tokens[key]
            self.tokens[key] = row["token"]
            end = self.ends.get(key)
            assert end is None or end == (row["state"], row["result"])
            if row["state"] in ("done", "failed"):
                self.ends[key] = (row["state"], row["result"])
