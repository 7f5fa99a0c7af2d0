"""A local server that speaks the routes of the Hugging Face Hub that `ridge pull` uses, with the mishaps of a real network on request.

Large files (`lfs`) answer with a redirect to another origin and are named by their SHA-256; small ones by git's SHA-1, behind a relative redirect as the Hub has it.
"""
import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    def __init__(self, repository, files, token=None):
        self.repository, self.files, self.token = repository, files, token      # files: {path: (bytes, is_lfs)}
        self.cut_after = {}         # path -> bytes after which the next transfer of it breaks off
        self.damaged = set()        # paths whose bytes are wrong
        self.ignore_ranges = False
        self.listing = None         # names that the repository claims to have, instead of those it has
        self.requests = []          # (method, path, headers)
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.elsewhere = f"http://localhost:{self.port}"          # another origin, as the Hub's storage is
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def etag(self, path):
        data, lfs = self.files[path]
        return hashlib.sha256(data).hexdigest() if lfs else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def answer(self, request):
        path = urllib.parse.unquote(request.path)
        self.requests.append((request.command, path, dict(request.headers)))
        home = request.headers.get("Host", "").startswith("127.0.0.1")
        if self.token and home and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.plain(request, 401, b"Unauthorized", {"X-Error-Message": "Invalid username or password."})
        if path.startswith(f"/api/models/{self.repository}/revision/"):
            names = self.listing if self.listing is not None else list(self.files)
            body = json.dumps({"id": self.repository, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}).encode()
            return self.plain(request, 200, body, {"Content-Type": "application/json"})
        resolve = f"/{self.repository}/resolve/"
        if path.startswith(resolve):
            name = path[len(resolve):].split("/", 1)[1]
            if name not in self.files:
                return self.plain(request, 404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
            headers = {"X-Repo-Commit": COMMIT}
            if self.files[name][1]:
                headers |= {"X-Linked-Etag": f'"{self.etag(name)}"', "X-Linked-Size": str(len(self.files[name][0])), "Location": f"{self.elsewhere}/storage/{name}"}
                return self.plain(request, 302, b"", headers)
            return self.plain(request, 307, b"", headers | {"Location": f"/api/resolve-cache/{name}"})
        for prefix in ("/storage/", "/api/resolve-cache/"):
            if path.startswith(prefix):
                return self.send_file(request, path[len(prefix):])
        return self.plain(request, 404, b"Repository not found", {"X-Error-Code": "RepoNotFound"})

    def plain(self, request, status, body, headers):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def send_file(self, request, name):
        data, lfs = self.files[name]
        if name in self.damaged:
            data = bytes([data[0] ^ 1]) + data[1:]
        first, span = 0, request.headers.get("Range")
        if span and not self.ignore_ranges:
            first = int(span.removeprefix("bytes=").rstrip("-"))
        request.send_response(206 if first else 200)
        if first:
            request.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        request.send_header("ETag", f'"{"storage-" if lfs else ""}{self.etag(name)}"')
        request.send_header("X-Repo-Commit", COMMIT)
        request.send_header("Content-Length", str(len(data) - first))
        request.end_headers()
        if request.command == "HEAD":
            return
        body = data[first:]
        if name in self.cut_after:
            request.wfile.write(body[:self.cut_after.pop(name)])
            request.wfile.flush()
            request.close_connection = True
            request.connection.close()
            return
        request.wfile.write(body)
