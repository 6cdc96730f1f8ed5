"""Measure what the package costs beside plain Celery, print a table, and write it to ``docs/benchmarks.md``.

    python tests/benchmarks/run.py [--rounds N] [--quick]

It starts the servers that it needs. Ratios are medians over interleaved rounds, so that they hold on a machine that does other
things as well; absolute times do not. Nothing here passes or fails: the tests assert counts only.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

from measure import BLOCK  # noqa: E402
from support.redis_server import RedisServer, server_program  # noqa: E402

PAGE = """# What it costs

Written by `make bench` (`python tests/benchmarks/run.py`; `--rounds N` for more or fewer rounds, `--quick` for a look that
writes nothing). It starts a Redis of its own on a free port, and a PostgreSQL and a MariaDB where there are programs for them.

{environment}

| what | figure | target | |
|---|---|---|---|
{rows}

A ratio is the median over {rounds} interleaved rounds, each of which measures every contender {block} times in a row; quartiles
over the rounds in parentheses. Client and server share one machine and talk over loopback: a round trip is as cheap as
it gets, and what Python does around it weighs the most.

A plain publish is `delay()` with Redis as broker and as result backend, its result let go at once. `SET NX PX` is redis-py's
`set(…, nx=True, px=…)`, on a client with redis-py's defaults. `renew` is of one lock here; a worker renews all of its locks in
one pipelined trip. A reservation is `run` around a function that does nothing: two short transactions, as the INSERT and the
UPDATE that it is compared with are in one each; PostgreSQL does not wait for the disk here. A row without a target is for
orientation.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="interleaved rounds (200)")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything; prints, and writes nothing")
    options = parser.parse_args()
    rounds = 20 if options.quick else options.rounds
    many = 20_000 if options.quick else 200_000
    server, lock_server = RedisServer().start(), RedisServer().start()
    try:
        rows = measure(server, lock_server, rounds, many)
    finally:
        server.stop()
        lock_server.stop()
    table = "\n".join(f"| {row.what} | {row.figure} | {row.target} | {MET[row.met]} |" for row in rows)
    page = PAGE.format(environment=environment(), rows=table, rounds=rounds, block=BLOCK)
    print(page)
    if not options.quick:
        (ROOT / "docs" / "benchmarks.md").write_text(page)


MET = {True: "met", False: "**not met**", None: ""}


def measure(server, lock_server, rounds, many):
    os.environ["BENCH_REDIS"] = server.url("")[:-1]
    import publishing
    import reserving
    import store
    import working
    from bench_app import app, plain, unique

    from celery_once_more.runtime import runtime

    def locks_on(which):
        app.conf.once_more_redis_url = which.url(2)
        vars(app).pop("_once_more_runtime", None)
        return runtime(app).store

    together = locks_on(server)
    rows = publishing.timed(server, unique, plain, rounds)
    rows += store.timed(server, together, rounds)
    apart = locks_on(lock_server)
    os.environ["BENCH_LOCKS"] = lock_server.url("")[:-1]
    rows += publishing.counted(server, lock_server, unique, plain)
    rows += working.throughput(server, lock_server, app, (unique, plain), rounds=max(3, rounds // 40), n=1000)
    rows += store.memory(lock_server, many)
    rows += store.reaping(lock_server, apart, 5 * many, 1000)
    rows += working.imports(max(5, rounds // 20))
    with tempfile.TemporaryDirectory(prefix="once-more-bench-") as folder:
        rows += reserving.reservations(folder, max(10, rounds // 4))
        rows += reserving.crash_points(folder, max(3, rounds // 20))
    return rows


def environment():
    program = subprocess.run([server_program(), "--version"], capture_output=True, text=True, check=True).stdout
    packages = ", ".join(f"{name} {version(name)}" for name in ("celery", "kombu", "redis"))
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return (f"Commit {commit()}, {when}. Python {platform.python_version()}, {packages}, "
            f"server {program.split('v=')[-1].split()[0]}; {os.cpu_count()} cores, {platform.machine()}.")  # fmt: skip


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "celery_once_more")
    return f"`{git('rev-parse', '--short', 'HEAD')}`" + " with changes" * bool(changed)


if __name__ == "__main__":
    main()
