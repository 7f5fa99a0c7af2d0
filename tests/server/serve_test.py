"""`ridge serve` as a process: it is there at once, serves, tells what it does, and ends in good order.

    serve_test.py RIDGE [--streams N]        N concurrent streams of ridge-tiny (200; by hand 2000)
"""
import argparse
import asyncio
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "models" / "ridge-tiny"
RIDGE = None
STREAMS = 200


class Server:
    def __init__(self, *flags, model=TINY):
        self.log = tempfile.TemporaryFile("w+")
        environment = {k: v for k, v in os.environ.items() if k != "RIDGE_API_KEY"}
        self.process = subprocess.Popen([RIDGE, "serve", "--port", "0", *flags, str(model)], stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        line = self.process.stdout.readline()
        found = re.match(r"Serving (\S+) at (https?)://127\.0\.0\.1:(\d+) \(page, OpenAI API\)", line)
        if not found:
            self.process.wait(30)
            raise AssertionError(f"no ready line but {line!r}\n{self.stderr()}")
        self.model, self.port = found[1], int(found[3])

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, dict((k.lower(), v) for k, v in answer.getheaders())

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()
        self.log.close()


def completion(n, **more):
    return {"prompt": "The ridge", "max_tokens": n, "ignore_eos": True, "temperature": 0, **more}


async def stream(port, n, results):
    """One streaming completion over a connection of its own; counts the tokens that arrive before [DONE]."""
    body = json.dumps(completion(n, stream=True)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)
        text = (await reader.read()).decode(errors="replace")
        writer.close()
        results.append((text.split(" ", 2)[1], text.count('"finish_reason":"length"'), text.count("data: [DONE]")))
    except OSError as error:
        results.append((repr(error), 0, 0))


class Serve(unittest.TestCase):
    def test_a_model_is_served_until_the_server_is_told_to_stop(self):
        with Server() as server:
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            status, text, headers = server.ask("POST", "/v1/completions", completion(8))
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 8)
            self.assertIn("x-request-id", headers)
            self.assertEqual(server.ask("GET", "/nowhere")[0], 404)
            self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": 5})[0], 400)
            self.assertEqual(server.stop(), 0)
            log = server.stderr()
            self.assertRegex(log, r"request=\S+ trace=[0-9a-f]{32} peer=127\.0\.0\.1 method=POST path=/v1/completions status=200")

    def test_a_turn_of_a_chat_computes_only_what_is_new(self):
        with Server("--block-size", "16") as server:
            messages, known = [{"role": "system", "content": "You tell stories. " * 20}], 0
            for turn in range(4):
                messages.append({"role": "user", "content": f"Tell me number {turn} of your stories about the sea."})
                status, text, _ = server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 24, "temperature": 0})
                self.assertEqual(status, 200, text)
                answer, usage = json.loads(text)["choices"][0]["message"]["content"], json.loads(text)["usage"]
                messages.append({"role": "assistant", "content": answer})
                # All of the turns before but for the last page that is not full, and what the template writes after an answer.
                self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], known - 24)
                known = usage["total_tokens"]
            self.assertGreater(known, 150)

    def test_health_says_503_until_the_model_is_there(self):
        # The port is open long before the model is: asked for all the time, it first says 503, then 200, and is never refused in between.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen([RIDGE, "serve", str(TINY), "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        seen, until = [], time.time() + 60
        while time.time() < until and 200 not in seen:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health")
                seen.append(connection.getresponse().status)
                connection.close()
            except OSError:
                self.assertEqual(seen, [])
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 0)
        process.stdout.close()
        self.assertEqual(seen[-1], 200)
        self.assertIn(503, seen)

    def test_answers_under_way_end_before_the_server_does(self):
        with Server() as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps(completion(200, stream=True)))
            answer = connection.getresponse()
            first = answer.read1(100)
            self.assertTrue(first)
            server.process.send_signal(signal.SIGTERM)
            text = (first + answer.read()).decode()
            connection.close()
            self.assertIn("data: [DONE]", text)
            self.assertEqual(server.process.wait(30), 0)

    def test_a_second_signal_ends_at_once(self):
        with Server("--max-model-len", "4096") as server:
            held = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(16)]
            for connection in held:
                connection.request("POST", "/v1/completions", json.dumps(completion(4000, stream=True)))
            held[0].getresponse().read1(10)
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGINT)
                start = time.time()
                self.assertIn(server.process.wait(30), (0, 130))
                self.assertLess(time.time() - start, 5)
            for connection in held:
                connection.close()

    def test_faults_at_the_start_are_one_line_and_exit_code_1(self):
        with Server() as server:
            for flags, words in [(["--port", str(server.port)], "is taken"), (["--api-key", ""], "empty"), (["--ssl-certfile", "x.pem"], "--ssl-keyfile"),
                                 (["--chat-template", "no_such_file"], "no such file"), (["--tool-call-parser", "nonsense", "--port", "0"], "nonsense"),
                                 (["--kv-cache-gb", "0.000001", "--port", "0"], "too little")]:
                ended = subprocess.run([RIDGE, "serve", str(TINY), *(flags if "--port" in flags else flags + ["--port", "0"])], capture_output=True, text=True, timeout=60)
                self.assertEqual(ended.returncode, 1, flags)
                self.assertIn(words, ended.stderr)

    def test_keys_guard_everything_but_health_and_the_page(self):
        with Server("--api-key", "one", "--api-key", "two") as server:
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            self.assertEqual(server.ask("GET", "/")[0], 200)
            for path in ("/v1/models", "/metrics", "/live", "/slots", "/v1/cache", "/version"):
                self.assertEqual(server.ask("GET", path)[0], 401, path)
                self.assertEqual(server.ask("GET", path, headers={"Authorization": "Bearer two"})[0], 200, path)

    def test_figures_follow_what_happened(self):
        with Server("--metrics-names", "vllm", "--served-model-name", "tiny") as server:
            server.ask("POST", "/v1/completions", completion(20))
            server.ask("POST", "/v1/completions", completion(20))
            time.sleep(0.3)
            status, text, headers = server.ask("GET", "/metrics")
            self.assertEqual(status, 200)
            self.assertTrue(headers["content-type"].startswith("text/plain; version=0.0.4"))
            figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            self.assertEqual(float(figures["ridge_generated_tokens_total"]), 40)
            self.assertEqual(float(figures['ridge_requests_total{finish="length"}']), 2)
            self.assertEqual(float(figures["ridge_time_to_first_token_seconds_count"]), 2)
            self.assertEqual(float(figures["ridge_inter_token_seconds_count"]), 38)
            self.assertGreater(float(figures["ridge_steps_total"]), 38)
            self.assertGreater(float(figures["ridge_bytes_per_token"]), 1000)
            self.assertGreater(float(figures["ridge_bandwidth_share"]), 0)
            self.assertGreater(float(figures["process_resident_memory_bytes"]), 1e6)
            self.assertEqual(float(figures['vllm:generation_tokens_total{model_name="tiny"}']), 40)
            self.assertEqual(float(figures['vllm:request_success_total{finished_reason="length",model_name="tiny"}']), 2)
            live = json.loads(server.ask("GET", "/live")[1])
            self.assertEqual(live["model"], "tiny")
            self.assertEqual(live["total"]["generated_tokens"], 40)
            self.assertEqual((live["running"], live["waiting"]), (0, 0))
            self.assertEqual(live["kv"]["pages"], live["kv"]["used"] + live["kv"]["cached"] + live["kv"]["free"])

    def test_the_page_is_in_the_program(self):
        with Server() as server:
            status, text, headers = server.ask("GET", "/")
            self.assertEqual(status, 200)
            self.assertIn("<html", text.lower())
            self.assertIn("default-src 'none'", headers["content-security-policy"])
            self.assertEqual(server.ask("GET", "/", headers={"If-None-Match": headers["etag"]})[0], 304)
            self.assertTrue(server.ask("GET", "/app.js")[2]["content-type"].startswith("text/javascript"))

    def test_a_client_that_leaves_frees_its_place(self):
        with Server("--max-model-len", "4096", "--max-num-seqs", "2") as server:
            for _ in range(8):
                with socket.create_connection(("127.0.0.1", server.port)) as s:
                    body = json.dumps(completion(4000, stream=True)).encode()
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    s.recv(100)
            start = time.time()
            self.assertEqual(server.ask("POST", "/v1/completions", completion(4))[0], 200)
            self.assertLess(time.time() - start, 5)
            until = time.time() + 10
            while time.time() < until and json.loads(server.ask("GET", "/live")[1])["running"]:
                time.sleep(0.25)
            live = json.loads(server.ask("GET", "/live")[1])
            self.assertEqual((live["running"], live["waiting"]), (0, 0))

    def test_no_stream_of_a_crowd_is_dropped(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        with Server("--max-num-seqs", "256", "--no-access-log") as server:
            results, start = [], time.time()
            health = []

            def watch():
                while len(results) < STREAMS:
                    begun = time.time()
                    server.ask("GET", "/health")
                    health.append(time.time() - begun)
                    time.sleep(0.1)

            watcher = threading.Thread(target=watch)
            watcher.start()

            async def crowd():
                await asyncio.gather(*(stream(server.port, 16, results) for _ in range(STREAMS)))

            asyncio.run(crowd())
            watcher.join()
            self.assertEqual([r for r in results if r != ("200", 1, 1)], [])
            self.assertEqual(len(results), STREAMS)
            print(f"{STREAMS} streams of 16 tokens in {time.time() - start:.1f} s; slowest /health meanwhile {max(health):.2f} s", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("--streams", type=int, default=STREAMS)
    options, rest = parser.parse_known_args()
    RIDGE, STREAMS = options.ridge, options.streams
    unittest.main(argv=[sys.argv[0], *rest])
