"""The demo: duplicates and a crash, with a real worker, beside the same on plain Celery. `make demo` runs it.

Every figure of its table was written to a ledger by the tasks themselves and by those who called them.
"""

import logging
import math
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from services import Trouble, Worker, a_redis, interrupted, obey_interrupts, wait_for

from celery_once_more.testing.redis_server import NoRedis

PAYLOAD, RESENT = {"amount": 5}, {"amount": 5, "resent": True}


def main():
    obey_interrupts()
    try:
        with tempfile.TemporaryDirectory(prefix="once-more-demo-") as folder:
            return run(Path(folder))
    except KeyboardInterrupt:
        interrupted()
        print("\nInterrupted. The worker and the Redis of the demo are ended, its files are removed.", file=sys.stderr)
        return 130


def run(folder):
    """Everything with its temporary files in this folder; the exit status."""
    log, prefix = folder / "demo.log", f"once-more-demo-{secrets.token_hex(4)}:"
    logging.basicConfig(filename=log, level=logging.INFO)
    worker = Worker(log, processes=8)
    try:
        with a_redis(folder, prefix) as (url, words), worker:
            os.environ.update(SHOP_REDIS=url, SHOP_PREFIX=prefix, SHOP_LEDGER=str(folder / "ledger.sqlite"))
            return story(worker, words)
    except Exception as exc:
        print(f"\n{exc if isinstance(exc, (Trouble, NoRedis)) else repr(exc)}", file=sys.stderr)
        if worker.starts:
            print(f"\nThe end of the log:\n{worker.log_tail()}", file=sys.stderr)
        return 1


def story(worker, redis_words):
    import shop  # not before it is known where its Redis is

    say("A payment provider tells a shop about each payment, more than once. Here are a real Celery worker (prefork),")
    say(f"{redis_words}, and a ledger to which the tasks themselves write.")
    worker.start()
    one_webhook_five_times(shop)
    once_more_when_it_is_done(shop)
    killed_in_mid_run(shop, worker)
    nothing_is_left(shop)
    return verdict(shop)


def one_webhook_five_times(shop):
    say('\n1. The provider sends "evt_1 settled" five times within a moment.')
    for payload in (PAYLOAD, *[RESENT] * 4):
        tell(shop, "unique", "evt_1", payload)
        tell(shop, "plain", "evt_1", payload)
    wait_until_settled(shop, "unique", "evt_1", 1)
    wait_until_settled(shop, "plain", "evt_1", 5)


def once_more_when_it_is_done(shop):
    say("\n2. That is done, and the provider sends it once more. It is let in, since it is not on its way any more.")
    shop.ledger.write("demo", "evt_1", "done")
    # the lock is lifted a moment after the task has ended: send it until then
    wait_for(lambda: let_in(tell(shop, "unique", "evt_1", RESENT)), "evt_1 to be let in")
    wait_until_settled(shop, "unique", "evt_1", 2)


def killed_in_mid_run(shop, worker):
    say('\n3. While "evt_2" and "evt_3" are being settled, SIGKILL ends the worker and all its processes.')
    payments = [("unique", "evt_2"), ("plain", "evt_2"), ("early", "evt_3")]
    for payment in payments:
        tell(shop, *payment, PAYLOAD)
    wait_for(lambda: all(shop.ledger.read(*payment, "begun") for payment in payments), "three payments to be begun")
    worker.kill()
    shop.ledger.write("demo", "worker", "killed")
    if any(shop.ledger.read(*payment, "settled") for payment in payments):
        raise Trouble("The worker was done before it could be killed, so nothing is shown. Run the demo again.")
    say('   The provider had no answer, and sends "evt_2" twice more. The message that the worker had comes back by itself.')
    for _ in range(2):
        tell(shop, "unique", "evt_2", RESENT)
        tell(shop, "plain", "evt_2", RESENT)
    say('   The message of "evt_3" was acknowledged early and died with the worker. Its lock ends with its lease.')
    wait_for(lambda: let_in(tell(shop, "early", "evt_3", RESENT)), "the lock of evt_3 to be free")
    worker.start()
    wait_until_settled(shop, "unique", "evt_2", 1)
    wait_until_settled(shop, "plain", "evt_2", 3)


def wait_until_settled(shop, who, event, times):
    wait_for(lambda: len(shop.ledger.read(who, event, "settled")) >= times, f"{event} to be settled ({who})", within=60)


def tell(shop, who, event, payload):
    """One webhook: publish, and write down how it was answered, at the time it was asked."""
    at = time.time()
    call = shop.TASKS[who].delay(event, payload)
    shop.ledger.write(who, event, "refused" if refused(call) else "let in", call.id, at)
    return call


def refused(call):
    return getattr(call, "duplicate", False)


def let_in(call):
    """The call, or, after a short pause, nothing."""
    if not refused(call):
        return call
    time.sleep(0.1)
    return None


def nothing_is_left(shop):
    """Wait until the broker has no message of ours, neither queued nor with a worker: nothing can run any more."""
    with shop.app.connection_for_read() as connection:
        broker = connection.default_channel.client
        empty_since = None

        def quiet():
            nonlocal empty_since
            if broker.llen("celery") or broker.hlen("unacked"):
                empty_since = None
                return False
            empty_since = empty_since or time.monotonic()
            return time.monotonic() - empty_since > 1  # a message on its way from one to the other is in neither

        wait_for(quiet, "the last message to be worked on", within=60)


# --- what the ledger says


class Line(NamedTuple):
    text: str
    #: ``None``: plain Celery has nothing to say here
    plain: int | None
    unique: int
    promised: int


def read(ledger):
    """The table, and the sentences of what is wrong beyond its figures."""
    first_time_done = ledger.read("demo", "evt_1", "done")[0].at
    killed = ledger.read("demo", "worker", "killed")[0].at

    def settled(who, event, until=math.inf):
        return sum(row.at < until for row in ledger.read(who, event, "settled"))

    def begun(who, event):
        return len(ledger.read(who, event, "begun"))

    def told_its_id(event, until=math.inf):
        run = ledger.read("unique", event, "begun")[0].task_id
        return sum(row.task_id == run and row.at < until for row in ledger.read("unique", event, "refused"))

    until = first_time_done
    table = [
        Line(
            "1  one webhook, five times: payment settled", settled("plain", "evt_1", until), settled("unique", "evt_1", until), 1
        ),
        Line("   callers told the id of the run on its way", None, told_its_id("evt_1", until), 4),
        Line("2  once more, when that is done: settled again", None, settled("unique", "evt_1") - 1, 1),
        Line("3  worker killed, webhook twice more: runs begun", begun("plain", "evt_2"), begun("unique", "evt_2"), 2),
        Line("   payment settled", settled("plain", "evt_2"), settled("unique", "evt_2"), 1),
        Line("   callers told the id of the run on its way", None, told_its_id("evt_2"), 2),
        Line("   message lost with the worker, webhook once more: settled", None, settled("early", "evt_3"), 1),
    ]
    wrong = []
    if len({row.task_id for row in ledger.read("unique", "evt_2", "begun")}) != 1:
        wrong.append("the second run of evt_2 was not the redelivery of the first one's message")
    held_s = max((row.at - killed for row in ledger.read("early", "evt_3", "refused")), default=0.0)
    return table, held_s, wrong


def verdict(shop):
    """Draw the table, and say whether it is as promised; the exit status of the demo."""
    table, held_s, wrong = read(shop.ledger)
    say(f"\nWhat the ledger says:{'plain Celery':>54}{'unique':>9}")
    for line in table:
        say(f"{line.text:<63}{'-' if line.plain is None else line.plain:>12}{line.unique:>9}")
    say(f"The lock of the lost message was seen held until {held_s:.1f} s after the kill; its lease is {shop.LEASE} s.")
    wrong += [f"{line.text.strip()}: {line.unique}, not {line.promised}" for line in table if line.unique != line.promised]
    if held_s > shop.LEASE:
        wrong.append("the lock of a dead worker outlived its lease")
    if wrong:
        raise Trouble("Not as promised:\n" + "\n".join(f"  - {sentence}" for sentence in wrong))
    if any(line.plain is not None and line.plain <= line.unique for line in table):
        say("\nInconclusive: plain Celery did no worse this time, so nothing is shown. Run it again.")
        return 2
    say("\nAll as promised.")
    return 0


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
