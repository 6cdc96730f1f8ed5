"""One delivery of a message, without a broker: Celery's own tracer runs it in this process, as a worker's child does."""

from celery import states
from celery.app.trace import build_tracer


def deliver(task, *args, task_id="some id", **request):
    """The state that it ends in."""
    delivery = {"exchange": "", "routing_key": "celery", "redelivered": False}
    request = {"id": task_id, "task": task.name, "retries": 0, "delivery_info": delivery, "hostname": "h", **request}
    told = build_tracer(task.name, task, app=task.app)(task_id, list(args), {}, request)
    return told.info.state if told.info else states.SUCCESS
