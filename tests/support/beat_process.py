"""``celery beat`` as a process of its own."""

import subprocess
import sys


class BeatProcess:
    def __init__(self, folder, app="shop", env=None):
        self.log_path = folder / "beat.log"
        command = [sys.executable, "-m", "celery", "-A", app, "beat", "-l", "INFO", "-s", str(folder / "schedule"), "--pidfile="]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)

    def logs(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        self.process.kill()
        self.process.wait()
