"""The ways in which a lock store can be away: each begins and ends when a test says so."""

import signal
from contextlib import contextmanager

from support.proxy import Proxy
from support.redis_server import RedisServer, free_port

#: seconds for which anybody here waits for an answer of the store; a redis-py of ours asks twice
TIMEOUT_S = 0.3
IMPATIENT = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
#: seconds each way, with which no answer comes in time
TOO_LATE_S = 1.0


class Store:
    """A Redis for the locks alone, behind a proxy."""

    def __init__(self):
        self.server = RedisServer().start()
        self.proxy = Proxy(self.server.port)

    @property
    def url(self):
        return self.proxy.redis(0)

    def client(self):
        """Past the proxy."""
        return self.server.client(0)

    def stop(self):
        self.proxy.close()
        self.server.stop()

    @contextmanager
    def away(self, how):
        begin, end = OUTAGES[how]
        begin(self)
        try:
            yield
        finally:
            end(self)

    def kill(self):
        self.server.kill()

    def start_empty(self):
        self.server.start()

    def pause(self):
        self.server.signal(signal.SIGSTOP)

    def go_on(self):
        self.server.signal(signal.SIGCONT)

    def be_slow(self):
        self.proxy.delay(TOO_LATE_S)

    def be_deaf(self):
        self.proxy.stall()

    def be_unreachable(self):
        self.proxy.refuse()

    def mend(self):
        self.proxy.mend()

    def be_replica(self):
        """Of a master that is not there, as after a failover that went wrong: it has its data, and takes no writes."""
        self.client().replicaof("127.0.0.1", free_port())

    def be_master(self):
        self.client().replicaof("NO", "ONE")


#: name -> how it begins, how it ends
OUTAGES = {
    "killed, and empty when it is back": (Store.kill, Store.start_empty),
    "paused": (Store.pause, Store.go_on),
    "slow": (Store.be_slow, Store.mend),
    "deaf": (Store.be_deaf, Store.mend),
    "unreachable": (Store.be_unreachable, Store.mend),
    "read-only": (Store.be_replica, Store.be_master),
}
#: after these the store still has what it had
REMEMBERS = [how for how in OUTAGES if "empty" not in how]
