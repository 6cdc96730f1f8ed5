"""A Redis of the tests' own: the one that the package gives to its users' tests."""

from celery_once_more.testing.redis_server import ADVICE, RedisServer, free_port, server_program

__all__ = ["ADVICE", "RedisServer", "free_port", "server_program"]
