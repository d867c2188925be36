"""Lambda's Invoke API in front of the official runtime emulator.

    invoke_api.py EMULATOR BOOTSTRAP SLOTS KEY SECRET [THROTTLED]

The emulator runs one environment, which serves one event at a time, and knows neither signatures nor
throttling nor the limit of an event. So there are SLOTS emulators behind this program, which

- refuses requests whose signature is not the one that botocore, AWS's own library, computes;
- answers 413 to an event that is too long;
- answers 429 where no environment is free, and besides to every THROTTLED-th request;
- marks a result that is an error as the Invoke API does.

Prints the port that it listens at; one request a line goes to standard error. It ends, and its
emulators with it, when standard input ends.
"""

import ctypes
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

PAYLOAD_BYTES_MAX = 6_291_556
PREFIX = "/2015-03-31/functions/"
EMULATED = PREFIX + "function/invocations"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Slot:
    """An environment."""

    def __init__(self, emulator, bootstrap):
        self.port = free_port()
        arguments = [emulator, "--log-level", "error"]
        arguments += ["--runtime-interface-emulator-address", f"127.0.0.1:{self.port}"]
        arguments += ["--runtime-api-address", f"127.0.0.1:{free_port()}", bootstrap]
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=die_with_parent
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def invoke(self, event):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=900)
        try:
            connection.request("POST", EMULATED, event)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    slots: "queue.Queue[Slot]" = queue.Queue()
    credentials = None
    throttled = 0
    requests = 0
    lock = threading.Lock()

    def do_POST(self):
        event = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, body = self.answer(event)
        with Api.lock:
            print("invoke", status, *headers.values(), len(event), len(body), file=sys.stderr)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, event):
        path = urlsplit(self.path).path
        if not (path.startswith(PREFIX) and path.endswith("/invocations")):
            return error(404, "ResourceNotFoundException", "no such path")
        problem = self.forged(event)
        if problem:
            return error(403, "InvalidSignatureException", problem)
        if path != PREFIX + "runner/invocations":
            return error(404, "ResourceNotFoundException", "no such function")
        if len(event) > PAYLOAD_BYTES_MAX:
            return error(413, "RequestEntityTooLargeException", "the event is too long")
        with Api.lock:
            Api.requests += 1
            is_throttled = Api.throttled and Api.requests % Api.throttled == 0
        if is_throttled:
            return error(429, "TooManyRequestsException", "Rate Exceeded.")
        try:
            slot = Api.slots.get_nowait()
        except queue.Empty:
            return error(429, "TooManyRequestsException", "Rate Exceeded.")
        try:
            status, body = slot.invoke(event)
        except OSError as problem:
            return error(502, "ServiceException", str(problem))
        finally:
            Api.slots.put(slot)
        if status != 200:
            return error(502, "ServiceException", body.decode("utf-8", "replace"))
        return 200, ({"X-Amz-Function-Error": "Unhandled"} if is_error(body) else {}), body

    def forged(self, event):
        """What is wrong with the signature, if anything is."""
        given = self.headers.get("Authorization", "")
        if "SignedHeaders=" not in given:
            return "there is none"
        signed = given.split("SignedHeaders=")[1].split(",")[0].split(";")
        scope = given.split("Credential=")[1].split(",")[0].split("/")
        if scope[3:5] != ["lambda", "aws4_request"] or "host" not in signed:
            return f"its scope is {scope}"
        headers = {name: self.headers[name] for name in signed if name != "x-amz-date"}
        url = f"http://{self.headers['Host']}{self.path}"
        request = AWSRequest("POST", url, data=event, headers=headers)
        # As SigV4Auth.add_auth does, but at the time of the request.
        request.context["timestamp"] = self.headers["x-amz-date"]
        request.headers["X-Amz-Date"] = self.headers["x-amz-date"]
        auth = SigV4Auth(Api.credentials, "lambda", scope[2])
        text = auth.string_to_sign(request, auth.canonical_request(request))
        expected = auth.signature(text, request)
        return None if given.endswith(f"Signature={expected}") else "it is another one"

    def log_message(self, *_):
        pass


def is_error(body):
    try:
        return "answer" not in json.loads(body)
    except ValueError:
        return True


def error(status, kind, message):
    body = json.dumps({"Type": "User", "message": message}).encode()
    return status, {"X-Amzn-ErrorType": kind}, body


def main():
    emulator, bootstrap, slots, key, secret, *throttled = sys.argv[1:]
    Api.credentials = Credentials(key, secret)
    Api.throttled = int(throttled[0]) if throttled else 0
    started = [Slot(emulator, bootstrap) for _ in range(int(slots))]
    for slot in started:
        Api.slots.put(slot)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    for slot in started:
        slot.process.kill()
    os._exit(0)


main()
