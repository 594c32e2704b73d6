"""A load of many connections from one thread: each has one request in progress. Plain or over TLS, signed in or not."""
import base64
import hashlib
import hmac
import os
import select
import socket
import ssl
import struct
import time

import bson
from raw import Raw

WARM_UP_S = 0.5


def ask(stream, command):
    """Sends a command and waits for its reply, which must be a success."""
    connection = Raw.over(stream)
    connection.send(command)
    reply = connection.reply()
    assert reply["ok"] == 1, reply
    return reply


def sign_in(stream, user, password):
    """SCRAM-SHA-256, as RFC 7677 has it; the server's own proof is not looked at."""
    nonce = base64.b64encode(os.urandom(18)).decode()
    first = "n=%s,r=%s" % (user, nonce)
    begun = ask(stream, {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,," + first.encode(),
                         "options": {"skipEmptyExchange": True}, "$db": "admin"})
    challenge = begun["payload"].decode()
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    key = (password, parts["s"], parts["i"])
    if key not in SALTED:
        SALTED[key] = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(SALTED[key], b"Client Key", "sha256")
    without_proof = "c=biws,r=" + parts["r"]
    signed = hmac.digest(hashlib.sha256(client_key).digest(), ",".join([first, challenge, without_proof]).encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signed))).decode()
    ask(stream, {"saslContinue": 1, "conversationId": begun["conversationId"], "$db": "admin",
                 "payload": ("%s,p=%s" % (without_proof, proof)).encode()})


# Hashed passwords by password, salt and rounds: a hundred connections would compute the same one.
SALTED = {}


def connect(port, context, login):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context:
        stream = context.wrap_socket(stream, server_hostname="localhost")
    if login:
        sign_in(stream, *login)
    stream.setblocking(False)
    return stream


def drive(told, ports, connections, make, seconds, ca=None, login=None):
    """Sends the messages that `make(connection, number)` returns, for `seconds` after a warm-up, over connections to each of
    `ports` in turn. Reports the start of the measurement, and then its seconds and, for each operation, when its reply came
    and after how long, both in seconds."""
    context = ssl.create_default_context(cafile=ca) if ca else None
    streams = [connect(ports[number % len(ports)], context, login) for number in range(connections)]
    waiting = select.epoll()
    by_number = {stream.fileno(): (number, stream) for number, stream in enumerate(streams)}
    replies = {}
    began = [time.monotonic()] * connections
    for descriptor in by_number:
        waiting.register(descriptor, select.EPOLLIN)
    sent = 0
    for number, stream in enumerate(streams):
        stream.sendall(make(number, sent))
        sent += 1
    begin, done = time.monotonic(), None
    while True:
        now = time.monotonic()
        if done is None and now - begin >= WARM_UP_S:
            told.send(None)
            begin, done = now, []
        elif done is not None and now - begin >= seconds:
            told.send((now - begin, done))
            return
        for descriptor, _ in waiting.poll(1):
            number, stream = by_number[descriptor]
            try:
                chunk = stream.recv(1 << 16)
            except (ssl.SSLWantReadError, BlockingIOError):
                continue
            assert chunk, "the server has closed a connection"
            reply = replies.pop(descriptor, b"") + chunk
            if len(reply) < 4 or len(reply) < struct.unpack_from("<i", reply)[0]:
                replies[descriptor] = reply
                continue
            # The field `ok` with the double 1.0: every reply is a success.
            assert b"\x01ok\0\0\0\0\0\0\0\xf0\x3f" in reply, bson.decode(reply[21:])
            now = time.monotonic()
            if done is not None:
                done.append((now - begin, now - began[number]))
            began[number] = now
            stream.sendall(make(number, sent))
            sent += 1
