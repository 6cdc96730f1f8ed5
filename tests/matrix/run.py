"""Run every cell of the matrix, and write what they said to ``docs/matrix.md``.

    python tests/matrix/run.py [--jobs N] [--also PYTHON] [--only ROW] [--dry]

It starts a Redis of its own for each of its jobs, and uses a virtual host of its own on RabbitMQ. ``--also`` names an interpreter
with another version of Celery, for the same cells once more. It fails where a cell fails, and writes the page all the same.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
sys.path.remove(str(HERE))  # its signals are not the standard library's

from matrix import page  # noqa: E402
from matrix.cell import outcome  # noqa: E402
from matrix.columns import COLUMNS, Column  # noqa: E402
from matrix.floor import Floor  # noqa: E402
from matrix.rows import ROWS  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=4, help="cells at once (4); they wait most of the time")
    parser.add_argument("--also", action="append", default=[], metavar="PYTHON", help="one more interpreter")
    parser.add_argument("--only", action="append", metavar="ROW", help="this row alone; prints, and writes nothing")
    parser.add_argument("--dry", action="store_true", help="print the page, and write nothing")
    parser.add_argument("--slice", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    if options.slice:
        return run_slice(*options.slice, rows)
    results, versions = run_all([sys.executable, *options.also], options.jobs, options.only or [])
    text = page.page(results, environment(versions), versions)
    if options.dry or options.only:
        say(text)
    else:
        (ROOT / "docs" / "matrix.md").write_text(text)
    failed = [where for where, said in results.items() if not said.startswith(("ok", "—"))]
    say(f"{len(results)} cells, {len(failed)} failed")
    return bool(failed)


def run_all(pythons, jobs, only):
    """One job for each column, pool, broker and interpreter."""
    slices = [
        (python, broker, pool, column)
        for python in pythons
        for broker in page.BROKERS
        for pool, columns in [(page.PREFORK, COLUMNS), *((pool, page.OTHER_COLUMNS) for pool in page.OTHER_POOLS)]
        for column in columns
    ]
    results, versions = {}, {}

    def run(python, broker, pool, column):
        command = [python, __file__, "--slice", broker, pool, *column, *(f"--only={name}" for name in only)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            for line in process.stdout:
                name, said, celery = json.loads(line)
                versions.setdefault(python, celery)
                results[celery, broker, pool, column, name] = said
                say(f"{celery} | {broker} | {pool} | {column} | {name} | {said}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda one: run(*one), slices))
    return results, [versions[python] for python in pythons if python in versions]


def run_slice(broker, pool, lock, ack, rows):
    logging.disable(logging.CRITICAL)
    floor = Floor(broker, pool)
    try:
        for row in rows:
            say(json.dumps([row.name, outcome(floor, row, Column(lock, ack)), version("celery")]))
    finally:
        floor.close()


def environment(versions):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain", "--", "celery_once_more"], cwd=ROOT, capture_output=True, text=True)
    commit = f"`{commit}`{' and changes' if changed.stdout.strip() else ''}"
    packages = ", ".join(f"{name} {version(name)}" for name in ("kombu", "redis"))
    return (f"Commit {commit}, {datetime.now(timezone.utc):%Y-%m-%d}. Celery {' and '.join(versions)}; {packages}, "
            f"Python {sys.version.split()[0]}.")  # fmt: skip


def say(line):
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
