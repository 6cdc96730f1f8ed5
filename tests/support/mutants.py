"""Rules of the protocol, each removed in a worker (``SHOP_MUTANT=name``): the scenario that guards it must then go red.

A mutant sits on a verb of the lock store, and tells the witness whenever it made a difference.
"""

from celery_once_more.locks import Answer
from celery_once_more.locks.redis import RedisStore


def install(name, witness):
    MUTANTS[name](lambda: witness.say("mutant", name))


def release_on_retry(hit):
    """The lock is freed when a run ends as RETRY."""
    confirm = RedisStore.confirm

    def confirm_and_release(self, ticket, *, hop, wait_ms):
        confirm(self, ticket, hop=hop, wait_ms=wait_ms)
        if self.release(ticket.at_hop(hop)):
            hit()

    RedisStore.confirm = confirm_and_release


def no_requeue(hit):
    """A retry is published while the lock still says that the old run is on."""

    def kept(self, ticket, **_):
        hit()
        return True

    RedisStore.requeue = kept


def no_confirm(hit):
    """The message before a retry stays as good as the retry."""

    def nothing(self, ticket, **_):
        hit()

    RedisStore.confirm = nothing


def done_too_early(hit):
    """A run is remembered as done when it starts."""
    start = RedisStore.start

    def start_and_finish(self, ticket, *, run, **rest):
        answer = start(self, ticket, run=run, **rest)
        if answer.verdict == "run" and self.finish(ticket, run=run) == "freed":
            hit()
        return answer

    RedisStore.start = start_and_finish


def busy_ends_the_delivery(hit):
    """A copy of a message whose run lives is acknowledged, instead of being put off."""
    start = RedisStore.start

    def start_or_end(self, ticket, **rest):
        answer = start(self, ticket, **rest)
        if answer.verdict != "busy":
            return answer
        hit()
        return Answer(verdict="done")

    RedisStore.start = start_or_end


MUTANTS = {f.__name__: f for f in (release_on_retry, no_requeue, no_confirm, done_too_early, busy_ends_the_delivery)}
