"""The official OpenAI and Anthropic clients against a live server.

Makes a virtual environment with the two packages (once), starts `ridge serve` with ridge-tiny, and runs the checks beside this file; then a few with smollm2 where its
files are in the cache. Exits with 77 (skipped, for ctest) only when the packages cannot be had.

Usage: conformance_test.py PATH_OF_RIDGE FOLDER_FOR_THE_ENVIRONMENT [words of the checks to run]
"""
import os
import secrets
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.dirname(HERE))
from live_server import LiveServer  # noqa: E402

PACKAGES = ["openai==3.49.0", "anthropic==2.8.0"]
KEY = "key-" + secrets.token_hex(8)


def environment(folder):
    """A Python that has the packages, or None."""
    python = os.path.join(folder, "bin", "python")
    wanted = f"import openai, anthropic; assert [f'openai=={{openai.__version__}}', f'anthropic=={{anthropic.__version__}}'] == {PACKAGES!r}"
    if os.path.exists(python) and subprocess.run([python, "-c", wanted], capture_output=True).returncode == 0:
        return python
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True).returncode == 0
    if not made:
        print("skipped: python3 -m venv does not work here (python3-venv is missing)")
        return None
    done = subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        print(f"skipped: pip cannot install {' '.join(PACKAGES)}:\n{done.stderr[-1500:]}")
        return None
    return python


def serve(ridge, model, name, *flags):
    server = LiveServer([ridge, "serve", model, "--host", "127.0.0.1", "--served-model-name", name, "--api-key", KEY, *flags])
    server.name = name
    return server


def run(python, server, suite, words):
    env = os.environ | {"RIDGE_PORT": str(server.port), "RIDGE_MODEL": server.name, "RIDGE_KEY": KEY, "RIDGE_SUITE": suite}
    done = subprocess.run([python, os.path.join(HERE, "run_checks.py"), *words], env=env)
    if server.process.poll() is not None:
        print(f"the server ended by itself with {server.process.returncode}:\n{server.said()}")
        return 1
    return done.returncode


def main():
    ridge, folder, words = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    python = environment(folder)
    if not python:
        return 77
    failed = 0
    with serve(ridge, os.path.join(SOURCE, "models", "ridge-tiny"), "ridge-tiny", "--chat-template", os.path.join(HERE, "chat_template.jinja"), "--max-num-seqs", "16") as server:
        failed |= run(python, server, "tiny", words)
    listed = subprocess.run([ridge, "list"], capture_output=True, text=True).stdout
    if not any(line.split()[:1] == ["smollm2"] for line in listed.splitlines()):
        print("smollm2 is not in the cache (`ridge pull smollm2`): its checks are left out")
        return failed
    with serve(ridge, "smollm2", "smollm2") as server:
        failed |= run(python, server, "smollm2", words)
    return failed


if __name__ == "__main__":
    sys.exit(main())
