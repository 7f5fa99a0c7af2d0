"""A server as the tests and figures want one: started on a free port, waited for until /health says yes, its words kept, ended."""
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LiveServer:
    """with LiveServer([ridge, "serve", model]) as server: server.url answers. Without `with`: wait() when it is wanted, end() at the end."""

    def __init__(self, command, environment=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*map(str, command), "--port", str(self.port)], stdout=self.log, stderr=subprocess.STDOUT, env=environment)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-4000:]

    def healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def wait(self, seconds=300):
        end = time.monotonic() + seconds
        while not self.healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args[0]} ended with {self.process.returncode}:\n{self.said()}")
            if time.monotonic() > end:
                raise RuntimeError(f"{self.process.args[0]} is not ready after {seconds} seconds:\n{self.said()}")
            time.sleep(0.1)
        return self

    def end(self, seconds=60):
        """Asks it to end, and gives its exit code; one that does not is killed, and None."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def __enter__(self):
        try:
            return self.wait()
        except BaseException:
            self.end()
            raise

    def __exit__(self, *_):
        self.end()
