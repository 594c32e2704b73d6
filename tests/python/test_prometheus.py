"""A real Prometheus reads the metrics, and answers every query of the dashboard and every alert of docs/metrics.md."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pymongo
import pytest
import server
from test_metrics import Metered, panels, work

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="mongod has no such endpoint"), pytest.mark.embedded]

CONFIGURATION = """
global: {scrape_interval: 500ms}
scrape_configs:
  - job_name: marula
    static_configs:
      - targets: ["127.0.0.1:%d"]
"""


@pytest.fixture(scope="module")
def prometheus():
    """The path of the program; the tests are skipped where there is none."""
    return server.prepared("prometheus")


@pytest.fixture(scope="module")
def own():
    with Metered("--replSet", "rs0") as own:
        yield own


def is_ready(port):
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen("http://127.0.0.1:%d/-/ready" % port, timeout=10):
        return True


@pytest.fixture(scope="module")
def query(prometheus, own, tmp_path_factory):
    """Evaluates an expression in a Prometheus that has read the server's metrics while it worked, twice at least: rates need that."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(CONFIGURATION % own.metrics_port)
    port = server.free_port()
    command = [prometheus, "--config.file", str(folder / "prometheus.yml"), "--storage.tsdb.path", str(folder / "data"),
               "--web.listen-address", "127.0.0.1:%d" % port]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def query(expression):
        url = "http://127.0.0.1:%d/api/v1/query?" % port + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            pytest.fail("%s: %s" % (expression, error.read().decode()))

    try:
        with pymongo.MongoClient(own.uri) as client:
            with contextlib.suppress(pymongo.errors.OperationFailure):
                client.admin.command("replSetInitiate")
            until = time.monotonic() + 60
            while not (is_ready(port) and query('count_over_time(marula_command_failures_total{command="find"}[1m]) > 1')):
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                work(client.metrics)
                client.drop_database("metrics")
                time.sleep(0.25)
        yield query
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_the_metrics_keep_to_the_conventions(prometheus, own):
    _, text = own.get("/metrics")
    checked = subprocess.run([os.path.join(os.path.dirname(prometheus), "promtool"), "check", "metrics"],
                             input=text, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_every_panel_of_the_dashboard_shows_something(query):
    for title, expression in panels():
        for name, value in (("$__rate_interval", "1m"), ("$instance", ".*")):
            expression = expression.replace(name, value)
        assert "$" not in expression, (title, expression)
        assert query(expression), (title, expression)


def test_every_alert_sees_the_server_and_leaves_a_healthy_one_alone(query):
    with open(os.path.join(server.ROOT, "docs", "metrics.md"), encoding="utf-8") as page:
        alerts = re.findall(r"^\| (`[^|]*[<>=] ?[0-9][^|]*) \|", page.read(), re.M)
    alerts = [expression for cell in alerts for expression in re.findall("`([^`]+)`", cell)]
    assert len(alerts) > 6
    for alert in alerts:
        # What is compared is there, and a healthy server is not reported.
        for comparison in alert.split(" and "):
            assert query(re.sub(" [<>=]+ [0-9]+$", "", comparison)), comparison
        assert not query(alert), alert
