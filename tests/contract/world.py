"""A small world around the lock store: publishers, a broker's bag of messages, runs, and everything that can go wrong.

A program is a list of numbers of 26 bits, one for each step: what happens, to which one, and whether the reply of its first act
is lost, so that it is sent twice. Each act goes to the twins, which compare store and model; after each step the world checks
what was promised:

* never more live runs than the lock allows (live: let in, not ended, lease neither lapsed nor flushed), never two of one call,
  and a live run has its lock;
* nobody frees, or takes over, what is not his;
* an admitted call is over, or has a run, or a message that may still start; except where early acknowledgement, a purge or a
  revoke took it;
* what is over does not start again while it is remembered; a message that a retry replaced is spent;
* from here, without further faults, everything comes to its end, and the lock is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from contract.model import Held
from contract.twins import AGES, HANDOVER, LEASE, PERIOD, WAIT, Twins

from celery_once_more.lock_types import LOCK_TYPES, LockType
from celery_once_more.ticket import Ticket, assumed_series

TASK_IDS = ("evt_1", "evt_2")
#: bits: what happens 16, to which one 8, sent twice 2
STEP_BITS = 26
#: odd, so that each number still stands for one step; small numbers, of which Hypothesis is fond, stand for all kinds of them
MIX = 0x9E3779B1


class Broken(AssertionError):
    """A promise is broken."""


@dataclass(eq=False)
class Call:
    ticket: Ticket
    #: late acknowledgement
    late: bool
    #: a message of it was published with a ticket
    admitted: bool = False
    over: bool = False
    #: and the store was told so, and has not lost it since
    remembered: bool = False
    #: a fault took it, of the kind that takes calls
    taken: bool = False
    #: it was published without a ticket: nothing is promised, and several messages may share its name
    bare: bool = False


@dataclass(frozen=True)
class Message:
    call: Call
    hop: int
    ticket: bool
    #: its lock was taken at the publish
    admitted: bool = True
    redelivered: bool = False


@dataclass(eq=False)
class Run:
    call: Call
    message: Message
    id: str
    #: body, requeued (its retry is about to be published), published (and about to be confirmed)
    stage: str = "body"
    live: bool = True
    #: the broker gives its message back if it dies
    owns: bool = True
    #: it runs without a lock: the store did not answer when it started
    unlocked: bool = False
    #: the message that it published while its body went on
    next_hop: int | None = None
    #: it gave its lock up
    freed: bool = False

    @property
    def ticket(self) -> Ticket:
        ticket = self.call.ticket.at_hop(self.message.hop)
        return replace(ticket, known=self.message.ticket, admitted=self.message.ticket and self.message.admitted)


class World:
    #: what happens -> how often
    WEIGHTS = {
        "publish": 36, "deliver": 56, "end": 22, "retry": 30, "go_on": 40, "give_back": 6, "crash": 12, "redeliver": 10,
        "publish_early": 6, "outage": 5, "unasked": 4, "copy": 3, "lapse": 10, "outlive": 6, "renew": 10, "flush": 2,
        "forget": 1, "reap": 4, "age": 6, "revoke": 2, "lose": 1, "bare": 3, "free": 3,
    }  # fmt: skip

    def __init__(self, twins: Twins, *, early: int = 0, weights: dict[str, int] | None = None, composition: str = "",
                 lock: LockType = LOCK_TYPES["until_executed"]) -> None:  # fmt: skip
        twins.clear()
        self.twins = twins
        self.lock = lock
        self.period_ms = PERIOD if lock.kept else 0
        #: of 8 calls, how many are acknowledged early
        self.early = early
        self.weights = {**self.WEIGHTS, **(weights or {})}
        #: a mutation of the order in which the package calls the store
        self.composition = composition
        self.calls: list[Call] = []
        self.bag: list[Message] = []
        self.runs: list[Run] = []
        self.seen: Counter[str] = Counter()
        self._serial = 0
        self._twice = False
        self._kinds = [kind for kind, n in self.weights.items() for _ in range(n)]

    def play(self, program: Iterable[int]) -> None:
        """Do all steps of a program, then let the world come to rest."""
        for number in program:
            step = (number * MIX + MIX) % (1 << STEP_BITS)
            what, which, self._twice = step & 0xFFFF, step >> 16 & 0xFF, step >> 24 == 3
            getattr(self, f"_{self._kinds[what % len(self._kinds)]}")(which)
            self._twice = False
            self.check()
        self.rest()

    # ---------------------------------------------------------------- what happens

    def _publish(self, pick: int) -> None:
        if sum(not call.over for call in self.calls if not call.bare) >= 3:
            return self._deliver(pick)
        self._serial += 1
        ticket = self._ticket(TASK_IDS[pick % 2], self._serial)
        call = Call(ticket, late=self._serial * 5 % 8 >= self.early)
        how = pick // 2 % 8
        if not self.lock.at_publish:
            return self._admit(call, admitted=False)
        by_name = pick // 16 % 8 == 0
        wait_ms = HANDOVER if by_name else WAIT
        answer = self._act("acquire", ticket, wait_ms=wait_ms, period_ms=self.period_ms)
        if answer.verdict == "refused":
            if how == 0:  # Task.replace: it must at least run
                self._admit(call)
            elif how == 4:  # rescheduled
                self._admit(call, admitted=False)
            elif how < 3:  # inside a canvas, or by name: settled at its start
                self._post_bare(ticket.task_id, call.late)
            return None
        call.ticket = replace(ticket, stop=answer.stop)
        if how == 0:
            self._act("release", ticket)
        elif how > 1:  # at 1 the publisher dies
            self._admit(call)
            if by_name:
                self._act("confirm", ticket, hop=0, wait_ms=WAIT)
        return None

    def _ticket(self, task_id: str, series: int) -> Ticket:
        return Ticket(task="shop.settle", task_id=task_id, digest=self.twins.digest, lock=self.lock,
                      series=series, hop=0, queue="celery")  # fmt: skip

    def _admit(self, call: Call, *, admitted: bool = True) -> None:
        self.calls.append(call)
        call.admitted = True
        self.bag.append(Message(call, 0, ticket=True, admitted=admitted))

    def _bare(self, pick: int) -> None:
        self._post_bare(TASK_IDS[pick % 2], late=pick // 2 % 8 >= self.early)

    def _post_bare(self, task_id: str, late: bool) -> None:
        series = assumed_series(task_id)
        call = next((c for c in self.calls if c.bare and c.ticket.series == series), None)
        if call is None:
            call = Call(self._ticket(task_id, series), late, bare=True)
            self.calls.append(call)
        self.bag.append(Message(call, 0, ticket=False))

    def _deliver(self, pick: int) -> None:
        if not self.bag:
            return
        message = self.bag.pop(pick % len(self.bag))
        call = message.call
        self._serial += 1
        run = Run(call, message, f"run-{self._serial}", owns=call.late)
        redelivered = message.redelivered
        how = {"lease_ms": LEASE, "redelivered": redelivered, "period_ms": self.period_ms}
        answer = self._act("start", run.ticket, run=run.id, **how)
        if answer.verdict == "run":
            if call.over and call.remembered and (message.ticket or redelivered):
                raise self._broken(f"{run.id} of a call that is over was let in")
            self.runs.append(run)
            call.admitted = True
            if call.bare and not message.ticket and not redelivered:
                call.over = call.remembered = False
        elif answer.verdict in ("busy", "held"):
            if pick // 32 == 7:  # dies before it is put off
                self._dies(run)
            elif self.composition != "drop what is busy":
                let_in = message.admitted or (redelivered and not message.ticket)
                self.bag.append(Message(call, message.hop, ticket=message.ticket or redelivered, admitted=let_in))
        elif answer.verdict == "conflict" and message.ticket:
            if pick // 64 == 3:  # dropped, by the strategy log; what it waited with is freed
                if message.admitted:
                    self._act("release", run.ticket)
                call.over = True
            else:
                self.bag.append(replace(message, redelivered=False))

    def _end(self, pick: int) -> None:
        run = self._pick(pick, lambda r: r.stage == "body")
        if run is None:
            return None
        if run.next_hop is not None:
            return self._end_as_retry(run, pick)
        verdict = self._act("finish", run.ticket, run=run.id)
        if run.unlocked and verdict == "lost":  # what its message waited with
            verdict = self._act("finish", run.ticket, run="")
        if run.live and verdict not in ("free" if run.freed else "freed", "kept"):
            raise self._broken(f"the live {run.id} did not free its lock at its end: {verdict}")
        self.runs.remove(run)
        run.call.over = True  # its outcome stands, though the store may know of another run
        run.call.remembered |= verdict != "lost"
        if pick // 32 == 7 and run.owns:  # dies before it is acknowledged
            self.bag.append(replace(run.message, redelivered=True))
        return None

    def _publish_early(self, pick: int) -> None:
        """``retry(throw=False)``: the retry is in the broker, and the body goes on."""
        run = self._pick(pick, lambda r: r.stage == "body" and r.next_hop is None and not r.unlocked and r.message.hop < 4)
        if run is not None:
            run.next_hop = run.message.hop + 1
            self.bag.append(Message(run.call, run.next_hop, ticket=True))

    def _end_as_retry(self, run: Run, pick: int) -> None:
        kept = self._act("requeue", run.ticket, run=run.id, hop=run.next_hop, wait_ms=WAIT)
        if run.live and not kept:
            raise self._broken(f"the live {run.id} may not go on as its retry")
        run.live = False
        if kept and pick // 32 != 6:
            self._act("confirm", run.ticket, hop=run.next_hop, wait_ms=WAIT)
        self._dies(run) if pick // 32 == 6 else self.runs.remove(run)

    def _outage(self, pick: int) -> None:
        """The store does not answer a start: the message runs without a lock, or is put off."""
        if not self.bag:
            return
        message = self.bag.pop(pick % len(self.bag))
        self._serial += 1
        if pick // 32 % 2:
            call = message.call
            self.runs.append(Run(call, message, f"run-{self._serial}", live=False, owns=call.late, unlocked=True))
            call.admitted = True
        else:
            let_in = message.admitted or (message.redelivered and not message.ticket)
            again = replace(message, ticket=message.ticket or message.redelivered, admitted=let_in, redelivered=False)
            self.bag.append(again)

    def _unasked(self, pick: int) -> None:
        """A child dies before it could ask, and its main process publishes a retry: there is no run that could speak for it."""
        if not self.bag:
            return
        message = self.bag.pop(pick % len(self.bag))
        self._serial += 1
        run = Run(message.call, message, f"run-{self._serial}", stage="requeued", live=False, owns=message.call.late)
        state = self._act("look", run.ticket, run="")[0]
        hop = message.hop + 1
        if state in ("waiting", "none") and hop < 5 and self._act("requeue", run.ticket, run="", hop=hop, wait_ms=HANDOVER):
            self.runs.append(run)
        else:
            self._dies(run)

    def _retry(self, pick: int) -> None:
        run = self._pick(pick, lambda r: r.stage == "body" and r.next_hop is None and not r.unlocked and r.message.hop < 4)
        if run is None:
            return
        was_live = run.live
        kept = self._act("requeue", run.ticket, run=run.id, hop=run.message.hop + 1, wait_ms=HANDOVER)
        if was_live and not kept:
            raise self._broken(f"the live {run.id} may not retry")
        run.live = False
        if kept:
            run.stage = "requeued"
        else:  # put off, and not dropped: the run that has its place may be the one without a message in the broker
            self.runs.remove(run)
            self.bag.append(Message(run.call, run.message.hop, ticket=True))

    def _go_on(self, pick: int) -> None:
        """A retry's next step: publish, then confirm."""
        run = self._pick(pick, lambda r: r.stage != "body")
        if run is None:
            return self._deliver(pick)
        following = run.ticket.at_hop(run.message.hop + 1)
        if run.stage == "requeued" and pick // 32 == 7:  # it cannot be published: the task has failed
            self._act("release", replace(following, admitted=True))
            self.runs.remove(run)
            run.call.over = True
        elif run.stage == "requeued":
            run.stage = "published"
            self.bag.append(Message(run.call, following.hop, ticket=True))
        else:
            if self.composition != "no confirm":
                self._act("confirm", run.ticket, hop=following.hop, wait_ms=WAIT)
            self.runs.remove(run)
            own = self._holder(run.call)
            if own and following.hop in own.hops and run.message.hop in own.hops:
                raise self._broken(f"message {run.message.hop} is still good, though {following.hop} was confirmed")
        return None

    def _give_back(self, pick: int) -> None:
        """``Reject(requeue=True)``, or the main process gives back the message of a child that died."""
        run = self._pick(pick, lambda r: r.owns)
        if run is None:
            return
        kept = self._act("requeue", run.ticket, run=run.id, hop=run.message.hop, wait_ms=WAIT)
        if run.live and not kept:
            raise self._broken(f"the live {run.id} may not give its message back")
        self._dies(run)

    def _crash(self, pick: int) -> None:
        run = self._pick(pick, lambda r: True)
        if run is None:
            return
        if pick // 64 == 3 and not run.call.late:  # only the child died, and its main process tells the store
            self._act("finish", run.ticket, run=run.id, only_this_message=True)
        self._dies(run)

    def _dies(self, run: Run) -> None:
        if run in self.runs:
            self.runs.remove(run)
        if run.owns:
            self.bag.append(replace(run.message, redelivered=True))
        elif not run.call.late:
            run.call.taken = True

    def _redeliver(self, pick: int) -> None:
        """The broker hands the message of a run to somebody else, too."""
        run = self._pick(pick, lambda r: r.owns)
        if run is not None:
            run.owns = False
            self.bag.append(replace(run.message, redelivered=True))

    def _copy(self, pick: int) -> None:
        if self.bag and self.bag[pick % len(self.bag)].call.late:
            self.bag.append(replace(self.bag[pick % len(self.bag)], redelivered=True))

    def _lapse(self, pick: int) -> None:
        holders = self.twins.holders
        if holders:
            self._deadline_passes(holders[pick % len(holders)].series)

    def _deadline_passes(self, series: int) -> None:
        self.twins.lapse(series)
        for run in self.runs:
            if run.call.ticket.series == series:
                run.live = False

    def _outlive(self, pick: int) -> None:
        """A worker stands still for longer than its lease, and another one gets its message."""
        run = self._pick(pick, lambda r: r.stage == "body" and r.owns and self._holder(r.call) is not None)
        if run is not None:
            self._deadline_passes(run.call.ticket.series)
            run.owns = False
            self.bag.insert(0, replace(run.message, redelivered=True))
            self._deliver(0)

    def _free(self, pick: int) -> None:
        """``current_lock.release()``; or a person frees what waits."""
        run = self._pick(pick, lambda r: r.stage == "body")
        if run is not None and pick // 64 < 3:
            was_live, had_freed = run.live, run.freed
            run.freed |= self._act("free", run.ticket, run=run.id, phase="running")
            if was_live and not run.freed and not had_freed:
                raise self._broken(f"the live {run.id} could not free its lock")
        elif self.bag:
            message = self.bag[pick % len(self.bag)]
            self._act("free", message.call.ticket.at_hop(message.hop), run="", phase="waiting")

    def _renew(self, pick: int) -> None:
        run = self._pick(pick, lambda r: not r.live) or self._pick(pick, lambda r: True)
        if run is not None:
            self._beat(run, pick // 32 % 2 == 1)

    def _beat(self, run: Run, retake: bool) -> None:
        verdict = self._act("renew", run.ticket, run=run.id, retake=retake)
        if run.live and verdict != "renewed":
            raise self._broken(f"the live {run.id} has no lease to renew: {verdict}")
        if verdict in ("renewed", "retaken"):
            run.live = run.stage == "body"
        if verdict == "retaken":
            run.freed = False

    def _flush(self, pick: int) -> None:
        self.twins.flush()
        for run in self.runs:
            run.live = False
        for call in self.calls:
            call.remembered = False
        if pick % 2:  # the keepers' next beat
            for run in self.runs:
                self._beat(run, retake=True)

    def _forget(self, pick: int) -> None:
        self.twins.forget()
        for call in self.calls:
            call.remembered = False

    def _reap(self, pick: int) -> None:
        if self.twins.holders:
            self._act("reap", self._ticket(TASK_IDS[0], 0))

    def _age(self, pick: int) -> None:
        self._time_passes(AGES[pick % len(AGES)])

    def _time_passes(self, ms: int) -> None:
        """Live runs are renewed meanwhile, as their workers do."""
        self.twins.age(ms)
        for run in self.runs:
            if run.live:
                verdict = self._act("renew", run.ticket, run=run.id, retake=False)
                run.live = verdict == "renewed"

    def _revoke(self, pick: int) -> None:
        if self.bag:
            message = self.bag.pop(pick % len(self.bag))
            self._act("release", message.call.ticket.at_hop(message.hop))
            message.call.taken = True

    def _lose(self, pick: int) -> None:
        if self.bag:
            self.bag.pop(pick % len(self.bag)).call.taken = True

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        live = [run for run in self.runs if run.live]
        holding = [run for run in live if not run.freed]
        if self.lock.refuse_start and len(holding) > self.lock.limit:
            raise self._broken(f"too many live runs: {', '.join(run.id for run in holding)}")
        if len({id(run.call) for run in live}) < len(live):
            raise self._broken(f"two live runs of one call: {', '.join(run.id for run in live)}")
        for run in live:
            own = self._holder(run.call)
            if own is None or (own.phase, own.run) != ("F" if run.freed else "R", run.id):
                raise self._broken(f"the live {run.id} has no lock")
        for call in self.calls:
            if call.admitted and not (call.over or call.taken or call.bare) and not self._goes_on(call):
                raise self._broken(f"call {call.ticket.series} is lost: it is not over, and nothing of it can run")

    def _goes_on(self, call: Call) -> bool:
        if any(run.call is call and run.stage != "published" for run in self.runs):
            return True
        return any(message.call is call and self._good(message) for message in self.bag)

    def _good(self, message: Message) -> bool:
        ticket, own = message.call.ticket.at_hop(message.hop), self._holder(message.call)
        if {ticket.done_member, ticket.spent_member} & self.twins.model.memory:
            return False
        return own is None or message.hop in own.hops or message.hop > own.hops[0]

    def rest(self) -> None:
        """No faults any more: what is under way ends, what is published runs, and in the end the lock is free."""
        self.twins.log.append("--- no more faults")
        for _ in range(80):
            if not self.runs and not self.bag:
                break
            before = (len(self.runs), len(self.bag))
            for run in [*self.runs]:
                self.runs.remove(run)  # so that it is the one to go on
                self.runs.insert(0, run)
                self._end(0) if run.stage == "body" else self._go_on(0)
            for _ in range(len(self.bag)):
                self._deliver(0)
            self.check()
            if not self.runs and (0, len(self.bag)) == before:
                self._time_passes(AGES[-1])  # what was put off comes again when the lease in its way has lapsed
        else:
            raise self._broken("the world does not come to rest")
        for call in self.calls:
            if call.admitted and not (call.over or call.taken or call.bare):
                raise self._broken(f"call {call.ticket.series} was admitted and never ended")
        self._time_passes(10 * WAIT)
        self._reap(0)
        if self.twins.holders:
            raise self._broken("the lock is not free in the end")

    def _act(self, verb: str, ticket: Ticket, **how):
        """One act; perhaps sent twice, because its reply was lost: then the second changes nothing, and the same is answered."""
        first = self._once(verb, ticket, **how)
        if not self._twice:
            return first
        self._twice = False
        state = [_steady(held) for held in self.twins.holders], set(self.twins.model.memory)
        second = self._once(verb, ticket, **how)
        if ([_steady(held) for held in self.twins.holders], self.twins.model.memory) != state:
            raise self._broken(f"{verb}, sent twice, changed something the second time")
        if verb in ("acquire", "start", "requeue") and _said(first) != _said(second):
            raise self._broken(f"{verb}, sent twice, answered {first}, then {second}")
        return first

    def _once(self, verb: str, ticket: Ticket, **how):
        answer = self.twins.do(verb, ticket, **how)
        word = getattr(answer, "verdict", answer[0] if isinstance(answer, tuple) else answer)
        self.seen[
            f"{verb}: {word if isinstance(word, (str, bool)) else 'something' if getattr(word, 'lapsed', ()) else 'nothing'}"
        ] += 1
        self._only_his(verb, ticket, how.get("run"))
        return answer

    def _only_his(self, verb: str, ticket: Ticket, run: str | None) -> None:
        """Whatever went, or changed hands, was the actor's own, or had lapsed."""
        after = {held.series: held for held in self.twins.holders}
        now = self.twins.model.clock()
        for held in self.twins.before:
            left = after.get(held.series)
            if left and (left.run, left.phase) == (held.run, held.phase):
                continue
            mine = held.series == ticket.series
            fits = {
                "release": mine and held.phase == "W" and (left is None or left.phase == "K"),
                "finish": mine and (left is None or left.phase == "K") and (held.run == run or (held.phase == "W" and run == "")),
                "free": mine and (left is None or left.phase == "F"),
                "renew": mine and held.phase == "K" and held.run == run,
                "requeue": mine and (held.run == run or (run == "" and held.phase == "W")),
                "start": held.phase == "W" and (mine or (not ticket.admitted and held.task_id == ticket.task_id)),
            }.get(verb, False)
            swept = left is None or mine or left.phase == "K"
            lapsed = held.until <= now and swept and verb in ("acquire", "start", "reap", "requeue")
            goes_on = mine and held.phase == "K" and (verb == "start" or (verb == "requeue" and held.run == run))
            if not (fits or lapsed or goes_on):
                raise self._broken(f"{verb} of {ticket.task_id}/{ticket.series} touched {held}, now {left}")

    def _holder(self, call: Call) -> Held | None:
        return next((held for held in self.twins.holders if held.series == call.ticket.series), None)

    def _pick(self, pick: int, fits: Callable[[Run], bool]) -> Run | None:
        some = [run for run in self.runs if fits(run)]
        return some[pick % len(some)] if some else None

    def _broken(self, what: str) -> Broken:
        return Broken(self.twins.story(what))


def _steady(held: Held) -> tuple:
    return held.series, held.run, held.phase, held.token, tuple(held.hops)


def _said(answer) -> tuple:
    holder = getattr(answer, "holder", None)
    return getattr(answer, "verdict", answer), getattr(answer, "token", None), holder and holder.task_id
