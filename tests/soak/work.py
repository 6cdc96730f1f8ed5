"""What the soak publishes, drawn from the seed: calls of 200 digests, a few of them much asked for, many sent twice in a row,
and many once more when their sender has grown nervous, a few seconds later."""

import heapq
import random
from typing import NamedTuple

#: times the number of tasks: the digests
KEYS = 50
#: of these most duplicates are made
POPULAR = 6
#: how a call wants to end, and how often
ENDS = {"succeed": 6, "fail": 1, "retry": 2, "replace": 1}
#: calls after which one is sent once more
NERVOUS_AFTER = (24, 60)


class Call(NamedTuple):
    id: str
    #: which task, and its arguments
    task: int
    key: int
    seconds: float
    end: str
    #: seconds after its publish
    countdown: float


def calls(seed, tasks, ends=tuple(ENDS)):
    """Without end; ``ends``: of these only."""
    draw, n, again = random.Random(f"work {seed}"), 0, []
    while True:
        if again and again[0][0] <= n:
            _, task, key = heapq.heappop(again)
        else:
            task = draw.randrange(tasks)
            key = draw.randrange(POPULAR if draw.random() < 0.4 else KEYS)
            if draw.random() < 0.4:
                heapq.heappush(again, (n + draw.randint(*NERVOUS_AFTER), task, key))
        for _ in range(draw.choice((1, 1, 2))):
            n += 1
            seconds = round(2 * draw.random() ** 2, 2)
            end = draw.choices(ends, [ENDS[end] for end in ends])[0]
            countdown = draw.choice((0, 0, 0, 0.5, 2))
            yield Call(f"c{n}", task, key, seconds, end, countdown)
