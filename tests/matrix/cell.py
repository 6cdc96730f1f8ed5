"""One cell of the matrix: a call under one lock, ended as its row says, and the five claims that must hold afterwards.

The task ran as often as Celery's delivery allows and never twice at once; the lock is free in the promised time; nothing else was
freed; the result is what the last real run left; callers were answered.
"""

from support import held
from support.waiting import eventually

from matrix.floor_tasks import task_name
from matrix.row import AT_ONCE, LEASE, QUEUE_LEASE

#: seconds; a promise is kept long before
WITHIN = 40
#: the leases where they are what is promised
LEASE_S, QUEUE_LEASE_S = 2, 3


class Cell:
    def __init__(self, floor, row, column):
        self.floor, self.row, self.column, self.book = floor, row, column, floor.book
        floor.cells += 1
        self.key = f"{floor.cells}. {row.name}"
        self.expect = row.expected(floor.pool, floor.broker_name, column.ack)
        self.task = floor.app.tasks[task_name(column, "unknown" if row.unknown else "known")]
        self.first, self.twins, self.worker = None, [], None
        self._work = {}  # as it was last seen
        self.queue = row.options.get("queue") or ("celery" if row.runs else f"later{floor.cells}")

    def run(self):
        """The number of runs of the call.

        Raises:
            AssertionError: a claim does not hold.
        """
        self.worker = self.floor.worker(*self.row.worker, env=dict(self.row.env), **self.row.conf)
        before = self._bystanders()
        self._begin()
        self.row.deed(self)
        self._settle()
        if not self.row.forgets:
            assert self._bystanders() == before, "something else was freed"
        self._again()
        if self.row.spoils:
            self.floor.dismiss()
        elif self.queue != "celery":
            self.floor.tell("cancel_consumer", self.queue)
        return self.expect.runs

    # -- what a deed uses --

    def publish(self, how="success", gated=0, task_id=None, **options):
        lease = {LEASE: {"lock_lease": LEASE_S}, QUEUE_LEASE: {"lock_queue_lease": QUEUE_LEASE_S}}.get(self.expect.free, {})
        return self.task.apply_async((self.key, how, gated), task_id=task_id, **{**lease, **options})

    def running(self, result, nth=1):
        """Wait until a call is in its body; the process that runs it."""
        runs = eventually(lambda: len(runs := self.book.runs(task_id=result.id)) >= nth and runs, within=WITHIN, what="a run")
        return runs[nth - 1]["pid"]

    def open(self, result, nth):
        self.book.open_gate(f"{result.id}:{nth}")

    def ended(self):
        """Let the first run end, and wait until its body has."""
        self.open(self.first, 1)
        eventually(lambda: self.book.runs(task_id=self.first.id)[0]["how"] != "inside", what="the end of the body")

    def state(self, result=None):
        return self.floor.app.AsyncResult((result or self.first).id).state

    def holding(self, result=None):
        return [one for one in held.holders(self.task, self.key) if one.task_id == (result or self.first).id]

    def twin(self):
        """Somebody publishes the same call: he is handed the first one's result, or his own call is let in, and runs later."""
        refused = self.column.at_publish and (not self.row.runs or self.column.lock == "until_executed")
        twin = self.publish(countdown=self.row.twin_due, queue=self.queue)
        assert (twin.duplicate, twin.id == self.first.id) == (refused, refused), "a caller was told wrong"
        if not refused:
            self.twins.append(twin)
            if self.floor.pool != "solo":  # else the queue has it, as the worker reads none during its run
                said = f"{twin.id}] received" if self.row.twin_due else f"{twin.id}]: lock"
                eventually(lambda: said in self.worker.logs(), what="the other call in the worker's hands, or turned away")
            if self.column.at_publish:
                third = self.publish()
                assert (third.duplicate, third.id) == (True, twin.id), "a caller was told wrong"

    def new_worker(self):
        """In the place of one that is gone, or goes now."""
        self.worker = self.floor.replace_worker()

    def add_worker(self):
        """Beside the one that there is."""
        self.worker = self.floor.add_worker()

    def gone(self, patience=60):
        """Wait until the worker has ended, and start another one."""
        eventually(lambda: self.worker.status == "exited", within=patience, what="the worker's end")
        self.new_worker()

    def deliver(self):
        """Let the worker have what waits."""
        self.floor.tell("add_consumer", self.queue)

    def fill_prefetch(self):
        """Of a worker with one slot, which runs the first call: a message that is not acknowledged does it by itself."""
        if self.column.ack == "early" and self.floor.pool != "solo":
            filler = self.task.apply_async((f"{self.key}, filler",), lock_lease=LEASE_S)
            eventually(lambda: f"{filler.id}] received" in self.worker.logs(), what="a full prefetch")

    # -- the cell --

    def _begin(self):
        gated = self.row.gated if self.row.runs else 0
        self.first = self.publish(self.row.how, gated, **{"queue": self.queue, **self.row.options})
        assert not self.first.duplicate
        if self.row.runs:
            self.pid = self.running(self.first)
            self._acknowledged()
        if self.row.twin and (self.row.runs or self.column.at_publish):
            self.twin()

    def _acknowledged(self):
        """Before a worker is killed: one of greenlets is late with an early acknowledgement, which waits for its consumer."""
        broker = self.floor.redis_broker
        if broker and self.column.ack == "early" and self.floor.pool != "solo" and self.expect.free == LEASE:
            eventually(lambda: not any(one["headers"].get("id") == self.first.id for one in broker.unacknowledged()),
                       within=WITHIN, what="an acknowledgement")  # fmt: skip

    def _bystanders(self):
        task = self.floor.app.tasks[task_name(self.column)]
        record = held.record(task, "bystander")
        return record or held.take(task, "bystander")

    def _settle(self):
        """Wait until nothing can happen any more, and claim."""
        self._in_time()
        self._until(lambda: self._ended() == (self.expect.runs, self.expect.left), "its end")
        for twin in self.twins:
            self._until(lambda twin=twin: self.state(twin) == "SUCCESS", "an answer to a caller")
        self._until(self._idle, "a broker and a worker without work")
        self._until(lambda: held.free(self.task, self.key), "a free lock")
        assert self._ended() == (self.expect.runs, self.expect.left), f"ended twice: {self._ended()}"
        assert [len(self._runs(twin)) for twin in self.twins] == [1] * len(self.twins), "another call that ran more than once"
        self._alone()
        if self.expect.left == "SUCCESS":
            last = [run["number"] for run in self._runs() if run["how"] == "done"][-1]
            assert self.floor.app.AsyncResult(self.first.id).result == last, "a result that is not the last run's"

    def _until(self, condition, what):
        try:
            eventually(condition, within=WITHIN, what=what)
        except AssertionError as exc:
            self._alone()
            raise AssertionError(f"{exc}; runs and result are {self._ended()}; work is {self._work}") from None

    def _alone(self):
        assert self.row.overlaps or not self.book.overlaps(self.key), f"ran beside itself: {self.book.runs(key=self.key)}"

    def _idle(self):
        self._work = self.floor.work("celery", self.queue)
        return not self._work

    def _in_time(self):
        """The lock of the call is free in the promised time, which its own deadline says, whatever the clock here."""
        if self.expect.free != AT_ONCE:
            promised = LEASE_S if self.expect.free == LEASE else QUEUE_LEASE_S
            until = [one.until for one in self.holding()]  # first these, then the time: a lease may be renewed in between
            assert all(ms - held.now_ms(self.task) <= promised * 1000 for ms in until), "a lock longer than promised"
        eventually(lambda: not self.holding(), within=WITHIN, what=f"a lock that is free {self.expect.free}")

    def _runs(self, result=None):
        return self.book.runs(task_id=(result or self.first).id)

    def _ended(self):
        result = self.floor.app.AsyncResult(self.first.id)  # a new one each time: it remembers the first final state
        left = f"FAILURE {type(result.result).__name__}" if result.state == "FAILURE" else result.state
        return len(self._runs()), left

    def _again(self):
        """The next publish is let in, and runs."""
        again = self.publish()
        assert not again.duplicate, "the next call was refused"
        if self.row.unknown:
            self._until(lambda: self.state(again) == "FAILURE", "the next call's failure")
        else:
            self._until(lambda: self.state(again) == "SUCCESS", "the next call's success")
            self._until(lambda: held.free(self.task, self.key), "a free lock")
        self._until(self._idle, "a broker and a worker without work")  # which may go now, and leave nothing behind


def outcome(floor, row, column):
    """What the table says of this cell; one that fails leaves an empty floor to the next one."""
    if why := row.why_not(floor.pool):
        return f"— {why}"
    cell = Cell(floor, row, column)
    try:
        runs = cell.run()
    except Exception as exc:
        floor.reset("celery", cell.queue)
        return f"**failed**: {type(exc).__name__}: {exc}".replace("\n", " ").replace("|", "/")[:300]
    return f"ok, {runs} run{'' if runs == 1 else 's'}"
