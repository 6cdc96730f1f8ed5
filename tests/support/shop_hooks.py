"""What a test can ask of one worker of ``shop_gated`` through its environment; without any of it nothing is changed.

``SHOP_KILLS=1``: it dies where ``kills.py`` is armed. ``SHOP_MUTANT=name``: without one rule (``mutants.py``).
``SHOP_WITHOUT=signal``: without the package's receiver of that signal. ``SHOP_SIGNALS=tell``: the package's own signals go to
the witness; ``SHOP_SIGNALS=raise``: there, and then every receiver raises. ``SHOP_SLOW_BEAT=1``: each beat of the keeper imports
a module that takes its time, as a first import or the resolution of a name may. ``SHOP_REFUSE=1``: its publishes fail for as
long as the witness has the key ``broker takes nothing``; it can still read, acknowledge and give back.
"""

import importlib
import os
import sys
from functools import partial

from celery import signals as celery_signals
from kombu.transport.redis import Channel

from celery_once_more import signals
from celery_once_more.keeper import Keeper
from support import kills, mutants


def install(app, witness, gates):
    celery_signals.task_postrun.connect(partial(_wait_after_retry, witness, gates), weak=False)
    if os.environ.get("SHOP_KILLS"):
        kills.Kills(witness).install()
    if os.environ.get("SHOP_MUTANT"):
        mutants.install(os.environ["SHOP_MUTANT"], witness)
    if os.environ.get("SHOP_WITHOUT"):
        celery_signals.worker_process_init.connect(partial(_disconnect, witness), weak=False)
    if os.environ.get("SHOP_SLOW_BEAT"):
        _slow_down_beats(witness)
    if os.environ.get("SHOP_REFUSE"):
        _refuse_publishes(witness)
    if os.environ.get("SHOP_SIGNALS"):
        tell_all(witness, raising=os.environ["SHOP_SIGNALS"] == "raise")


def _wait_after_retry(witness, gates, task, args, state, **_):
    """An attempt of which a test says so has sent its retry, and is not over: the package's receiver comes after this one."""
    if state == "RETRY" and witness.redis.sismember("slow-postrun", str(args[0])):
        names = [getattr(receiver, "__module__", "") for _, receiver in celery_signals.task_postrun.receivers]
        assert names[-1] == "celery_once_more.end", names
        witness.say("postrun", args[0])
        gates.wait(f"{args[0]}:postrun")
        witness.say("postrun-ends", args[0])


def _disconnect(witness, **_):
    name = os.environ["SHOP_WITHOUT"]
    gone = getattr(celery_signals, name).disconnect(dispatch_uid=f"celery_once_more.{name}")
    witness.say("disconnected", name, gone=gone)


def _slow_down_beats(witness):
    beat = Keeper.beat

    def import_and_beat(self):
        witness.say("beat", os.getpid())
        import_slowly()
        beat(self)

    Keeper.beat = import_and_beat


def _refuse_publishes(witness):
    put = Channel._put

    def refuse_or_put(self, *args, **kwargs):
        if witness.redis.exists("broker takes nothing"):
            raise ConnectionError("the broker takes nothing")
        return put(self, *args, **kwargs)

    Channel._put = refuse_or_put


def import_slowly():
    sys.modules.pop("support.slow_import", None)
    importlib.import_module("support.slow_import")


def tell_all(witness, raising=False):
    for name in signals.__all__:
        getattr(signals, name).connect(partial(_tell, witness, name, raising), weak=False, dispatch_uid=f"tell.{name}")


def _tell(witness, name, raising, signal, sender, **what):
    witness.say("signal", sender, name=name, what={k: v if isinstance(v, (str, int)) else repr(v) for k, v in what.items()})
    if raising:
        raise RuntimeError(f"a receiver of {name} that raises")
