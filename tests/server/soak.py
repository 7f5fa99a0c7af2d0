"""A server under everything that users do at once, for a while: random arrivals, shared beginnings, cancels (sockets that close), half-sent and bad requests, and a pool of pages that is much too
small. Afterwards the pool must be whole, memory must not have grown, nothing may have been answered with 5xx, and the server must end by itself when told to.

Usage: soak.py PATH_OF_RIDGE [--seconds 20] [--model MODEL] [--clients 24] [--kv-gb 0.002] [--seed 1] [--sanitized] [-- more flags of ridge serve]
"""
import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter

from live_server import LiveServer

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORDS = "the river ran past a small town where nobody asked why it was so cold in spring and the boats stayed away".split()


class Soak:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.counts = Counter()
        self.faults = []
        self.memory = []                                         # (seconds, resident bytes)
        self.prefixes = [self.words(n) for n in (10, 30, 50)]

    def words(self, n):
        return " ".join(self.random.choice(WORDS) for _ in range(n))

    # ---- the server

    def start(self):
        environment = dict(os.environ)
        if self.args.sanitized:                                  # freed memory is kept for a while by the sanitizer: not for long here
            environment["ASAN_OPTIONS"] = "quarantine_size_mb=16:detect_leaks=1:" + environment.get("ASAN_OPTIONS", "")
        self.server = LiveServer([self.args.ridge, "serve", self.args.model, "--kv-cache-gb", self.args.kv_gb, "--max-num-seqs", 8, "--max-queue", 64, "--max-model-len", 384,
                                  "--block-size", 16, "--no-access-log", *self.args.more], environment)
        self.port = self.server.port
        self.server.wait()

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # ---- one request over a socket of its own

    async def open(self):
        return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.port), 30)

    @staticmethod
    def head(method, path, body, more=""):
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n".encode()

    async def ask(self, method, path, body=b"", vanish_after=None):
        """Status, head and body; with vanish_after the socket is reset after so many bytes of the answer, and the status is None."""
        reader, writer = await self.open()
        try:
            writer.write(self.head(method, path, body) + body)
            await writer.drain()
            data = b""
            while True:
                piece = await asyncio.wait_for(reader.read(4096), 300)
                data += piece
                if vanish_after is not None and len(data) >= vanish_after:
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return None, "", b""
                if not piece:
                    break
            head, _, rest = data.partition(b"\r\n\r\n")
            if not head:
                return 0, "", b""
            return int(head.split()[1]), head.decode(), self.unchunked(head, rest)
        finally:
            writer.close()

    @staticmethod
    def unchunked(head, rest):
        if b"chunked" not in head.lower():
            return rest
        out = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                break
            out, rest = out + rest[:n], rest[n + 2:]
        return out

    def fault(self, text):
        if len(self.faults) < 20:
            self.faults.append(text)

    # ---- what users do

    def good_request(self, stream):
        r = self.random
        prompt = r.choice(self.prefixes) + " " + self.words(r.randint(1, 15)) if r.random() < 0.7 else self.words(r.randint(1, 60))
        body = {"max_tokens": r.randint(1, 32), "temperature": r.choice([0, 0.7, 1.5]), "ignore_eos": r.random() < 0.7, "seed": r.randint(0, 9)}
        if stream:
            body["stream"] = True
        if r.random() < 0.2:
            body["n"] = r.randint(2, 3)
        if r.random() < 0.1:
            body["stop"] = ["the", "e"]
        if r.random() < 0.15:
            body["logprobs"] = True
        if r.random() < 0.1:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}
        body["messages"] = [{"role": "user", "content": prompt}]
        return body

    async def whole(self):
        status, head, body = await self.ask("POST", "/v1/chat/completions", json.dumps(self.good_request(False)).encode())
        self.counts[f"whole {status}"] += 1
        if status == 429:
            if "retry-after" not in head.lower():
                self.fault("429 without Retry-After")
        elif status != 200 or not json.loads(body)["choices"]:
            self.fault(f"a good request was answered {status}: {body[:300]}")

    async def streamed(self):
        status, _, body = await self.ask("POST", "/v1/chat/completions", json.dumps(self.good_request(True)).encode())
        self.counts[f"streamed {status}"] += 1
        if status != 429 and (status != 200 or not body.rstrip().endswith(b"data: [DONE]") or b'"error"' in body):
            self.fault(f"a stream was answered {status}, its end: {body[-300:]}")

    async def vanish(self):
        body = self.good_request(self.random.random() < 0.8)
        body.update(max_tokens=150, ignore_eos=True)
        await self.ask("POST", "/v1/chat/completions", json.dumps(body).encode(), vanish_after=self.random.choice([0, 1, 200, 1500, 4000]))
        self.counts["vanished"] += 1

    async def vanish_while_waiting(self):
        _, writer = await self.open()
        body = json.dumps({**self.good_request(True), "max_tokens": 150, "ignore_eos": True}).encode()
        writer.write(self.head("POST", "/v1/chat/completions", body) + body)
        await writer.drain()
        await asyncio.sleep(self.random.random() * 0.3)
        writer.close()
        self.counts["vanished while waiting"] += 1

    async def half(self):
        _, writer = await self.open()
        body = json.dumps(self.good_request(True)).encode()
        whole = self.head("POST", "/v1/chat/completions", body) + body
        writer.write(whole[:self.random.randint(1, len(whole) - 1)])
        await writer.drain()
        await asyncio.sleep(self.random.random() * 0.2)
        writer.close()
        self.counts["half sent"] += 1

    async def bad(self):
        long = {"messages": [{"role": "user", "content": self.words(3000)}]}
        path, body = self.random.choice([
            ("/v1/chat/completions", b"{"), ("/v1/chat/completions", b'{"messages": 7}'), ("/v1/chat/completions", b"\xff\xfe"), ("/v1/chat/completions", b"[" * 5000), ("/v1/completions", b'{"prompt": [1, -5, 999999999]}'),
            ("/v1/completions", b'{"prompt": "x", "max_tokens": -3}'), ("/v1/completions", b'{"prompt": "x", "temperature": 1e999}'), ("/v1/completions", b'{"prompt": "x", "n": 100000}'),
            ("/v1/completions", b'{"prompt": "x", "model": "no such model"}'), ("/v1/chat/completions", json.dumps(long).encode()), ("/v1/nothing", b"{}"),
            ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "no such type"}}}}).encode())])
        status, _, answer = await self.ask("POST", path, body)
        self.counts[f"bad {status}"] += 1
        if not 400 <= status < 500:
            self.fault(f"{path} with {body[:80]} was answered {status}: {answer[:200]}")

    async def look(self):
        path = self.random.choice(["/live", "/metrics", "/v1/cache?check=1", "/slots", "/v1/models", "/health", "/"])
        status, _, body = await self.ask("GET", path)
        self.counts[f"look {status}"] += 1
        if status != 200:
            self.fault(f"{path} was answered {status}: {body[:200]}")

    async def flush(self):
        status, _, body = await self.ask("POST", "/v1/cache/flush")
        self.counts[f"flush {status}"] += 1

    async def client(self, end):
        acts = [(self.streamed, 8), (self.whole, 5), (self.vanish, 5), (self.vanish_while_waiting, 3), (self.half, 2), (self.bad, 4), (self.look, 2), (self.flush, 0.1)]
        while time.monotonic() < end:
            act = self.random.choices([a for a, _ in acts], [w for _, w in acts])[0]
            try:
                await act()
            except Exception as e:                               # a connection that breaks where none should is a fault as well
                self.fault(f"{act.__name__}: {type(e).__name__}: {e}")
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.random.expovariate(5))

    async def watch(self, end):
        start = time.monotonic()
        while time.monotonic() < end and self.server.process.poll() is None:
            self.memory.append((time.monotonic() - start, self.resident()))
            await asyncio.sleep(0.5)

    async def run(self):
        end = time.monotonic() + self.args.seconds
        await asyncio.gather(self.watch(end), *(self.client(end) for _ in range(self.args.clients)))
        # Nobody asks any more: all that is left of those who vanished must go, too.
        limit = time.monotonic() + 60
        while True:
            live = json.loads((await self.ask("GET", "/live"))[2])
            if live["running"] == 0 and live["waiting"] == 0:
                break
            if time.monotonic() > limit:
                self.fault(f"a minute later there are still {live['running']} running and {live['waiting']} waiting")
                break
            await asyncio.sleep(0.2)
        status, _, body = await self.ask("GET", "/v1/cache?check=1")
        cache = json.loads(body)
        if status != 200 or cache.get("integrity") != "ok":
            self.fault(f"/v1/cache?check=1 says {status} {body[:300]}")
        if any(g["held"] != g["cached"] for g in cache.get("groups", [])):
            self.fault(f"pages are held by nobody: {cache['groups']}")
        self.n_preempted = live["total"]["preemptions"]
        return cache

    def growth(self):
        """Median memory of the last quarter over that of the second: the first is for the caches to fill."""
        total = self.memory[-1][0]
        part = lambda a, b: statistics.median(m for t, m in self.memory if a * total <= t <= b * total)  # noqa: E731
        return part(0.25, 0.5), part(0.75, 1)

    def stop(self):
        code = self.server.end()
        if code != 0:
            self.fault(f"the server's exit code is {code} (None: it had to be killed); its last words:\n{self.server.said()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("--model", default=os.path.join(SOURCE, "models", "ridge-tiny"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--kv-gb", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sanitized", action="store_true")
    ours, more = (sys.argv[1:], []) if "--" not in sys.argv else (sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:])
    args = parser.parse_args(ours)
    args.more = more
    if subprocess.run([args.ridge, "serve", "--help"], capture_output=True).returncode != 0:
        print("skipped: this build has no `ridge serve`")
        return 77
    soak = Soak(args)
    soak.start()
    try:
        cache = asyncio.run(soak.run())
    finally:
        if soak.server.process.poll() is None:
            soak.stop()
        else:
            soak.fault(f"the server died with {soak.server.process.returncode}; its last words:\n{soak.server.said()}")
    before, after = soak.growth()
    print(f"{sum(soak.counts.values())} requests in {args.seconds:g} s: " + ", ".join(f"{k}: {v}" for k, v in sorted(soak.counts.items())))
    print(f"resident memory {before / 1e6:.1f} MB, later {after / 1e6:.1f} MB; cache: {cache['hits']} hits of {cache['lookups']}, {cache['evicted_pages']} pages evicted; {soak.n_preempted} preemptions")
    if after > before * 1.05 + 12e6:
        soak.fault(f"memory grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB")
    if not soak.counts["streamed 200"] or not soak.counts["vanished"]:
        soak.fault("nothing was streamed, or nobody vanished: this tested nothing")
    if not soak.n_preempted and not args.sanitized:              # those builds are too slow to fill the pool in a few seconds
        soak.fault("nobody had to make room: the pool was not small enough to test that")
    for fault in soak.faults:
        print("FAULT: " + fault)
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
