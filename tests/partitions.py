"""Networks that can be cut: TCP connections on loopback pass through here, and are held where a cut is.

What is sent into a cut is neither lost nor answered with a reset: it arrives when the cut has healed, also if its sender has given up
meanwhile. Connections can be made, and stay silent.
"""
import re
import socket
import threading

FROM = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)
ANYBODY = ""


class Network:
    """Ways to servers. Each has a source, as far as that is known, and a target, which are names."""

    def __init__(self):
        self.changed = threading.Condition()
        self.cuts = set()
        # By the ids under which sources present themselves.
        self.names = {}
        self.listeners = []
        self.is_open = True

    def way(self, source, target, port):
        """A new port from which connections are passed on to `port`; `source` may be a function of the first bytes."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.listeners.append(listener)
        threading.Thread(target=self.accept, args=(listener, source, target, port), daemon=True).start()
        return listener.getsockname()[1]

    def cut(self, *pairs):
        """Holds what goes from one name to another, from here on: `("a", "b")` is one direction."""
        with self.changed:
            self.cuts.update(pairs)

    def cut_off(self, name, others):
        """Holds what goes from a name to others, and back."""
        self.cut(*[pair for other in others for pair in ((name, other), (other, name))])

    def heal(self):
        with self.changed:
            self.cuts.clear()
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.is_open = False
            self.changed.notify_all()
        for listener in self.listeners:
            # A thread that accepts wakes up by this, not by a close.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def accept(self, listener, source, target, port):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(near, source, target, port), daemon=True).start()

    def connect(self, near, source, target, port):
        first = b""
        try:
            if callable(source):
                first = near.recv(1 << 16)
                source = source(first)
            far = socket.create_connection(("127.0.0.1", port))
        except OSError:
            near.close()
            return
        back = threading.Thread(target=self.pass_on, args=(far, near, target, source, b""), daemon=True)
        back.start()
        self.pass_on(near, far, source, target, first)
        back.join()
        near.close()
        far.close()

    def is_cut(self, source, target):
        return (self.names.get(source, source), self.names.get(target, target)) in self.cuts

    def pass_on(self, reader, writer, source, target, chunk):
        try:
            while True:
                chunk = chunk or reader.recv(1 << 16)
                if not chunk:
                    break
                with self.changed:
                    self.changed.wait_for(lambda: not self.is_cut(source, target) or not self.is_open)
                if not self.is_open:
                    break
                writer.sendall(chunk)
                chunk = b""
        except OSError:
            pass
        for end in (reader, writer):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def sender(first):
    """The id of the etcd server that sends these bytes to another."""
    found = FROM.search(first)
    return found.group(1).decode() if found else ANYBODY
