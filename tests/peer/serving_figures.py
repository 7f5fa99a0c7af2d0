"""Figures of `ridge serve` that need a quiet machine, each with the limit it must keep:
  prefix   TTFT with a hit (a prefix of 2,000 tokens, a suffix of 32) over TTFT without: at most 10 %
  long     a prompt of 16k tokens among 8 streams of answers (65 tokens in, 256 out): the 99th percentile of their gaps within 2x of the median before
  crowd    2,000 streams at once on ridge-tiny: none dropped
Usage: serving_figures.py PATH_OF_RIDGE [prefix] [long] [crowd] [--shape qwen3-0.6b] [--format q4_0] [--folder F]
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import resource
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse

import serving

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from live_server import LiveServer  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def stream(url, body, seen, result=None):
    """Asks for a stream and calls seen(time) at every piece of text, until it returns False or the stream ends."""
    place = urllib.parse.urlparse(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read().decode())
    for line in response:
        if line.startswith(b"data: {"):
            if b'"usage":{' in line and result is not None:
                result.update(json.loads(line[6:])["usage"])
            if b'"text":""' not in line and b'"text":' in line and not seen(time.perf_counter()):
                break
    connection.close()


def first_token_ms(url, ids):
    began, times, usage = time.perf_counter(), [], {}
    stream(url, {"prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True}, lambda t: times.append(t) or True, usage)
    return (times[0] - began) * 1e3, usage["prompt_tokens_details"]["cached_tokens"]


def model_and_prompts(args):
    model = serving.random_model(args.ridge, args.shape, args.format, args.folder)
    rng, n_vocab = random.Random(1), serving.vocabulary_size(model)
    return model, lambda n: [rng.randrange(n_vocab) for _ in range(n)]


def prefix(args):
    model, some = model_and_prompts(args)
    with LiveServer([args.ridge, "serve", model, "--max-model-len", 4096, "--max-num-seqs", 4, "--no-access-log"]) as server:
        first_token_ms(server.url, some(64))
        cold, warm = [], []
        for _ in range(3):
            shared = some(2000)
            cold.append(first_token_ms(server.url, shared + some(32))[0])
            for _ in range(3):
                ms, n_cached = first_token_ms(server.url, shared + some(32))
                assert n_cached >= 1984 - 64, f"only {n_cached} tokens were found"
                warm.append(ms)
    share = statistics.median(warm) / statistics.median(cold)
    print(f"prefix: TTFT {statistics.median(cold):.0f} ms without a hit, {statistics.median(warm):.0f} ms with one")
    return serving.verdict("share", f"{share:.1%}", "10 %", share <= 0.1)


def long(args):
    model, some = model_and_prompts(args)
    with LiveServer([args.ridge, "serve", model, "--max-model-len", args.long_tokens + 1024, "--max-num-seqs", 9, "--no-access-log"]) as server:
        running, marks, failures = threading.Event(), {}, []
        running.set()
        answers = [[] for _ in range(8)]                         # of every stream: a list of times for each answer

        # Streams of answers, one after the other: a single endless answer would slow down by its own growing context. Each asks for the same prompt again, of
        # which all but the last token is there already: these are decodes, not prompts that arrive too.
        def decode(i):
            prompt = some(65)
            try:
                while running.is_set():
                    times = []
                    answers[i].append(times)
                    stream(server.url, {"prompt": prompt, "max_tokens": 256, "temperature": 0, "ignore_eos": True}, lambda t: times.append(t) or running.is_set())
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=decode, args=(i,)) for i in range(8)]
        for i, t in enumerate(threads):
            t.start()
            time.sleep(1)                                        # so that they do not end together
        while min(map(len, answers)) < 3 and not failures:
            time.sleep(0.05)
        marks["before"] = time.perf_counter()
        ms, _ = first_token_ms(server.url, some(args.long_tokens)) if not failures else (0, 0)
        marks["after"] = time.perf_counter()
        running.clear()
        for t in threads:
            t.join()
    if failures:
        raise failures[0]
    gaps = lambda a, b: [y - x for one in answers for times in one for x, y in zip(times, times[1:]) if a <= y <= b]  # noqa: E731
    started = max(one[1][0] for one in answers)                  # every stream's second answer
    before, during = gaps(started, marks["before"]), gaps(marks["before"], marks["after"])
    median, p99 = statistics.median(before) * 1e3, statistics.quantiles(during, n=100)[98] * 1e3
    print(f"long: gaps of 8 decodes: median {median:.1f} ms before; while {args.long_tokens} tokens are read (TTFT {ms / 1e3:.1f} s): median {statistics.median(during) * 1e3:.1f} ms, p99 {p99:.1f} ms")
    return serving.verdict("p99 over the median before", f"{p99 / median:.2f}x", "2x", p99 <= 2 * median)


def crowd(args):
    n = args.streams
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * n + 1000)), hard))
    with LiveServer([args.ridge, "serve", SOURCE / "models" / "ridge-tiny", "--max-queue", 2 * n, "--no-access-log"]) as server:
        r = serving.bench(args.ridge, server.url, "--request-rate", "inf", "-n", n, "--random-input-len", 32, "--random-vocab-size", 200, "--max-tokens", 32, "--timeout", 600)[0]
        live = serving.get(server.url + "/live")
    print(f"crowd: {r['completed']} streams, {r['max_concurrent_requests']} at once, {r['output_throughput']:.0f} tok/s, TTFT p50 {r['median_ttft_ms']:.0f} p99 {r['p99_ttft_ms']:.0f} ms, left over: {live['running']} running")
    return serving.verdict("streams dropped", r["failed"], 0, r["failed"] == 0 and r["completed"] == n)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("what", nargs="*", default=["prefix", "long", "crowd"])
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--format", default="q4_0")
    parser.add_argument("--long-tokens", type=int, default=16384)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "ridge-serving"))
    args = parser.parse_args()
    pathlib.Path(args.folder).mkdir(parents=True, exist_ok=True)
    kept = [{"prefix": prefix, "long": long, "crowd": crowd}[what](args) for what in args.what]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
