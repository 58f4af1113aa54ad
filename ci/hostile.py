#!/usr/bin/env python3
"""Clients that a server must survive: they reset, stall, stop to read, close half, pipeline, flood, send nonsense, and, over TLS, ask for a
renegotiation. Each does so again and again, on several connections at a time, for a number of seconds.

hostile.py HOST PORT SECONDS [CA]    with CA: over TLS, with this authority
"""

import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

HOST, PORT, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
CA = sys.argv[4] if len(sys.argv) > 4 else None
END = time.monotonic() + SECONDS
GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
CONTEXT = ssl.create_default_context(cafile=CA) if CA else None


def connect():
    sock = socket.create_connection((HOST, PORT), timeout=5)
    return CONTEXT.wrap_socket(sock, server_hostname=HOST) if CONTEXT else sock


def get():
    return GET % random.randrange(1, 1000)


def put():
    body = b'{"id":%d,"description":"%s","value":1.5}' % (random.randrange(1, 1000), b"x" * random.randrange(2000))
    return b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def reset(sock):
    """Closes with a reset: what was received and not read is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def resets():
    with connect() as sock:
        request = random.choice([get(), put()])
        sock.sendall(request[: random.randrange(len(request) + 1)])
        reset(sock)


def stalls():
    """Sends a part of a request, and the rest byte by byte, for a while."""
    with connect() as sock:
        request = random.choice([get(), put(), b""])
        sent = random.randrange(len(request) + 1)
        sock.sendall(request[:sent])
        until = min(END, time.monotonic() + random.random() * 3)
        while time.monotonic() < until:
            time.sleep(0.2)
            sock.sendall(request[sent : sent + 1])
            sent += 1


def stops_to_read():
    with connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(1)
        try:
            for _ in range(200):
                sock.sendall(get() * 50)
        except TimeoutError:
            pass
        time.sleep(random.random())
        reset(sock)


def closes_half():
    with connect() as sock:
        sock.sendall(random.choice([get(), put(), get()[:9], put()[:-1]]))
        if not CONTEXT:
            sock.shutdown(socket.SHUT_WR)
        sock.settimeout(2)
        while sock.recv(65536):
            pass


def pipelines():
    with connect() as sock:
        sock.sendall(b"".join(random.choice([get, put])() for _ in range(100)) + b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        sock.settimeout(5)
        while sock.recv(65536):
            pass


def floods():
    socks = [socket.create_connection((HOST, PORT), timeout=5) for _ in range(50)]
    for sock in socks:
        sock.close()


def sends_nonsense():
    with connect() as sock:
        sock.sendall(random.choice([random.randbytes(200), b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n", b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz"]))
        sock.settimeout(2)
        while sock.recv(65536):
            pass


def renegotiates():
    """The server speaks TLS: openssl asks for a renegotiation, which is refused."""
    command = ["openssl", "s_client", "-connect", f"{HOST}:{PORT}", "-CAfile", CA, "-tls1_2"]
    subprocess.run(command, input=b"R\n", capture_output=True, timeout=10, check=False)


def garbles():
    """Over TLS: bytes that are no record, during the handshake or after it."""
    with socket.create_connection((HOST, PORT), timeout=5) as sock:
        sock.sendall(b"\x16\x03\x01" + random.randbytes(100))
        sock.settimeout(2)
        while sock.recv(65536):
            pass


KINDS = [resets, stalls, stops_to_read, closes_half, pipelines, floods, sends_nonsense]
KINDS += [renegotiates, garbles] if CA else []
counts = dict.fromkeys(KINDS, 0)


def repeat(kind):
    while time.monotonic() < END:
        try:
            kind()
        except (OSError, subprocess.TimeoutExpired):
            pass  # the server may refuse and close as it likes
        counts[kind] += 1
        time.sleep(0.01)


threads = [threading.Thread(target=repeat, args=(kind,)) for kind in KINDS for _ in range(8 if kind is stalls else 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(" ".join(f"{kind.__name__} {count}" for kind, count in counts.items()))
if min(counts.values()) == 0:
    sys.exit("a kind of client has done nothing")
