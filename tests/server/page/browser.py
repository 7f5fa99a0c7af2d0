"""A real Chromium, driven through its own driver (W3C WebDriver over HTTP, standard library alone)."""
import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from live_server import free_port

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "shift": "\ue008"}


def missing():
    """Why there is no browser, or an empty string."""
    names = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"{' and '.join(names)} not installed (Debian: apt-get install chromium chromium-driver)" if names else ""


class Driver:
    """The driver's process; makes browsers."""

    def __init__(self):
        self.port = free_port()
        self.process = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + 30
        while True:
            try:
                if self.call("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if time.time() > end:
                raise RuntimeError("chromedriver does not start")
            time.sleep(0.1)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(json.load(e)["value"]["message"].split("\n")[0]) from None

    def browser(self, width=1360, height=860, dark=False, telephone=False):
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", f"--window-size={width},{height}"]
        options = {"args": args, "binary": shutil.which("chromium")}
        if dark:
            args.append("--force-dark-mode")                 # as a system that prefers dark; pages are not recoloured
        if telephone:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2, "touch": True, "mobile": True}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        return Browser(self, f"/session/{session['sessionId']}")

    def quit(self):
        self.process.terminate()
        self.process.wait(10)


class Browser:
    def __init__(self, driver, path):
        self.driver, self.path = driver, path

    def call(self, method, path, body=None):
        return self.driver.call(method, self.path + path, body if method == "GET" or method == "DELETE" else body or {})

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def reload(self):
        self.call("POST", "/refresh")

    def js(self, script, *args):
        """The value of an expression in the page; `args` are arguments[0], ..."""
        return self.call("POST", "/execute/sync", {"script": f"return ({script})", "args": list(args)})

    def text(self, selector):
        return self.js("document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def count(self, selector):
        return self.js("document.querySelectorAll(arguments[0]).length", selector)

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text, clear=False):
        element = self.find(selector)
        if clear:
            self.call("POST", f"/element/{element}/clear")
        self.call("POST", f"/element/{element}/value", {"text": text})

    def wait(self, what, condition, seconds=30):
        """Waits until the condition (an expression, or a function) holds."""
        end = time.time() + seconds
        while True:
            value = self.js(condition) if isinstance(condition, str) else condition()
            if value:
                return value
            if time.time() > end:
                raise AssertionError(f"waited {seconds} s in vain: {what}")
            time.sleep(0.05)

    def picture(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", "/screenshot")))

    def console(self):
        """What the page complained about since the last call (errors and warnings of scripts, security and the network)."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"}) if entry["level"] in ("SEVERE", "WARNING")]

    def accept_downloads(self, folder):
        self.call("POST", "/goog/cdp/execute", {"cmd": "Browser.setDownloadBehavior", "params": {"behavior": "allow", "downloadPath": folder}})

    def quit(self):
        self.call("DELETE", "")
