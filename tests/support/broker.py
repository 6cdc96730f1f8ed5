"""What stands in the broker, seen through plain redis-py: a queue is a list, what a worker holds is in ``unacked``."""

import base64
import json
import time
import uuid

#: polls, 20 ms apart, in which a broker must be empty before it counts as quiet: a worker that has just popped a message
#: needs a moment until it has noted it
QUIET_POLLS = 10


class Broker:
    def __init__(self, client):
        self.client = client

    def waiting(self, queue="celery"):
        """The messages in a queue, of each of kombu's priority steps the next one first, as dictionaries."""
        lists = [queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9))]
        return [json.loads(raw) for name in lists for raw in reversed(self.client.lrange(name, 0, -1))]

    def unacknowledged(self):
        return [json.loads(raw)[0] for raw in self.client.hvals("unacked")]

    def find(self, task_id, **headers):
        """The message of a task id, in a queue or in a worker's hands; ``None`` where there is none."""
        for message in self.waiting() + self.unacknowledged():
            if message["headers"]["id"] == task_id and all(message["headers"].get(k) == v for k, v in headers.items()):
                return message
        return None

    def empty(self):
        return not self.waiting() and not self.client.hlen("unacked")

    def quiet(self):
        """Nothing is in a queue or in a worker's hands, and nothing comes back: whatever has not run now never will."""
        for _ in range(QUIET_POLLS):
            if not self.empty():
                return False
            time.sleep(0.02)
        return True

    def deliver_again(self, message):
        """Put a copy of a message in its queue as kombu does when a visibility timeout has passed."""
        copy = json.loads(json.dumps(message))
        copy["headers"]["redelivered"] = True
        copy["properties"]["delivery_info"]["redelivered"] = True
        self.send(copy)

    def send(self, message, queue="celery"):
        message["properties"]["delivery_tag"] = str(uuid.uuid4())
        self.client.rpush(queue, json.dumps(message))

    def forget_sweep(self):
        """A worker that is killed in its sweep of unacknowledged messages leaves kombu's mutex for five minutes."""
        self.client.delete("unacked_mutex")


def body(message):
    """``(args, kwargs, embed)``"""
    return json.loads(base64.b64decode(message["body"]))
