"""Effects that can be counted, and an attempt that is killed in the midst of one."""

from support.forked import Child

from celery_once_more.reservations import REFUSE

KEY = ("charge", 42)


class Refused(Exception):
    pass


class Declined(Exception):
    pass


class Effect:
    """Called, it does the effect: counts it, or raises."""

    def __init__(self, result="ch_1", error=None):
        self.result, self.error, self.seen = result, error, []

    def __call__(self, reservation):
        self.seen.append(reservation)
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def times(self):
        return len(self.seen)


def die_in_the_effect(backend, **how):
    """A process of its own claims the key and is killed before it has told anything."""

    def work(tell):
        def fn(reservation):
            tell(reservation.token)
            while True:
                pass

        return backend.again().reservations.run(KEY, fn, **{"on_unknown": REFUSE, "lease": 60, **how})

    child = Child(work)
    token = child.hear()
    child.kill()
    return token
