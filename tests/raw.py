"""One connection without a driver: commands go out exactly as they are given, sessions and all."""
import socket
import struct

import bson


EXHAUST_ALLOWED = 1 << 16


def message(command, flags=0, **sequences):
    """A command as the bytes of a message; sequences of encoded documents, by their names, are sections of their own."""
    sections = b"\0" + bson.encode(command)
    for name, documents in sequences.items():
        name = name.encode() + b"\0"
        sections += b"\1" + struct.pack("<i", 4 + len(name) + len(documents)) + name + documents
    return struct.pack("<iiiiI", 20 + len(sections), 1, 0, 2013, flags) + sections


class Raw:
    def __init__(self, port, host="127.0.0.1", timeout=30):
        self.socket = socket.create_connection((host, port), timeout=timeout)

    @classmethod
    def over(cls, stream):
        """A connection that exists already: one over TLS, for example."""
        own = cls.__new__(cls)
        own.socket = stream
        return own

    def command(self, db, **fields):
        """Runs a command, its name the first field, and returns its reply, an error too."""
        self.send({**fields, "$db": db})
        return self.reply()

    def send(self, command, flags=0):
        """Sends a command, and does not wait for its reply."""
        self.socket.sendall(message(command, flags))

    def query(self, db, **fields):
        """Runs a command in the old form OP_QUERY, as drivers of MongoDB 3.4 and before do, and returns its reply."""
        body = struct.pack("<i", 0) + db.encode() + b".$cmd\0" + struct.pack("<ii", 0, -1) + bson.encode(fields)
        self.socket.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2004) + body)
        return bson.decode(self.receive()[20:])

    def reply(self):
        return bson.decode(self.receive()[5:])

    def receive(self):
        """The next message without its header."""
        size = struct.unpack("<iiii", self.exactly(16))[0]
        return self.exactly(size - 16)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(min(1 << 20, size - len(data)))
            if not chunk:
                raise EOFError("the server hung up")
            data += chunk
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
