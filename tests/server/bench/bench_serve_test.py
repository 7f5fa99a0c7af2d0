"""`ridge bench serve` against a server with known delays, and against `ridge serve` with a small model.

Usage: bench_serve_test.py PATH_OF_RIDGE [unittest arguments]
"""
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.dom.minidom

RIDGE = os.path.abspath(sys.argv.pop(1))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "server"))
from live_server import LiveServer  # noqa: E402

FIRST, EACH = 0.2, 0.02                                          # the fake server's seconds to the first token and between tokens


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, {"data": [{"id": "fake"}]})

    def piece(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append((self.path, request, self.headers.get("Authorization"), self.client_address))
            n = len(server.requests)
        if server.refuse_every and n % server.refuse_every == 0:
            return self.reply(429, {"error": {"message": "too many"}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(FIRST)
        for i in range(request["max_tokens"]):
            if i:
                time.sleep(EACH)
            field = {"delta": {"content": f" w{i}"}} if "messages" in request else {"text": f" w{i}"}
            self.piece(json.dumps({"choices": [{"index": 0, **field}]}))
        self.piece(json.dumps({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": request["max_tokens"], "prompt_tokens_details": {"cached_tokens": 60}}}))
        self.piece("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, refuse_every=0):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.refuse_every, self.lock = [], refuse_every, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


def bench(url, *flags, ok=True):
    run = subprocess.run([RIDGE, "bench", "serve", "--base-url", url, "--json", *map(str, flags)], capture_output=True, text=True, timeout=240)
    if not ok:
        return run
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


class Known(unittest.TestCase):
    def serve(self, **how):
        server = Server(**how)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def test_latencies_are_those_of_the_server(self):
        server = self.serve()
        result = bench(server.url, "--concurrency", 4, "-n", 8, "--max-tokens", 11, "--random-input-len", 5, "--api-key", "secret", "--target-ttft-ms", 5000, "--target-tpot-ms", 1)["results"][0]
        self.assertEqual((result["completed"], result["failed"], result["total_output_tokens"], result["cached_input_tokens"]), (8, 0, 88, 480))
        self.assertGreaterEqual(result["median_ttft_ms"], FIRST * 1e3)
        self.assertGreaterEqual(result["median_tpot_ms"], EACH * 1e3)
        self.assertGreaterEqual(result["median_e2el_ms"], (FIRST + 10 * EACH) * 1e3)
        self.assertLess(result["median_ttft_ms"], FIRST * 1e3 * 3)
        self.assertLess(result["median_tpot_ms"], EACH * 1e3 * 4)
        self.assertAlmostEqual(result["output_throughput"], 88 / result["duration"], delta=1)
        self.assertEqual(result["request_goodput"], 0)               # 20 ms a token is more than the 1 ms asked for
        self.assertEqual(result["max_concurrent_requests"], 4)
        path, request, key, _ = server.requests[-1]
        self.assertEqual((path, key, request["model"], request["ignore_eos"], request["temperature"]), ("/v1/completions", "Bearer secret", "fake", True, 0.0))
        self.assertEqual(len(request["prompt"].split()), 5)
        self.assertLessEqual(len({r[3] for r in server.requests[1:]}), 4)      # connections are kept

    def test_open_loop_keeps_its_rate_and_counts_from_when_requests_were_due(self):
        server = self.serve()
        results = bench(server.url, "--request-rate", "20,40", "-n", 30, "--max-tokens", 3, "--random-input-len", 3, "--random-vocab-size", 100)["results"]
        self.assertEqual([r["completed"] for r in results], [30, 30])
        self.assertGreater(results[0]["duration"], results[1]["duration"])
        self.assertTrue(all(isinstance(i, int) and 0 <= i < 100 for i in server.requests[-1][1]["prompt"]))
        late = bench(server.url, "--request-rate", "inf", "--max-concurrency", 2, "-n", 6, "--max-tokens", 2, "--random-input-len", 3)["results"][0]
        self.assertGreater(late["max_ttft_ms"], 3 * FIRST * 1e3 * 0.95)        # the last pair waited for two others

    def test_turns_carry_what_was_said(self):
        server = self.serve()
        result = bench(server.url, "--backend", "openai-chat", "--dataset-name", "multi-turn", "--turns", 3, "-n", 1, "--concurrency", 1, "--max-tokens", 2, "--random-input-len", 4, "--num-warmups", 0)["results"][0]
        self.assertEqual(result["completed"], 3)
        said = [r[1]["messages"] for r in server.requests]
        self.assertEqual([len(m) for m in said], [1, 3, 5])
        self.assertEqual(said[2][1], {"role": "assistant", "content": " w0 w1"})
        self.assertEqual(server.requests[0][0], "/v1/chat/completions")

    def test_refusals_are_counted_and_shown(self):
        server = self.serve(refuse_every=3)
        result = bench(server.url, "--concurrency", 2, "-n", 9, "--max-tokens", 2, "--random-input-len", 3, "--num-warmups", 0)["results"][0]
        self.assertEqual((result["completed"], result["failed"]), (6, 3))
        self.assertIn("429", result["first_error"])
        self.assertIn("too many", result["first_error"])

    def test_plot_and_tables(self):
        server = self.serve()
        with tempfile.TemporaryDirectory() as folder:
            plot, saved = os.path.join(folder, "g.svg"), os.path.join(folder, "r.json")
            run = subprocess.run([RIDGE, "bench", "serve", "--base-url", server.url + "/v1", "--request-rate", "10,20,30", "-n", "10", "--max-tokens", "2", "--random-input-len", "3", "--goodput", "ttft:260", "--plot", plot,
                                  "--save-result", saved], capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("TTFT ≤ 260 ms", run.stdout)
            self.assertIn("goodput/s", run.stdout)
            self.assertEqual(xml.dom.minidom.parse(plot).documentElement.tagName, "svg")
            with open(saved) as f:
                self.assertEqual(len(json.load(f)["results"]), 3)

    def test_mistakes_are_explained(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            nobody = f"http://127.0.0.1:{s.getsockname()[1]}"
        for url, flags, said in [(nobody, [], "127.0.0.1"), (nobody, ["--model", "m"], "does not answer"), ("ftp://x", ["--model", "m"], "ftp"), (nobody, ["--model", "m", "--request-rate", "-1"], "--request-rate"),
                                 (nobody, ["--model", "m", "--goodput", "speed:3"], "--goodput"), (nobody, ["--model", "m", "--dataset-name", "trace"], "--dataset-path")]:
            run = bench(url, *flags, ok=False)
            self.assertEqual(run.returncode, 1, flags)
            self.assertIn(said, run.stderr)


@unittest.skipUnless(subprocess.run([RIDGE, "serve", "--help"], capture_output=True).returncode == 0, "this build has no `ridge serve`")
class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = LiveServer([RIDGE, "serve", os.path.join(SOURCE, "models", "ridge-tiny")]).wait()
        cls.url = cls.server.url

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def test_answers_are_complete_and_shared_prefixes_are_hits(self):
        result = bench(self.url, "--concurrency", 8, "-n", 24, "--max-tokens", 16, "--random-vocab-size", 200, "--shared-prefix", 192, "--random-input-len", 16)["results"][0]
        self.assertEqual((result["completed"], result["failed"], result["total_output_tokens"], result["total_input_tokens"]), (24, 0, 24 * 16, 24 * 208))
        self.assertGreater(result["cached_input_tokens"], 8 * 128)
        chat = bench(self.url, "--backend", "openai-chat", "--dataset-name", "multi-turn", "--turns", 2, "--concurrency", 2, "-n", 4, "--max-tokens", 8, "--random-input-len", 8)["results"][0]
        self.assertEqual((chat["completed"], chat["failed"]), (8, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
