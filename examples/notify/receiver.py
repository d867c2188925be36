"""Prints what a webhook sends, and ignores what has come before: its key says so."""

import http.server

seen = set()


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        key = self.headers["Idempotency-Key"]
        if key not in seen:
            print(self.path, body, flush=True)
        # A receiver in earnest keeps its keys on a disk, for as long as a restart may take.
        seen.add(key)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
