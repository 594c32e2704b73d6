"""Bytes that no driver sends: the server answers or hangs up, and goes on serving everyone else."""
import random
import socket
import struct

import bson
import pytest


@pytest.fixture
def address(uri):
    host, port = uri.split("//")[1].split("/")[0].split(":")
    return host, int(port)


def message(body, op=2013, length=None, flags=0):
    payload = struct.pack("<I", flags) + b"\0" + body if op == 2013 else body
    return struct.pack("<iiii", 16 + len(payload) if length is None else length, 1, 0, op) + payload


PING = bson.encode({"ping": 1, "$db": "admin"})


def exchange(address, data, wait=2.0):
    """Returns the bytes that the server sends until it is silent or closes."""
    with socket.create_connection(address, timeout=wait) as s:
        received = b""
        try:
            s.sendall(data)
            while True:
                chunk = s.recv(65536)
                if not chunk:
                    return received, True
                received += chunk
                if len(received) >= 4 and len(received) >= struct.unpack("<i", received[:4])[0]:
                    return received, False
        except (socket.timeout, ConnectionError):
            return received, None


@pytest.fixture(autouse=True)
def still_serving(client):
    yield
    assert client.admin.command("ping")["ok"] == 1.0


def reply_of(received):
    assert struct.unpack("<i", received[12:16])[0] == 2013
    return bson.decode(received[21:])


def test_a_ping_by_hand(address):
    received, _ = exchange(address, message(PING))
    assert reply_of(received)["ok"] == 1.0


@pytest.mark.parametrize("data", [
    message(PING, length=0), message(PING, length=-1), message(PING, length=15), message(PING, length=48_000_001),
    message(PING, length=2**31 - 1), message(PING, op=9999), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    message(PING, op=2012), message(b"", op=2012), message(b"\xff" * 20, op=2012),
], ids=range(10))
def test_a_frame_that_is_none_ends_the_connection(address, data):
    received, closed = exchange(address, data)
    assert closed in (True, None) or reply_of(received)["ok"] == 0.0


@pytest.mark.parametrize("body", [
    b"", b"\x05\0\0\0", b"\x04\0\0\0\0", b"\x05\0\0\0\0", b"\xff\xff\xff\x7f\0", PING[:-1], PING + b"\0",
    PING[:4] + b"\x99" + PING[5:], b"\x0c\0\0\0\x10a\0\x01\0\0\0\0"[:-1],
    bson.encode({"ping": 1}), bson.encode({"$db": "admin"}), bson.encode({"ping": 1, "$db": 5}),
    bson.encode({"ping": 1, "$db": ""}), bson.encode({"ping": 1, "$db": "a.b"}),
], ids=range(14))
def test_a_body_that_is_no_command_is_an_error(address, body):
    received, closed = exchange(address, message(body))
    assert closed in (True, None) or reply_of(received)["ok"] == 0.0


def test_a_required_flag_bit_that_is_unknown_is_refused(address):
    received, closed = exchange(address, message(PING, flags=1 << 5))
    assert closed in (True, None) or reply_of(received)["ok"] == 0.0


def test_random_damage(address):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    bodies = [PING, bson.encode({"find": "c", "filter": {"a": {"$gt": [1, {"b": "x"}]}}, "$db": "t_damage"}),
              bson.encode({"insert": "c", "documents": [{"_id": 1, "a": [1, 2.5, None]}], "$db": "t_damage"}),
              bson.encode({"aggregate": "c", "pipeline": [{"$match": {}}], "cursor": {}, "$db": "t_damage"})]
    for _ in range(150):
        data = bytearray(message(rng.choice(bodies)))
        for _ in range(rng.randrange(1, 6)):
            # The length stays: a damaged length only makes the server wait for bytes that do not
            # come.
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        exchange(address, bytes(data), wait=0.1)


def test_a_message_in_pieces(address):
    data = message(PING)
    with socket.create_connection(address, timeout=5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        assert reply_of(s.recv(65536))["ok"] == 1.0


def test_two_messages_in_one_piece(address):
    with socket.create_connection(address, timeout=5) as s:
        s.sendall(message(PING) * 2)
        received, end = b"", 4
        while len(received) < 2 * end:
            received += s.recv(65536)
            end = struct.unpack_from("<i", received.ljust(4, b"\0"))[0]
        assert reply_of(received[:end])["ok"] == reply_of(received[end:])["ok"] == 1.0


def test_undefined_counts_as_no_array_filter(address):
    # No driver sends an undefined value.
    for last, told in ((b"", 0), (b"\x102\0\1\0\0\0", 14)):
        filters = b"\x060\0" + b"\x0a1\0" + last
        fields = bson.encode({"findAndModify": "c", "update": {"$set": {"a": 1}}, "$db": "nothing"})[4:-1]
        fields += b"\x04arrayFilters\0" + struct.pack("<i", len(filters) + 5) + filters + b"\0"
        received, _ = exchange(address, message(struct.pack("<i", len(fields) + 5) + fields + b"\0"))
        assert reply_of(received).get("code", 0) == told


def test_other_protocols_are_told(address):
    received, closed = exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received.startswith(b"HTTP/1.0 200 OK") and b"native driver port" in received
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(200)
    received, closed = exchange(address, hello, wait=10)
    assert (received, closed) == (b"", True)


@pytest.mark.parametrize("command, codes", [
    ({"ping": 1}, [None]), ({"find": "c"}, [None]), ({"drop": "nowhere"}, [26]),
    ({"hello": 1}, [40472]), ({"count": "c"}, [40472]), ({"distinct": "c", "key": "a"}, [40472]),
    ({"insert": "c", "documents": [{}]}, [40415]), ({"delete": "c", "deletes": []}, [40415]),
])
@pytest.mark.parametrize("name", ["", "xyz"])
def test_document_sequences_that_a_command_does_not_read(address, command, codes, name):
    documents = name.encode() + b"\0" + bson.encode({"a": 1})
    section = b"\1" + struct.pack("<i", 4 + len(documents)) + documents
    received, _ = exchange(address, message(bson.encode({**command, "$db": "wire"}) + section))
    assert reply_of(received).get("code") in codes, reply_of(received)
