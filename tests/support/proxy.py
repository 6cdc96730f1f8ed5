"""A TCP proxy on loopback between a client and a server of the tests: it delays, cuts, refuses, and goes deaf, as a network may.

Everything it is told holds for connections that are open already as well, and it can be told anything at any time.
"""

import socket
import struct
import threading
import time

#: close by a reset, and not by a polite end
RESET = struct.pack("ii", 1, 0)


class Proxy:
    def __init__(self, port, host="127.0.0.1"):
        self.server = (host, port)
        #: seconds by which each direction is late
        self.delay_s = 0.0
        self._loses = False
        self._passes = threading.Event()
        self._passes.set()
        self._open = {}
        self._lock = threading.Lock()
        self.port, self._listener = 0, None
        self._listen()

    def redis(self, db):
        return f"redis://127.0.0.1:{self.port}/{db}"

    @property
    def connections(self):
        """How many clients are connected."""
        return len(self._open)

    def delay(self, seconds):
        """Be late by so many seconds in each direction."""
        self.delay_s = seconds

    def stall(self):
        """Take connections and what they send, and answer nothing."""
        self._passes.clear()

    def lose_reply(self):
        """Break the connection on which the server answers next, in the place of that answer."""
        self._loses = True

    def cut(self):
        """Break every connection, in both directions. Who asks may connect again at once."""
        with self._lock:
            pairs = list(self._open.items())
        for client, server in pairs:
            self._break(client, server)

    def refuse(self):
        """Break every connection, and take no new one."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        self.cut()

    def mend(self):
        """Be as good as no proxy again."""
        self.delay_s, self._loses = 0.0, False
        self._passes.set()
        if self._listener is None:
            self._listen()

    def close(self):
        self.refuse()
        self._passes.set()

    def _listen(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
                continue
            with self._lock:
                self._open[client] = server
            if self._listener is not listener:  # refused meanwhile
                self._break(client, server)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target, client, server), daemon=True).start()

    def _pump(self, source, target, client, server):
        try:
            while data := source.recv(1 << 16):
                if self.delay_s:
                    time.sleep(self.delay_s)
                self._passes.wait()
                if self._loses and source is server:
                    self._loses = False
                    break
                target.sendall(data)
        except OSError:
            pass  # it was broken, here or there
        self._break(client, server)

    def _break(self, client, server):
        with self._lock:
            if self._open.pop(client, None) is None:
                return
        for one in (client, server):
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.shutdown(socket.SHUT_RDWR)  # wakes the other direction's thread
            except OSError:
                pass
            one.close()
