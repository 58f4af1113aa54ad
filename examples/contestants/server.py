"""A server of the published entity in Python's standard library: a thread for each connection, a dictionary, a lock."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

entities = {}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body of an answer leave together

    def answer(self, status, body=b""):
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        try:
            key = int(self.path[1:])
        except ValueError:
            return self.answer(400)
        with lock:
            entity = entities.get(key)
        if entity is None:
            return self.answer(404)
        self.answer(200, json.dumps(entity, ensure_ascii=False, separators=(",", ":")).encode())

    do_HEAD = do_GET

    def do_PUT(self):
        try:
            entity = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            entity = {key: kind(entity[key]) for key, kind in (("id", int), ("description", str), ("value", float))}
        except (ValueError, KeyError, TypeError):
            return self.answer(400)
        with lock:
            is_new = entity["id"] not in entities
            entities[entity["id"]] = entity
        self.answer(201 if is_new else 200)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
