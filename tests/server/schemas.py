"""JSON-schema decoding through a live server: how many of the 200 schemas end with `stop`, whether those documents are valid, and what the masks cost.

    schemas.py RIDGE FOLDER [--model smollm2] [--every N] [--max-tokens 512] [--streams 8] [--cost]

FOLDER keeps the environment with the package jsonschema. --every N takes each Nth schema. --cost asks once more without a schema, for as many tokens as each document had, and
compares the tokens per second of the two runs. Exit code 1: a document that stopped is not valid, or fewer than 95 % stopped; 77: the package cannot be had.
"""
import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "text" / "schemas"))
import validate  # noqa: E402
from live_server import LiveServer  # noqa: E402


def ask(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {text[:300]}")
    return json.loads(text)


def body_of(entry, **more):
    messages = [{"role": "user", "content": entry["task"] + " Answer in JSON."}]
    return {"messages": messages, "temperature": 0, "max_tokens": 512, **more}


def run(port, bodies, streams):
    """Answers in order, and tokens per second of all of them together."""
    started = time.time()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(lambda body: ask(port, body), bodies))
    n_tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    return answers, n_tokens / (time.time() - started)


def measure(port, options):
    schemas = json.loads((ROOT / "tests" / "text" / "schemas" / "schemas.json").read_text())[::options.every]
    asked = [body_of(e, max_tokens=options.max_tokens, response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": e["schema"]}}) for e in schemas]
    run(port, asked[:2], 2)                    # warm
    answers, speed = run(port, asked, options.streams)
    kinds, bad = collections.Counter(), []
    for entry, answer in zip(schemas, answers):
        choice = answer["choices"][0]
        finish, text = choice["finish_reason"], choice["message"]["content"]
        kinds[finish] += 1
        error = validate.errors_of(entry["schema"], text) if finish == "stop" else None
        if error:
            bad.append((entry["name"], text, error))
        if finish != "stop" or options.show:
            print(f"  {finish:6} {answer['usage']['completion_tokens']:4} {entry['name']}: {text[:160]!r}")
    for name, text, error in bad:
        print(f"  INVALID {name}: {text[:200]!r}: {error[:200]}")
    tokens = sorted(answer["usage"]["completion_tokens"] for answer in answers)
    print("| schemas | stop | valid of those | tokens p50 | p95 | tokens/s |\n|---|---|---|---|---|---|")
    print(f"| {len(schemas)} | {kinds['stop']} ({100 * kinds['stop'] / len(schemas):.1f} %) | {kinds['stop'] - len(bad)} | {tokens[len(tokens) // 2]} | {tokens[len(tokens) * 95 // 100]} | {speed:.1f} |")
    if options.cost:
        free = [body_of(e, max_tokens=a["usage"]["completion_tokens"], ignore_eos=True) for e, a in zip(schemas, answers)]
        speeds = {True: [], False: []}
        for _ in range(2):                     # by turns, since the machine is not ours alone
            speeds[False].append(run(port, free, options.streams)[1])
            speeds[True].append(run(port, asked, options.streams)[1])
        with_schema, without = max(speeds[True]), max(speeds[False])
        print(f"tokens/s with a schema {with_schema:.1f}, without {without:.1f}: cost {100 * (1 - with_schema / without):.1f} %")
    return 1 if bad or kinds["stop"] < 0.95 * len(schemas) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("folder")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    python = validate.environment(options.folder)
    if python is None:
        print("skipped: the package jsonschema cannot be installed here")
        return 77
    if os.path.realpath(sys.prefix) != os.path.realpath(options.folder):
        return subprocess.run([python, os.path.abspath(__file__), *sys.argv[1:]]).returncode
    with LiveServer([options.ridge, "serve", options.model]) as server:
        return measure(server.port, options)


if __name__ == "__main__":
    sys.exit(main())
