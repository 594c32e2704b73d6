#!/usr/bin/env python3
"""Compares Marula with mongod 6.0's recorded answers and holds every area to its bar.

    check.py                     starts the release build on a free port
    check.py --target URI        a server that runs already
    check.py --area A --show 20  one area, with its differences
    check.py --raise             lifts the floors in bars.json to what was reached now; never lowers one

bars.json holds two tables: `required` is a share of an area's probes (0.95), `floors` is the number of probes that
agreed before. An area below its bar fails the run.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import probe  # noqa: E402
import server  # noqa: E402

BARS = os.path.join(HERE, "bars.json")
# The area that is probed with access control switched on, on a server of its own.
GUARDED = "authorization"


def initiate(uri):
    """The probes speak to a one-node replica set: sessions, transactions and change streams are among them."""
    conn = probe.Conn(probe.Server(uri), timeout=20)
    conn.cmd({"replSetInitiate": {}, "$db": "admin"})
    for _ in range(400):
        if conn.cmd({"hello": 1, "$db": "admin"}).get("isWritablePrimary"):
            break
        probe.time.sleep(0.05)
    conn.close()


def run(target, args):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "result.json")
        command = [sys.executable, os.path.join(HERE, "probe.py"), "--oracle", os.path.join(HERE, "oracle-6.0.json"),
                   "--target", target, "--json", out, "--show", str(args.show)]
        for name, values in (("--area", args.area), ("--name", args.name)):
            for value in values or ():
                command += [name, value]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if not os.path.exists(out):
            sys.exit("the probe did not run:\n" + done.stdout)
        with open(out, encoding="utf-8") as f:
            return json.load(f), done.stdout


def run_own(args, *options):
    """Runs the probes against a server of their own; with --auth as its root."""
    with server.Server("--replSet", "rs0", *options) as own:
        initiate(own.uri)
        uri = own.uri
        if "--auth" in options:
            conn = probe.Conn(probe.Server(uri), timeout=20)
            conn.cmd({"createUser": "root", "pwd": "root", "roles": ["root"], "$db": "admin"})
            conn.close()
            uri = uri.replace("://", "://root:root@").replace("/?", "/admin?")
        result = run(uri, args)
        if own.process.poll() is not None:
            sys.exit("the server ended during the probe:\n" + own.tail())
        return result


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target")
    options.add_argument("--area", action="append")
    options.add_argument("--name", action="append")
    options.add_argument("--show", type=int, default=0, help="how many differences to print")
    options.add_argument("--raise", dest="lift", action="store_true", help="lift the floors to what was reached")
    args = options.parse_args()

    if args.target:
        result, text = run(args.target, args)
    elif args.area == [GUARDED]:
        result, text = run_own(args, "--auth")
    else:
        result, text = run_own(args)
        if not args.area or GUARDED in args.area:
            args.area = [GUARDED]
            guarded, more = run_own(args, "--auth")
            text += more
            result["areas"].update(guarded["areas"])
            for name in ("same", "total", "seconds"):
                result[name] += guarded[name]
    if args.show:
        print(text)

    with open(BARS, encoding="utf-8") as f:
        bars = json.load(f)
    failed = []
    print("%-28s %11s %7s %6s" % ("area", "same", "", "bar"))
    for area, count in sorted(result["areas"].items()):
        same, total = count["same"], count["total"]
        bar = max(math.ceil(bars["required"].get(area, 0) * total), bars["floors"].get(area, 0))
        missed = same < bar and not args.name
        print("%-28s %5d/%-5d %6.1f%% %6d%s" % (area, same, total, 100.0 * same / total, bar,
                                                 "  BELOW" if missed else ""))
        if missed:
            failed.append(area)
        if args.lift and not args.name:
            # One in a hundred depends on timing (a slow machine, a counter that moves): the floor
            # leaves it room.
            bars["floors"][area] = max(bars["floors"].get(area, 0), same - math.ceil(same / 100))
    print("%-28s %5d/%-5d %6.1f%%  in %.1f s" % ("all", result["same"], result["total"],
                                                  100.0 * result["same"] / result["total"], result["seconds"]))
    if args.lift:
        with open(BARS, "w", encoding="utf-8") as f:
            json.dump(bars, f, indent=2, sort_keys=True)
            f.write("\n")
    if failed:
        sys.exit("surface: below the bar: %s (differences: make probe ARGS='--show 20 --area \"%s\"')"
                 % (", ".join(failed), failed[0]))
    print("surface: every area is at its bar")


if __name__ == "__main__":
    main()
