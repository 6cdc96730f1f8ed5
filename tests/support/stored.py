"""Everything that is ever stored as the result of a task id: the Redis backend publishes each value that it sets."""

import json


class Stored:
    def __init__(self, client):
        self.client = client  # a client that is collected closes what it opened
        self.listener = client.pubsub(ignore_subscribe_messages=True)
        self.listener.psubscribe("celery-task-meta-*")
        self.listener.get_message(timeout=5)  # the subscription itself
        self._seen = {}

    def history(self, task_id):
        """What was stored under this id until now, oldest first: ``(status, result)``."""
        while (message := self.listener.get_message(timeout=0.05)) is not None:
            meta = json.loads(message["data"])
            self._seen.setdefault(meta["task_id"], []).append((meta["status"], meta["result"]))
        return self._seen.get(task_id, [])

    def close(self):
        self.listener.close()
