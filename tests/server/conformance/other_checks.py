"""Ollama's API and llama-server's and vLLM's own endpoints over plain HTTP; cancellation; bad requests beside a good one."""
import http.client
import json
import threading
import time

import openai

from harness import KEY, MODEL, PERSON, PORT, WEATHER, check, chat, equal, eventually, get, is_in, is_person, is_weather, lines, oai, post, raises, request, streamed, user

GREEDY = {"temperature": 0, "num_predict": 16}


@check("ollama: /api/chat streams lines, the last with the counts")
def _():
    parts = lines("/api/chat", {"model": MODEL, "messages": user("Hello"), "options": GREEDY})
    assert all(not p["done"] for p in parts[:-1]) and parts[-1]["done"]
    equal("".join(p["message"]["content"] for p in parts), chat().choices[0].message.content)
    last = parts[-1]
    is_in(last["done_reason"], ["stop", "length"])
    assert last["prompt_eval_count"] > 3 and last["eval_count"] > 0 and last["total_duration"] >= 0
    whole = post("/api/chat", {"model": MODEL + ":latest", "messages": user("Hello"), "options": GREEDY, "stream": False})
    equal((whole["done"], whole["message"]["content"]), (True, chat().choices[0].message.content))


@check("ollama: /api/generate with and without the template")
def _():
    parts = lines("/api/generate", {"model": MODEL, "prompt": "Hello", "options": GREEDY})
    equal("".join(p["response"] for p in parts), chat().choices[0].message.content)
    raw = post("/api/generate", {"model": MODEL, "prompt": "The sea", "raw": True, "stream": False, "options": GREEDY})
    equal(raw["response"], oai.completions.create(model=MODEL, prompt="The sea", max_tokens=16, temperature=0).choices[0].text)


@check("ollama: format gives JSON, tools give calls with objects")
def _():
    body = {"model": MODEL, "messages": user("Who?"), "stream": False, "options": {"temperature": 0, "num_predict": 120}}
    is_person(json.loads(post("/api/chat", body | {"format": PERSON})["message"]["content"]))
    calls = post("/api/chat", body | {"tools": [WEATHER], "tool_choice": "required"})["message"]["tool_calls"]
    is_weather(calls[0]["function"]["arguments"])
    streamed_calls = [c for p in lines("/api/chat", body | {"tools": [WEATHER], "tool_choice": "required", "stream": True}) for c in p["message"].get("tool_calls", [])]
    equal(streamed_calls, calls)


@check("ollama: /api/tags lists the model; errors are {\"error\": text}")
def _():
    is_in(MODEL, [m["name"] for m in get("/api/tags")["models"]])
    status, _, text = request("POST", "/api/chat", {"model": "nothing", "messages": user("x")})
    equal(status, 404)
    is_in("nothing", json.loads(text)["error"])
    status, _, text = request("POST", "/api/chat", {"model": MODEL, "messages": user("x"), "options": {"temperature": -1}})
    equal(status, 400)
    is_in("options.temperature", json.loads(text)["error"])


@check("tokenize, detokenize and apply-template fit together")
def _():
    tokens = post("/tokenize", {"prompt": "The sea is wide"})
    equal(tokens["count"], len(tokens["tokens"]))
    equal(post("/detokenize", {"tokens": tokens["tokens"]})["prompt"], "The sea is wide")
    prompt = post("/apply-template", {"messages": user("Hello")})["prompt"]
    equal(post("/tokenize", {"messages": user("Hello")})["tokens"], post("/tokenize", {"content": prompt})["tokens"])
    equal(chat().usage.prompt_tokens, len(post("/tokenize", {"messages": user("Hello")})["tokens"]))
    pieces = post("/tokenize", {"content": "The sea", "with_pieces": True})["tokens"]
    equal("".join(p["piece"] for p in pieces), "The sea")
    status, _, text = request("POST", "/detokenize", {"tokens": [-1]})
    equal(status, 400, text)


@check("health, version, props, metrics and the cache's state answer")
def _():
    equal(get("/health")["status"], "ok")
    assert get("/version")["version"]
    props = get("/props")
    assert props["default_generation_settings"]["n_ctx"] >= 1024 and props["total_slots"] > 0 and props["chat_template"]
    equal(request("GET", "/metrics")[0], 200)
    state = get("/v1/cache")
    assert state["enabled"] and state["lookups"] > 0, state
    is_in("nothing_cached", state["misses"])


@check("cache: a flush forgets, by either verb")
def _():
    text = "Rocks and gulls and foam. " * 20
    for method, path in (("DELETE", "/v1/cache"), ("POST", "/v1/cache/flush")):
        chat(text)
        assert chat(text).usage.prompt_tokens_details.cached_tokens > 0
        equal(request(method, path)[0], 200)
        equal(chat(text).usage.prompt_tokens_details.cached_tokens, 0)


def live():
    return get("/slots")


@check("slots: a running stream is seen, and gone when it has ended")
def _():
    assert eventually(lambda: live() == [])
    stream = chat("Tell a story", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    slots = live()
    equal(len(slots), 1, slots)
    assert slots[0]["is_processing"] and slots[0]["n_prompt"] > 3, slots
    stream.close()
    assert eventually(lambda: live() == []), live()


@check("cancellation: closing a stream frees its slot within a step")
def _():
    assert eventually(lambda: live() == [])
    for _ in range(5):
        stream = chat("Tell a story", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
        iterator = iter(stream)
        for _ in range(3):
            next(iterator)
        start = time.monotonic()
        stream.close()
        assert eventually(lambda: live() == [], 3), live()
        assert time.monotonic() - start < 1.0, "a slot was held for a second after its client had left"


@check("cancellation: a client that leaves before the answer frees its slot too")
def _():
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    body = json.dumps({"model": MODEL, "messages": user("Tell a story"), "max_tokens": 900, "ignore_eos": True, "n": 4, "temperature": 1})
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    assert eventually(lambda: len(live()) == 4, 5), live()
    connection.close()
    assert eventually(lambda: live() == [], 3), live()


@check("bad requests leave a running stream as it is")
def _():
    body = {"max_tokens": 300, "temperature": 0, "extra_body": {"ignore_eos": True}}
    alone = chat("Tell a long story", **body).choices[0].message.content
    got = {}

    def read():
        got["text"] = streamed(chat("Tell a long story", stream=True, **body))[0]

    reader = threading.Thread(target=read)
    reader.start()
    n = 0
    bad = [b"{", b"\xff", b'{"messages": 7}', b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', b'{"model": "none", "messages": []}', b"[" * 2000,
           json.dumps({"messages": user("x"), "guided_regex": "("}).encode(), json.dumps({"messages": user("word " * 30000)}).encode()]
    while reader.is_alive() and n < 400:
        status, _, text = request("POST", "/v1/chat/completions", raw=bad[n % len(bad)])
        assert 400 <= status < 500, (status, text)
        n += 1
    reader.join()
    equal(got["text"], alone)
    assert n >= 8, n


@check("many at once: every answer as when it was alone")
def _():
    def ask(i, out):
        out[i] = chat(f"Tell story number {i}", temperature=1.0, seed=i, max_tokens=24).choices[0].message.content

    alone, together = {}, {}
    for i in range(12):
        ask(i, alone)
    threads = [threading.Thread(target=ask, args=(i, together)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(together, alone)


@check("user and priority are taken; too many answers at once are refused with what to do")
def _():
    assert chat(user="somebody", extra_body={"priority": -5}).choices[0].finish_reason
    raises(openai.BadRequestError, lambda: oai.completions.create(model=MODEL, prompt=["x"] * 200, n=100, max_tokens=1), "fewer")


@check("server-sent events: the wire is as the specification has it")
def _():
    _, headers, text = request("POST", "/v1/chat/completions", {"model": MODEL, "messages": user("Hello"), "max_tokens": 4, "stream": True})
    assert headers["Content-Type"].startswith("text/event-stream"), headers
    events = [e for e in text.split("\n\n") if e and not e.startswith(":")]
    equal(events[-1], "data: [DONE]")
    for event in events[:-1]:
        assert event.startswith("data: {"), event
        json.loads(event[6:])
