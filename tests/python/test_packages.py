"""The packages: each is made from the program under test, installed without a network, and used."""
import glob
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time

import pymongo
import pytest
import server

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="the packages are Marula's")

BINARY = server.serve_command()[0]


def make(folder, *kinds):
    """Makes packages with the version that the program says, and returns that version."""
    version = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    subprocess.run([os.path.join(server.ROOT, "packaging", "make"), BINARY, str(folder), version, *kinds], check=True,
                   stdout=subprocess.DEVNULL)
    return version


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    make(folder, "wheel", "archive", *(["deb"] if shutil.which("dpkg-deb") else []))
    yield str(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """The folder that the wheel is installed in."""
    folder = str(tmp_path_factory.mktemp("installed"))
    wheel, = glob.glob(os.path.join(packages, "*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                    "--disable-pip-version-check", "--target", folder, wheel], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def marula_server(installed):
    spec = importlib.util.spec_from_file_location(
        "marula_server", os.path.join(installed, "marula_server", "__init__.py"))
    module = importlib.util.module_from_spec(spec)
    was = os.environ.pop("MARULA_BIN", None)
    spec.loader.exec_module(module)
    yield module
    if was is not None:
        os.environ["MARULA_BIN"] = was


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.01)


def test_the_version_names_the_commit():
    said = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout
    assert re.fullmatch(r"marula \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}|unknown)\)\ndb version v6\.0\.27\n", said), said


@pytest.mark.skipif("release" not in BINARY, reason="sizes are those of the release build")
def test_the_program_is_small_without_debug_information(packages):
    assert os.path.getsize(os.path.join(packages, "marula")) < 40e6


def test_the_program_needs_glibc_alone(packages):
    told = subprocess.run(["objdump", "-p", os.path.join(packages, "marula")], check=True, capture_output=True,
                          text=True).stdout
    needed = set(re.findall(r"NEEDED\s+(\S+)", told))
    assert needed <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}, needed


def test_lines_are_in_the_other_file(packages):
    program = os.path.join(packages, "marula")
    sections = subprocess.run(["objdump", "-h", program], check=True, capture_output=True, text=True).stdout
    assert ".gnu_debuglink" in sections and ".debug_line" not in sections
    symbols = subprocess.run(["nm", os.path.join(packages, "marula.debug")], check=True, capture_output=True, text=True).stdout
    address = next(line.split()[0] for line in symbols.splitlines()
                   if re.search(r" [tT] .*marula_server.*dispatch", line))
    found = subprocess.run(["addr2line", "-Cfe", os.path.join(packages, "marula.debug"), "0x" + address], check=True,
                           capture_output=True, text=True).stdout
    assert re.search(r"\.rs:\d+", found), found


def test_a_server_in_memory(marula_server):
    with marula_server.start() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.test.c.insert_one({"_id": 1})
            assert client.test.c.find_one() == {"_id": 1}
            assert client.admin.command("serverStatus")["storageEngine"]["persistent"] is False
            assert client.admin.command("serverStatus")["pid"] == own.pid
        assert is_running(own.pid) and own.port > 0
        folder = os.path.dirname(own.log_path)
    assert not is_running(own.pid)
    assert not os.path.exists(folder)
    # A stopped server may be stopped again.
    own.stop()


def test_many_servers_at_once(marula_server):
    servers = [marula_server.start() for _ in range(5)]
    try:
        assert len({own.port for own in servers}) == 5
        for number, own in enumerate(servers):
            with pymongo.MongoClient(own.uri) as client:
                client.test.c.insert_one({"n": number})
                assert client.test.c.count_documents({}) == 1
    finally:
        for own in servers:
            own.stop()


def test_a_replica_set_of_one(marula_server):
    with marula_server.start(replica_set="rs0") as own, pymongo.MongoClient(own.uri) as client:
        client.test.c.insert_one({"_id": 0})
        with client.test.c.watch() as stream:
            with client.start_session() as session, session.start_transaction():
                client.test.c.insert_one({"_id": 1}, session=session)
            assert next(stream)["documentKey"] == {"_id": 1}


def test_a_folder_keeps_the_data(marula_server, tmp_path):
    for count in (1, 2):
        with marula_server.start(dbpath=tmp_path / "data") as own, pymongo.MongoClient(own.uri) as client:
            client.test.c.insert_one({})
            assert client.test.c.count_documents({}) == count


def test_a_start_that_fails_says_why(marula_server):
    with pytest.raises(marula_server.StartError, match="--nonsense"):
        marula_server.start("--nonsense")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(marula_server.StartError, match="in use by another process"):
            marula_server.start(port=taken.getsockname()[1])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_parent(installed, end):
    script = "import marula_server, time\nprint(marula_server.start().pid, flush=True)\ntime.sleep(600)"
    environment = {name: value for name, value in os.environ.items() if name != "MARULA_BIN"}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                              env=dict(environment, PYTHONPATH=installed))
    try:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(end)
        parent.wait(30)
        wait_until(lambda: not is_running(pid))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_the_command_of_the_wheel(installed):
    said = subprocess.run([sys.executable, "-m", "marula_server", "--version"], check=True, capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=installed)).stdout
    assert said.startswith("marula ")


def test_the_archive(packages, tmp_path):
    archive, = glob.glob(os.path.join(packages, "*.tar.gz"))
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    top, = os.listdir(tmp_path)
    assert subprocess.run([str(tmp_path / top / "bin" / "marula"), "--version"], check=True).returncode == 0
    assert {"README.md", "LICENSE", "marula.service", "marula.conf"} <= set(os.listdir(tmp_path / top))


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is Debian's")
    folder = tmp_path_factory.mktemp("deb")
    deb, = glob.glob(os.path.join(packages, "*.deb"))
    subprocess.run(["dpkg-deb", "-x", deb, str(folder)], check=True)
    subprocess.run(["dpkg-deb", "-e", deb, str(folder / "DEBIAN")], check=True)
    yield folder
    shutil.rmtree(folder)


def test_the_debian_package_tells_the_service_manager_when_it_is_ready(unpacked, tmp_path):
    unit = (unpacked / "usr/lib/systemd/system/marula.service").read_text()
    command = re.search("^ExecStart=/usr/bin/marula (.*)$", unit, re.M).group(1).split()
    assert "Type=notify" in unit and command == ["serve", "--config", "/etc/marula.conf"]
    port = server.free_port()
    # The package's own options, but for what belongs to the machine.
    options = ["--dbpath", str(tmp_path / "data"), "--log-path", str(tmp_path / "log"), "--port", str(port)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(30)
        own = subprocess.Popen([str(unpacked / "usr/bin/marula"), "serve", "--config",
                                str(unpacked / "etc/marula.conf"), *options],
                               env=dict(os.environ, NOTIFY_SOCKET=str(tmp_path / "notify")))
        try:
            ready = told.recv(4096).decode()
            assert ready.splitlines()[0] == "READY=1" and "127.0.0.1:%d" % port in ready
            # From then on connections are accepted, without a second attempt.
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            own.terminate()
            assert told.recv(4096) == b"STOPPING=1"
            assert own.wait(30) == 0
        finally:
            own.kill()
            own.wait()


def test_the_debian_package_is_whole(unpacked):
    control = (unpacked / "DEBIAN/control").read_text()
    assert re.search(r"^Depends: libc6 \(>= 2\.\d+\), libgcc-s1, adduser$", control, re.M)
    assert (unpacked / "DEBIAN/conffiles").read_text() == "/etc/marula.conf\n"
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", str(unpacked / "DEBIAN" / script)], check=True)
    documents = os.listdir(unpacked / "usr/share/doc/marula")
    assert {"README.md", "copyright", "metrics.md", "packages.md"} <= set(documents)


def test_the_image_copies_what_is_made(packages):
    with open(os.path.join(server.ROOT, "packaging/docker/Dockerfile"), encoding="utf-8") as file:
        text = file.read()
    # The context is target/package, not the whole checkout with its build cache.
    assert re.search(r"^#   docker build .* target/package$", text, re.M)
    copied = re.search(r"^COPY (\S+) ", text, re.M).group(1)
    assert copied in os.listdir(packages)
    # Its options are options of the server.
    entry = re.search(r"^ENTRYPOINT \[(.*)\]$", text, re.M).group(1)
    words = [word.strip().strip('"') for word in entry.split(",")]
    help_text = subprocess.run([BINARY, *words[1:2], "--help"], check=True, capture_output=True, text=True).stdout
    for word in words[2:]:
        if word.startswith("--"):
            assert word.replace("_", "-") in help_text.replace("_", "-"), word
