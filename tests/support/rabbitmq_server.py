"""A RabbitMQ virtual host of the tests' own: on the server that answers on its usual port, else on one that is started here."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import amqp
from kombu import Connection

from support.redis_server import free_port
from support.waiting import eventually

USUAL = 5672
MANAGEMENT = 15672
#: of all the tests that share a virtual host
QUEUES = ("celery", "plain", "news", "more", "steady", "astray")
#: where Debian keeps the server's own scripts: what it puts on the PATH runs as another user
DEBIAN = Path("/usr/lib/rabbitmq/bin")


def server_program():
    for found in (DEBIAN / "rabbitmq-server", shutil.which("rabbitmq-server")):
        if found and Path(found).exists():
            return str(Path(found).resolve())
    return None


def answers(port, vhost="/"):
    connection = amqp.Connection(f"127.0.0.1:{port}", virtual_host=vhost, connect_timeout=5)
    try:
        connection.connect()
    except (OSError, amqp.AMQPError):
        return False
    connection.close()
    return True


def find():
    """A host to use, not made yet; ``None`` where there is neither a server that lets us make one, nor a program to start."""
    if answers(USUAL):
        for host in (ByCommand(), ByManagement()):
            if host.works():
                return host
    return OwnServer() if server_program() else None


class Host:
    """A virtual host with a name that nobody else has."""

    port = USUAL

    def __init__(self):
        self.name = f"once-more-{uuid.uuid4().hex[:12]}"

    @property
    def url(self):
        return f"pyamqp://guest:guest@127.0.0.1:{self.port}/{self.name}"

    def forget(self):
        """Delete the tests' queues, with what is in them, and in the hands of workers that were killed just now."""
        with Connection(self.url) as connection:
            for queue in QUEUES:
                connection.default_channel.queue_delete(queue)

    def start(self):
        self.make()
        eventually(lambda: answers(self.port, self.name), what=f"the virtual host {self.name}")
        return self


class ByCommand(Host):
    def works(self):
        return bool(shutil.which("rabbitmqctl")) and self._ctl("list_vhosts", check=False).returncode == 0

    def make(self):
        self._ctl("add_vhost", self.name)
        self._ctl("set_permissions", "-p", self.name, "guest", ".*", ".*", ".*")

    def stop(self):
        self._ctl("delete_vhost", self.name)

    def _ctl(self, *command, check=True):
        return subprocess.run(["rabbitmqctl", "--quiet", *command], check=check, capture_output=True, timeout=60)


class ByManagement(Host):
    def works(self):
        try:
            self._ask("GET", "vhosts")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def make(self):
        self._ask("PUT", f"vhosts/{self.name}")
        self._ask("PUT", f"permissions/{self.name}/guest", {"configure": ".*", "write": ".*", "read": ".*"})

    def stop(self):
        self._ask("DELETE", f"vhosts/{self.name}")

    def _ask(self, method, path, body=None):
        url = f"http://127.0.0.1:{MANAGEMENT}/api/{path}"
        request = urllib.request.Request(url, json.dumps(body or {}).encode(), method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()


class OwnServer(Host):
    """A node with a name, ports, and a folder of its own, and with its own port mapper: nothing of it is left when it stops."""

    def __init__(self):
        super().__init__()
        self.name = ""  # its first virtual host, which is called "/"
        self.port, self.processes = free_port(), []
        self.folder = Path(tempfile.mkdtemp(prefix="once-more-rabbitmq-"))

    @property
    def url(self):
        return f"pyamqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self):
        mapper = str(free_port())
        (self.folder / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "env.conf").write_text("")
        env = {
            **os.environ,
            "HOME": str(self.folder),  # where its cookie is
            "ERL_EPMD_PORT": mapper,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"once-more-{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        for command in ([_epmd(), "-port", mapper], [server_program()]):
            self.processes.append(
                subprocess.Popen(command, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
            )  # fmt: skip
        eventually(lambda: answers(self.port), within=90, what=f"rabbitmq-server on port {self.port}")
        return self

    def stop(self):
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)  # the script, and the machine that it runs
            except ProcessLookupError:
                pass
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _epmd():
    """Erlang's port mapper: on the PATH, or beside the machine that it serves."""
    root = Path(shutil.which("erl")).resolve().parent.parent
    return shutil.which("epmd") or str(next(root.glob("**/epmd")))
