"""Starts servers, and runs checks against them."""

import argparse
import base64
import json
import re
import signal
import subprocess
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"

parser = argparse.ArgumentParser(description="Checks the server with the clients of OpenAI and Anthropic, and in Chromium.")
parser.add_argument("binary", help="the server, inkstone-serve")
parser.add_argument("--only", default="", metavar="NAME", help="a part of the names of the checks to run")
parser.add_argument("--picture", metavar="FILE", help="where a picture of the page goes, a PNG file")
ARGUMENTS = parser.parse_args()


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [ARGUMENTS.binary, "--port", "0", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self.process.stdout.readline()
        match = re.search(r"http://\S+", line)
        if match is None:
            raise RuntimeError(f"the server does not start: {line!r}")
        self.url = match.group()
        self.model = line.split(" on ")[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def post(self, path, body, headers=()):
        """Returns the status and the JSON of the answer to a raw request."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"content-type": "application/json", **dict(headers)}, method="POST"
        )
        return self._send(request)

    def get(self, path, headers=()):
        return self._send(urllib.request.Request(self.url + path, headers=dict(headers)))

    def _send(self, request):
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except json.JSONDecodeError:
            return status, text

    def metric(self, name, headers=()):
        _, text = self.get("/metrics", headers)
        return float(re.search(rf"^inkstone_{name} (\S+)$", text, re.M).group(1))

    def wait_for(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}")
            time.sleep(0.02)


class Checks:
    """Functions that raise an error if something is wrong."""

    def __init__(self):
        self.functions = []

    def __call__(self, function):
        self.functions.append(function)
        return function

    def run(self, title, *arguments):
        """Runs the checks that the command line asks for, and returns the numbers of good and bad ones."""
        print(f"\n== {title}", flush=True)
        good = bad = 0
        for function in self.functions:
            if ARGUMENTS.only not in function.__name__:
                continue
            start = time.monotonic()
            try:
                function(*arguments)
            except Exception:
                bad += 1
                print(f"FAILED  {function.__name__}\n{traceback.format_exc()}", flush=True)
            else:
                good += 1
                print(f"ok      {function.__name__} ({time.monotonic() - start:.2f} s)", flush=True)
        return good, bad


def raises(kind, call, *words):
    """Returns the error that a call raises, whose text has these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"`{word}` is not in `{error}`"
        return error
    raise AssertionError(f"{kind.__name__} is not raised")


def image_url(name):
    """Returns a picture of the test data as a data URL."""
    return "data:image/png;base64," + image_data(name)


def image_data(name):
    return base64.b64encode((DATA / name).read_bytes()).decode()


WEATHER = {
    "type": "object",
    "properties": {"place": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["place", "days"],
    "additionalProperties": False,
}

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
