"""Tasks of two locks for every way to publish one, for ``celery -A shop_paths``; each run stands at the gate of its key."""

from celery import Task, shared_task
from shop import app, witness
from support.gates import Gates

from celery_once_more import UniqueTask, current_lock

gates = Gates(witness.redis)
LOCKS = {
    "until": {"lock": "until_executed"},
    "while": {"lock": "while_executing", "reschedule_countdown": 0.2},
}
COMMON = {"bind": True, "base": UniqueTask, "acks_late": True}


def _run(self, key):
    n = witness.redis.incr(f"runs:{key}")
    ticket = bool(self.request.get("once_more"))
    with witness.run(key, n=n, ticket=ticket, token=current_lock.fencing_token, task_id=self.request.id):
        gates.wait(f"{key}:{n}")
    return n


def called(self, key):
    _run(self, key)
    return key


def retried(self, key):
    if _run(self, key) == 1:
        raise self.retry(countdown=0)
    return key


def autoretried(self, key):
    if _run(self, key) == 1:
        raise ConnectionError(key)
    return key


def replaced(self, key):
    if _run(self, key) == 1:
        raise self.replace(self.si(key))
    return key


def annotated(self, key):
    return called(self, key)


def shared(self, key):
    return called(self, key)


vars(app).pop("annotations", None)  # of an app that was used before this module was imported
app.conf.task_annotations = {f"paths.annotated.{lock}": options for lock, options in LOCKS.items()}
for lock, options in LOCKS.items():
    for function in (called, retried, replaced):
        app.task(name=f"paths.{function.__name__}.{lock}", shared=False, **COMMON, **options)(function)
    app.task(name=f"paths.autoretried.{lock}", autoretry_for=(ConnectionError,), retry_kwargs={"countdown": 0}, shared=False,
             **COMMON, **options)(autoretried)  # fmt: skip
    app.task(name=f"paths.annotated.{lock}", shared=False, **COMMON)(annotated)
    shared_task(name=f"paths.shared.{lock}", **COMMON, **options)(shared)


@app.task(base=Task, name="paths.step")
def step(key):
    return key


@app.task(base=Task, name="paths.fails")
def fails(key):
    raise ValueError(key)


app.finalize()
