"""What the checks share: the clients under test, plain HTTP beside them, and the list of checks."""
import http.client
import json
import os
import time

import anthropic
import openai

PORT = int(os.environ["RIDGE_PORT"])
MODEL = os.environ["RIDGE_MODEL"]
KEY = os.environ["RIDGE_KEY"]
ON_TINY = os.environ.get("RIDGE_SUITE", "tiny") == "tiny"

oai = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=KEY, max_retries=0, timeout=120)
claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{PORT}", api_key=KEY, max_retries=0, timeout=120)

CHECKS = []


def check(name):
    def keep(function):
        CHECKS.append((name, function))
        return function

    return keep


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, expected {want!r}"


def is_in(part, whole):
    assert part in whole, f"{part!r} is not in {whole!r}"


def raises(kind, call, *words, status=None):
    """The exception of this very type, whose message has the words."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        assert type(error) is kind, f"{type(error).__name__} ({error}) instead of {kind.__name__}"
        for word in words:
            is_in(word, str(error))
        if status is not None:
            equal(error.status_code, status)
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def request(method, path, body=None, headers=None, raw=None):
    """Status, headers and text over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"} | (headers or {}))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def get(path):
    status, _, text = request("GET", path)
    equal(status, 200, text)
    return json.loads(text)


def post(path, body, want=200):
    status, _, text = request("POST", path, body)
    equal(status, want, text)
    return json.loads(text)


def lines(path, body):
    """An NDJSON stream."""
    status, headers, text = request("POST", path, body)
    equal(status, 200, text)
    equal(headers["Content-Type"], "application/x-ndjson")
    return [json.loads(line) for line in text.splitlines()]


def user(text):
    return [{"role": "user", "content": text}]


def chat(text="Hello", **more):
    more = {"max_tokens": 16, "temperature": 0} | more
    messages = more.pop("messages", user(text))
    return oai.chat.completions.create(model=MODEL, messages=messages, **more)


def streamed(chunks):
    """Text, finish reason and all chunks of a chat stream of one choice."""
    chunks = list(chunks)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    finish = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    equal(len(finish), 1, "finish reasons")
    return text, finish[0], chunks


NO_THOUGHT = {"chat_template_kwargs": {"enable_thinking": False}}      # a random thought of a tiny model does not end


def eventually(is_so, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.01)
    return is_so()


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False},
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def is_person(value):
    equal(sorted(value), ["age", "kind", "name"])
    assert isinstance(value["name"], str) and len(value["name"]) <= 12, value
    assert isinstance(value["age"], int) and 0 <= value["age"] <= 120, value
    is_in(value["kind"], ["cat", "dog"])


def is_weather(arguments):
    equal(sorted(arguments), ["city", "days"])
    is_in(arguments["city"], ["Paris", "Rome"])
    assert 1 <= arguments["days"] <= 9, arguments
