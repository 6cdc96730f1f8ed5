"""What README.md shows is run, and what the code has is written down."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support.waiting import eventually
from support.worker_process import WorkerProcess

import celery_once_more
from celery_once_more import checks, exceptions, options, settings, signals
from celery_once_more.lock_types import LOCK_TYPES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = README + "".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
REDIS = "redis://localhost:6379"
DJANGO_SETTINGS = 'DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}'


def python_blocks():
    return re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def table_under(heading):
    """The body rows of the first table under a heading, as lists of cells."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


@pytest.fixture
def project(tmp_path, clean_redis):
    """A folder with the module ``shop`` that README.md builds up, and the other blocks in one script."""
    blocks = [block.replace(REDIS, f"redis://127.0.0.1:{clean_redis.port}") for block in python_blocks()]
    modules = [block for block in blocks if block.startswith("# shop.py")]
    scripts = [block for block in blocks if not block.startswith("# shop.py")]
    (tmp_path / "shop.py").write_text("\n\n".join(modules))
    (tmp_path / "script.py").write_text("".join(f"{block}\nprint('block {i}')\n" for i, block in enumerate(scripts)))
    return tmp_path, len(modules), len(scripts)


def test_every_python_block_runs_against_a_real_worker(project):
    folder, modules, scripts = project
    assert (modules, scripts) == (6, 5)
    env = {"PYTHONPATH": str(folder)}
    (folder / "site_settings.py").write_text(DJANGO_SETTINGS)
    worker = WorkerProcess("-c", "2", app="shop", name="readme", env=env, cwd=folder)
    try:
        worker.ready()
        done = subprocess.run(
            [sys.executable, "script.py"],
            cwd=folder,
            env={**os.environ, **env, "DJANGO_SETTINGS_MODULE": "site_settings"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + worker.logs()
        assert done.stdout.split("\n")[:-1] == [f"block {i}" for i in range(scripts)]
        for result in ("'invoice of order_7'", "'order_8'"):  # of the tasks that waited for a commit
            eventually(lambda result=result: result in worker.logs(), what=f"the result {result}")
    finally:
        worker.teardown()


def test_every_option_of_a_task_has_a_row_with_its_default():
    documented = {row[0].strip("`"): ast.literal_eval(row[1].strip("`")) for row in table_under("Options of a task")}
    assert documented == options.DEFAULTS


def test_every_lock_has_a_row_with_its_default_strategies():
    rows = {row[0].strip("`"): row[-1] for row in table_under("The locks")}
    assert list(rows) == list(LOCK_TYPES)
    for name, lock in LOCK_TYPES.items():
        client, server = checks.strategies("", None, lock)
        assert rows[name] == (f"`{client}`, `{server}`" if lock.at_publish else f"none, `{server}`")


def test_every_strategy_has_a_row():
    assert [row[0].split("`")[1].strip('"') for row in table_under("What a duplicate is, and what becomes of it")] == list(
        checks.STRATEGIES
    )


def test_every_setting_has_a_row_with_its_default():
    documented = {row[0]: ast.literal_eval(row[1].strip("`")) for row in table_under("Settings")}
    default = settings.Settings()
    assert documented == {f"`once_more_{f.name}`": getattr(default, f.name) for f in fields(settings.Settings)}


def test_every_signal_has_a_row():
    assert sorted(row[0].strip("`") for row in table_under("Signals and log lines")) == sorted(signals.__all__)


def test_every_error_has_a_row():
    public = [name for name in vars(exceptions) if not name.startswith("_") and name in celery_once_more.__all__]
    assert {row[0].strip("`") for row in table_under("Errors")} == {*public} - {"OnceMoreError"}
    assert "`OnceMoreError`" in README


@pytest.mark.parametrize("name", celery_once_more.__all__)
def test_every_public_name_is_written_down(name):
    assert re.search(rf"`(celery_once_more\.)?{name}\b", DOCS)


def test_every_attribute_of_current_lock_has_a_row():
    public = {name for name in vars(type(celery_once_more.current_lock)) if not name.startswith("_")}
    assert {row[0].strip("`").removeprefix("current_lock.").removesuffix("()") for row in table_under("Inside a task")} == public


def test_every_way_to_lose_a_lock_has_a_row():
    assert [row[0] for row in table_under("What happens to the lock")] == [f"L{i}" for i in range(1, 21)]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_leads_to_a_file(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page):
    named = {target for line in re.findall(r"^ +make ([a-z ]+?)(?:  |$| TESTS)", (ROOT / page).read_text(), re.MULTILINE)
             for target in line.split()}  # fmt: skip
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets
