"""What happens to a message on its way, and to the connection that it comes through."""

from kombu import Connection, Queue
from support.waiting import eventually

from celery_once_more.reaper import reap
from matrix.row import AT_ONCE


def cut(cell):
    """While it runs. The worker connects again; but with greenlets it may never again hear a remote command, and with threads not
    read on, so that another one takes its place.
    """
    cell.floor.broker_proxy.cut()
    if cell.floor.pool in ("prefork", "threads"):  # solo hears of nothing before its run has ended
        where = [cell.floor.hostname()]
        eventually(lambda: cell.floor.app.control.ping(destination=where, timeout=1), what="the worker's return")
    cell.ended()
    if cell.floor.pool in ("gevent", "threads"):
        eventually(lambda: cell.state() == "SUCCESS" and not cell.holding(), what="the end of the run")
        cell.new_worker()


def deliver(cell):
    """Let the worker have what waits."""
    cell.deliver()


def spoil(cell):
    """Break the body of the message that waits, and no header of it; then let the worker have it."""
    with Connection(cell.floor.app.conf.broker_url) as connection:
        channel = connection.default_channel
        message = eventually(lambda: Queue(cell.queue, channel=channel).get(), what="the message")
        properties = {name: message.properties[name] for name in ("correlation_id", "reply_to") if name in message.properties}
        with connection.Producer() as producer:
            producer.publish("{no JSON", content_type=message.content_type, content_encoding="utf-8", headers=message.headers,
                             routing_key=cell.queue, **properties)  # fmt: skip
        message.ack()
    cell.deliver()


def purge(cell):
    """Nobody sees it; where the row says that its lock is free at once, the reaper does."""
    assert cell.floor.purge(cell.queue) == 1
    cell.deliver()
    if cell.expect.free == AT_ONCE and cell.column.at_publish:
        eventually(lambda: reap(cell.floor.app).orphaned, within=60, what="an orphan")
