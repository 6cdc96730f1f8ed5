"""A module of tasks for as long as a test module's own worker lives."""

import importlib
import os
import sys
from contextlib import contextmanager

from support import results


def shop_for_a_module(shop, redis_server, **conf):
    """``yield from`` it in a fixture: ``shop`` on an empty Redis, with these settings; everything forgotten at the end."""
    redis_server.client(0).flushall()
    before = {name: shop.app.conf.get(name) for name in conf}
    shop.app.conf.update(conf)
    vars(shop.app).pop("_once_more_runtime", None)
    yield shop
    shop.app.conf.update(before)
    vars(shop.app).pop("_once_more_runtime", None)
    results.forget()
    redis_server.client(0).flushall()


@contextmanager
def shop_at(broker_url):
    """The module ``shop``, anew, with its broker there, for its publishers and workers; the old one is back afterwards."""
    old = sys.modules.pop("shop", None)
    os.environ["SHOP_BROKER"] = broker_url
    try:
        yield importlib.import_module("shop")
    finally:
        del os.environ["SHOP_BROKER"]
        sys.modules.pop("shop").app.close()
        if old is not None:
            sys.modules["shop"] = old
            old.app.set_current()
