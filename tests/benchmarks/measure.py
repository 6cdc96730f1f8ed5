"""Interleaved rounds: every contender in every round, so that whatever else the machine does meets all of them alike."""

import statistics
import time
from dataclasses import dataclass

#: acts of one contender in a row; small, so that a disturbance seldom meets one contender only
BLOCK = 10


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table."""

    what: str
    figure: str
    target: str = ""
    met: bool | None = None


class Rounds:
    """The median time of one act, per contender and round."""

    def __init__(self):
        self.seconds = {}

    def us(self, name):
        return statistics.median(self.seconds[name]) * 1e6

    def ratio(self, name, base):
        """Median over the rounds, and the quartiles, of one contender's time over another's in the same round."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return middle, low, high

    def row(self, what, name, base, target=None):
        middle, low, high = self.ratio(name, base)
        figure = f"{middle:.2f}x ({low:.2f} to {high:.2f}); {self.us(name):.0f} µs against {self.us(base):.0f} µs"
        if target is None:
            return Row(what=what, figure=figure)
        return Row(what=what, figure=figure, target=f"≤ {target}x", met=middle <= target)


def interleaved(contenders, *, rounds, block=BLOCK, between=lambda: None):
    """``contenders``: name -> a function that, given a number, prepares as many acts, each a callable."""
    measured, names = Rounds(), list(contenders)
    for name in names:
        measured.seconds[name] = []
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            measured.seconds[name].append(statistics.median(map(_timed, contenders[name](block))))
        between()
    return measured


def _timed(act):
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def commands(client, act):
    """What a server was asked while ``act()`` ran: command -> (calls, µs per call)."""
    client.config_resetstat()
    act()
    stats = client.info("commandstats")
    told = {name.removeprefix("cmdstat_"): (stat["calls"], stat["usec_per_call"]) for name, stat in stats.items()}
    told.pop("config|resetstat", None)
    told.pop("info", None)
    return told
