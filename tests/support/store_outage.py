"""One outage of the lock store, with a call in each of the moments at which a call asks the store."""

from concurrent.futures import ThreadPoolExecutor

from celery_once_more.reaper import reap
from celery_once_more.runtime import runtime
from support import held
from support.waiting import eventually

#: seconds; far more than two attempts with the timeouts of these tests take
SOON = 30

#: the task of the call in each moment
RUNS = {"end": "gated", "early end": "gated_early", "renewal": "gated", "early renewal": "gated_early", "retry": "retries"}
STARTS = {"start": "gated", "early start": "gated_early", "start that proceeds": "proceeds"}
PUBLISHES = {"publish": "gated", "publish that proceeds": "proceeds"}
TASKS = RUNS | STARTS | PUBLISHES


class StoreOutage:
    """What was seen of it: every call, and what its publisher was told."""

    def __init__(self, floor, store, worker, how):
        self.floor, self.store, self.worker, self.how = floor, store, worker, how
        self.calls, self.error = {}, None
        self.ran_meanwhile, self.message_meanwhile = {}, None

    def key(self, moment):
        return f"{moment}, {self.how}"

    def task(self, moment):
        return getattr(self.floor.shop, TASKS[moment])

    def publish(self, moment, **options):
        return self.task(moment).apply_async((self.key(moment),), **options)

    def runs(self, moment):
        return self.floor.runs(self.key(moment))

    def open(self, *moments):
        self.floor.gates.open(*(f"{self.key(moment)}:{n}" for moment in moments for n in (1, 2)))

    def play(self):
        self._before()
        with self.store.away(self.how):
            self._meanwhile()
        self._afterwards()
        return self

    def _before(self):
        """What runs stands at its gate, and has been renewed; what is to start waits in a queue that nobody reads yet."""
        for moment in RUNS:
            self.calls[moment] = self.publish(moment)
        for moment in RUNS:
            self.floor.running(self.key(moment))
            task, key = self.task(moment), self.key(moment)
            until = held.holder(task, key).until
            eventually(lambda task=task, key=key, until=until: held.holder(task, key).until > until, what="a renewal")
        for moment in STARTS:
            self.calls[moment] = self.publish(moment, queue=self.how)
        pool = runtime(self.floor.shop.app).store.client.connection_pool
        for connection in [pool.get_connection() for _ in PUBLISHES]:
            pool.release(connection)

    def _meanwhile(self):
        not_renewed = self.worker.logs().count("leases are not renewed now")
        with ThreadPoolExecutor(2) as both:  # each has a connection that was open before
            raises, proceeds = (both.submit(self.publish, moment) for moment in PUBLISHES)
            self.error = raises.exception(timeout=SOON)
            self.calls["publish that proceeds"] = proceeds.result(timeout=SOON)
        self.message_meanwhile = [m for m in self.floor.broker.waiting() if self.key("publish") in m["headers"]["argsrepr"]]
        self.open("end", "early end", "retry")
        self.floor.shop.app.control.add_consumer(self.how, destination=[f"{self.worker.name}@h"], reply=True, timeout=30)
        for moment in ("end", "early end"):
            self._unanswered(moment, "finish")
        self._unanswered("retry", "requeue")
        for moment in STARTS:
            self._unanswered(moment, "start")
        for moment in ("start that proceeds", "publish that proceeds"):
            self.floor.running(self.key(moment))
        eventually(lambda: self.worker.logs().count("leases are not renewed now") > not_renewed + 1, what="two beats in vain")
        self.ran_meanwhile = {moment: self.runs(moment) for moment in TASKS}

    def _unanswered(self, moment, act):
        task_id = self.calls[moment].id
        eventually(
            lambda: self.floor.told("store_unavailable", task_id=task_id, act=act), what=f"the store asked in vain: {moment}"
        )

    def _afterwards(self):
        """A twin of each run that goes on is published when its keeper has spoken with the store again; then all may end."""
        self.twins = {}
        for moment in ("renewal", "early renewal"):
            task, key = self.task(moment), self.key(moment)
            eventually(lambda task=task, key=key: (now := held.holder(task, key)) and now.phase == "R", what="the lock")
            self.twins[moment] = self.publish(moment)
        self.open(*(moment for moment in TASKS if moment != "publish"))
        for moment in set(TASKS) - {"publish"}:
            eventually(self.calls[moment].ready, within=60, what=f"the result: {moment}")
        self.floor.settled()

    def left(self):
        """Who still has a lock, once the reaper has looked at everything: by the moment of the call, as far as there was one."""
        reap(self.floor.shop.app)
        moments = {call.id: moment for moment, call in self.calls.items()}
        return [(moments.get(one.task_id, one.task_id), one.phase) for one in held.everyone(self.floor.shop.app)]
