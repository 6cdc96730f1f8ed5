"""The soak: publish at a steady rate, apply the faults of the plan, let everything come to rest, and judge it."""

import json
import threading
import time
from collections import Counter

from support import lock_db
from support.waiting import eventually

from soak import faults, work
from soak.floor import POOLS, Floor
from soak.inflict import inflict
from soak.judge import REST, judge
from soak.reaping import Reaping
from soak.report import Report
from soak.story import Admitted

#: calls a second
RATE = 12


class Soak:
    def __init__(self, seed, seconds, kinds=None, ends=tuple(work.ENDS), mutant=""):
        """``kinds``: of faults, and ``ends``: of calls, these only; ``mutant``: the workers do without this rule."""
        self.seed, self.seconds, self.ends, self.mutant = seed, seconds, ends, mutant
        self.plan = faults.plan(seed, seconds, {pool: pool for pool in POOLS}, kinds)
        self.admitted, self.duplicates, self.refused = [], [], []
        self.applied, self.missed = Counter(), Counter()
        #: sentences: of faults and workers, and of what did not come to rest
        self.failed, self.left = [], []

    def run(self):
        """The report; the folder stays where anything is broken, or excused."""
        floor = self.floor = Floor(self.mutant)
        pools = ", ".join(f"{pool} {slots[-1]}" for pool, slots in POOLS.items())
        about = f"{self.seconds} s of {RATE} calls a second, {len(self.plan)} faults, one worker each of {pools}"
        self.report = Report(self.seed, f"{about}, without the rule {self.mutant}" if self.mutant else about, floor.folder)
        self.report.kept = True  # until it is judged
        try:
            with Reaping(floor):
                self._work()
                self.failed += floor.all_up()
                self._rest()
            judge(self)
            self.report.kept = bool(self.report.broken or self.report.excused)
        finally:
            self._keep()
            floor.close(keep=self.report.kept)
        return self.report

    def _work(self):
        begin, waiting = time.monotonic(), list(self.plan)
        threads, calls = [], work.calls(self.seed, len(self.floor.tasks), self.ends)
        for n, call in enumerate(calls):
            moment = n / RATE
            if moment > self.seconds:
                break
            while time.monotonic() - begin < moment or (waiting and waiting[0].at < moment):
                if waiting and waiting[0].at <= time.monotonic() - begin:
                    threads.append(threading.Thread(target=self._apply, args=(waiting.pop(0),), daemon=True))
                    threads[-1].start()
                time.sleep(0.01)
            self._publish(call)
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                raise AssertionError("a fault did not come to its end")

    def _publish(self, call):
        task, asked = self.floor.tasks[call.task], time.time()
        try:
            result = task.apply_async((call.key, call.seconds, call.end), task_id=call.id, countdown=call.countdown)
        except Exception as exc:  # an outage: of our making?
            self.refused.append((call.id, asked, time.time(), f"{type(exc).__name__}: {exc}"))
            return
        if result.duplicate:
            self.duplicates.append((call.id, result.id))
        else:
            self.admitted.append(Admitted(call.id, task.lock, call.key, asked, time.time()))

    def _apply(self, fault):
        told = self.floor.witness.say("fault", kind=fault.kind, victim=fault.victim)
        try:
            there = inflict(self.floor, fault, self._waiting_calls)
        except Exception as exc:
            self.failed.append(f"{fault}: {type(exc).__name__}: {exc}")
            return
        finally:
            self.floor.witness.say("fault over", fault=(told, fault.kind, fault.victim))
        (self.applied if there else self.missed)[fault.kind] += 1

    def _waiting_calls(self):
        begun = {event["task_id"] for event in self.floor.witness.events() if event["event"] == "enter"}
        return [call.id for call in list(self.admitted)[-40:] if call.id not in begun]

    # -- the end --

    def _rest(self):
        broker, locks = self.floor.broker, self.floor.locks
        try:
            eventually(lambda: broker.quiet() and not lock_db.held(locks), within=REST, what="rest")
        except AssertionError:
            held, unacknowledged = lock_db.held(locks), [m["headers"]["id"] for m in broker.unacknowledged()]
            waiting = len(broker.waiting())
            self.left.append(f"after {REST} s: locks {held}, in the queue {waiting}, unacknowledged {unacknowledged}")

    def _keep(self):
        folder = self.floor.folder
        with open(folder / "plan.json", "w") as file:
            json.dump([fault._asdict() for fault in self.plan], file, indent=1)
        with open(folder / "events.jsonl", "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.floor.witness.events())
        (folder / "report.txt").write_text(self.report.text(printed=None))
