"""A module of tasks for as long as a test module's own worker lives."""

from support import results


def shop_for_a_module(shop, redis_server):
    """``yield from`` it in a fixture: ``shop`` on an empty Redis, and everything forgotten at the end."""
    redis_server.client(0).flushall()
    vars(shop.app).pop("_once_more_runtime", None)
    yield shop
    vars(shop.app).pop("_once_more_runtime", None)
    results.forget()
    redis_server.client(0).flushall()
