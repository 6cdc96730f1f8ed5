"""Promises that a worker breaks on purpose (``FLOOR_MUTANT``): a cell must find out."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from celery_once_more.locks.redis import RedisStore
from matrix.columns import Column


def lets_everybody_in():
    start = RedisStore.start

    def start_all(self, ticket, **rest):
        answer = start(self, ticket, **rest)
        return answer if answer.verdict == "run" else replace(answer, verdict="run", holder=None, token=1)

    RedisStore.start = start_all


def frees_nothing():
    RedisStore.finish = lambda self, ticket, **rest: "gone"


def frees_everything():
    finish = RedisStore.finish

    def finish_all(self, ticket, **rest):
        answer = finish(self, ticket, **rest)
        self.client.flushdb()
        return answer

    RedisStore.finish = finish_all


def frees_at_its_start():
    start = RedisStore.start

    def start_and_finish(self, ticket, *, run, **rest):
        answer = start(self, ticket, run=run, **rest)
        if answer.verdict == "run":
            self.finish(ticket, run=run)
        return answer

    RedisStore.start = start_and_finish


def ends_what_comes_again():
    start = RedisStore.start

    def start_or_end(self, ticket, *, redelivered, **rest):
        answer = start(self, ticket, redelivered=redelivered, **rest)
        return replace(answer, verdict="done") if redelivered else answer

    RedisStore.start = start_or_end


class Mutant(NamedTuple):
    install: Callable[[], None]
    #: what a cell must say of it
    found: str
    #: in which row, and in which column
    row: str
    column: Column


MUTANTS = {
    mutant.install.__name__: mutant
    for mutant in (
        Mutant(
            lets_everybody_in,
            "ran beside itself",
            "success",
            Column("while_executing", "late"),
        ),
        Mutant(frees_nothing, "a lock that is free at once did not come true", "success", Column("until_executed", "late")),
        Mutant(frees_everything, "something else was freed", "success", Column("until_executed", "late")),
        Mutant(frees_at_its_start, "a caller was told wrong", "success", Column("until_executed", "late")),
        Mutant(ends_what_comes_again, "did not come true", "SIGKILL of the child", Column("until_executed", "late")),
    )
}
