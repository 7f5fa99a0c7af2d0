"""A server with the page's files and scripted answers: what a model would say only by chance (an attack, a tool call, a refusal) comes here when the question asks for it."""
import http.server
import json
import os
import threading
import time

KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
# As `ridge serve` sends it.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

ATTACK = """<script>window.owned = 1</script> <img src=x onerror="window.owned = 2">

[click](javascript:window.owned=3) [data](data:text/html,<script>window.owned=4</script>) ![x](javascript:window.owned=5) <javascript:window.owned=6>

<a href="javascript:window.owned=7">a</a> [quote](https://a.example/"onmouseover="window.owned=8) `<svg onload=window.owned=9>`

```html"><img src=x onerror=window.owned=10>
</code></pre><script>window.owned = 11</script>
```

| <img src=x onerror=window.owned=12> | b |
|---|---|
| <iframe srcdoc="<script>parent.owned=13</script>"> | [x](vbscript:window.owned=14) |

- [x] <style>body { display: none }</style>
- ![pixel](https://tracker.example/pixel.png)"""

MARKDOWN = """A **decoded token** costs the *bytes* it moves, so `ridge` moves fewer of them. See [the roofline](https://en.wikipedia.org/wiki/Roofline_model).

## What a step does

1. The scheduler grants tokens.
2. Batch lays them out as a step:
   - one copy to the device
   - one broadcast to ranks
3. The decoder walks the blocks.

| format | bits | tok/s |
|:--|--:|--:|
| q8_0 | 8.5 | 41.2 |
| q4_0 | 4.5 | 76.9 |

```cpp
// One forward pass.
for (const Sequence& s : batch) {
  const float share = 0.83f;         // of the roofline
  step.add(s.id, "decode", share);
}
```

> Every byte is accounted for.

- [x] measured
- [ ] estimated

***Both*** and ~~neither~~, snake_case_names, 2 * 3 * 4, and a_b."""

DEEP = ">" * 3000 + " deep\n\n" + "*a " * 20000 + "\n\n" + "[" * 20000 + "\n\n" + "`" * 20000 + "\n\n" + "- " * 2000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        wanted = self.server.api_key
        if not wanted or self.headers.get("Authorization") == f"Bearer {wanted}":
            return True
        self.reply(401, json.dumps({"error": {"message": "an API key is needed", "type": "authentication_error"}}).encode())
        return False

    def do_GET(self):
        name = self.path.split("?")[0].lstrip("/") or "index.html"
        path = os.path.join(self.server.web, os.path.basename(name))
        if os.path.isfile(path):
            with open(path, "rb") as f:
                return self.reply(200, f.read(), KINDS[os.path.splitext(path)[1]])
        if name == "v1/models":
            return self.allowed() and self.reply(200, json.dumps({"data": [{"id": name} for name in self.server.models]}).encode())
        if name == "live":
            return self.allowed() and self.reply(200, json.dumps(self.server.figures()).encode())
        return self.reply(404, b'{"error": {"message": "no such page"}}')

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        self.server.requests.append(request)
        question = request["messages"][-1]["content"]
        if question == "refuse":
            return self.reply(400, json.dumps({"error": {"message": "temperature must be at least 0 <b>now</b>", "type": "invalid_request_error"}}).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.stream(request, question)
        except (BrokenPipeError, ConnectionResetError):
            self.server.n_gone += 1

    def say(self, delta, finish=None, **more):
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
        self.wfile.write(f": a comment\r\ndata: {json.dumps(chunk)}\r\n\r\n".encode())
        self.wfile.flush()
        self.server.n_tokens += 1

    def stream(self, request, question):
        self.say({"role": "assistant", "content": ""})
        finish, delay = "stop", 0.0
        if question == "think":
            for word in ["First ", "I ", "reason. "]:
                self.say({"reasoning_content": word})
            text = "Then I answer."
        elif question == "tool":
            self.say({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]})
            for piece in ['{"pl', 'ace": "Os', 'lo"}']:
                self.say({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            text, finish = "", "tool_calls"
        elif request["messages"][-1]["role"] == "tool":
            text = f"It is {question} in Oslo."
        elif question == "slow":
            text, delay = "word " * 2000, 0.02
        elif question == "break":
            self.say({"content": "half an ans"})
            self.wfile.write(b'data: {"error": {"message": "the device failed", "code": 500}}\n\n')
            return
        elif question == "short":
            text, finish = "Once upon", "length"
        elif request.get("continue_final_message"):
            text = " a time."
        else:
            text, delay = {"attack": ATTACK, "markdown": MARKDOWN, "deep": DEEP}.get(question, f"You said: {question}"), 0.001
        for at in range(0, len(text), 7 if len(text) < 50000 else 5000):
            self.say({"content": text[at:at + (7 if len(text) < 50000 else 5000)]})
            time.sleep(delay)
        self.say({}, finish)
        usage = {"prompt_tokens": 40, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 32}}
        self.wfile.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, web, api_key=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.web, self.api_key, self.models = web, api_key, ["scripted"]
        self.requests, self.n_gone, self.n_tokens, self.n_polls = [], 0, 0, 0
        self.began = time.monotonic()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def close(self):
        self.shutdown()
        self.server_close()

    def figures(self):
        self.n_polls += 1
        t = time.monotonic() - self.began
        n = self.n_tokens
        return {"model": "scripted", "device": "none", "version": "0", "uptime_s": t, "max_context": 4096, "max_seqs": 16, "time": t, "running": self.n_polls % 3, "waiting": self.n_polls % 2, "bandwidth": 20e9,
                "total": {"prompt_tokens": 40 * self.n_polls, "cached_tokens": 30 * self.n_polls, "generated_tokens": n, "requests": len(self.requests), "preemptions": 0, "steps": n, "bytes": n * 300e6, "step_seconds": n * 0.02},
                "kv": {"pages": 512, "used": 10 + self.n_polls % 7, "shared": 4, "cached": 100, "page_tokens": 64, "bytes": 123456789}}
