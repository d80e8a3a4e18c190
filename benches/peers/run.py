"""Runs `fencepost route` and its peers on the same rows and the same broker, in turns, and prints a Markdown table.

Every turn has a topic of its own. The rate is rows read ÷ the time from the first append to the last by the broker's own
clock, so that nobody's start and stop counts; CPU and memory are the whole process, by wait4. Each topic is then read back
and compared with the rows. What cannot run says "skipped" and why. script/bench peers starts it beside a broker.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "target" / os.environ.get("PEERS_PROFILE", "release")
FENCEPOST = BUILD / "fencepost"
FIELD = BUILD / "examples/field"
PYTHON = ROOT / "target/peers-venv/bin/python"
# One `send_and_wait` at a time takes a round trip a row: all rows would take the morning.
FEW = 100


class Peer:
    """Someone who takes turns. `command` is given the topic and a scratch folder."""

    def __init__(self, name, command, skipped=None, rows=None, keyed=True, stdin=None, environment=None):
        self.name, self.command, self.skipped, self.rows = name, command, skipped, rows
        self.keyed, self.stdin, self.environment = keyed, stdin, environment
        self.turns = []


def peers(options, rows_file, keyed_file):
    broker = options.bootstrap

    def route(topic, scratch):
        config = scratch / "fencepost.toml"
        config.write_text(
            f'[topic]\nname = "{topic}"\n[kafka]\nbootstrap = "{broker}"\n[state]\ndir = "{scratch}/state"\n'
        )
        return [FENCEPOST, "route", "-c", config, "--json"]

    def asyncio_router(*words):
        return lambda topic, _: [PYTHON, HERE / "asyncio_router.py", "--bootstrap", broker, "--topic", topic, *words]

    def performance(topic, _):
        return [
            ROOT / "script/kafka", "tool", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
            "--num-records", str(options.rows), "--payload-file", rows_file, "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={broker}", "acks=all", "enable.idempotence=true",
        ]  # fmt: skip

    def kcat(topic, _):
        return [
            "kcat", "-P", "-b", broker, "-t", topic, "-K", "\t", "-l", "-X", "acks=all", "-X", "enable.idempotence=true",
            "-X", "partitioner=murmur2_random", "-X", "linger.ms=5", "-X", "queue.buffering.max.messages=1000000",
            keyed_file,
        ]  # fmt: skip

    benthos = os.environ.get("BENTHOS", "")
    no_python = None if PYTHON.exists() else "aiokafka could not be installed"
    return [
        Peer("fencepost route", route, stdin=rows_file),
        Peer("kcat (librdkafka), keyed, no dedup", kcat, None if shutil.which("kcat") else "there is no kcat"),
        Peer("ProducerPerformance, rows at random, no key, no dedup", performance, keyed=False),
        Peer("asyncio, 64 workers, a lane a device", asyncio_router("--workers", "64", "--lanes"), no_python,
             stdin=rows_file),
        Peer("asyncio, 64 workers on one queue", asyncio_router("--workers", "64"), no_python, stdin=rows_file),
        Peer(f"asyncio, 1 worker, 1/{FEW} of the rows", asyncio_router("--rows", str(options.rows // FEW)), no_python,
             rows=options.rows // FEW, stdin=rows_file),
        Peer("Redpanda Connect", lambda *_: [benthos, "run", HERE / "benthos.yaml"],
             None if benthos else "BENTHOS does not name its binary", stdin=rows_file,
             environment=lambda topic: {"BOOTSTRAP": broker, "TOPIC": topic}),
    ]  # fmt: skip


def field(*words):
    done = subprocess.run([FIELD, *map(str, words)], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def turn(peer, options, topic, rows_file, few_file):
    field("topic", "--bootstrap", options.bootstrap, "--topic", topic, "--partitions", options.partitions)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as scratch:
        command = [str(word) for word in peer.command(topic, Path(scratch))]
        environment = dict(os.environ) | (peer.environment(topic) if peer.environment else {})
        with open(peer.stdin or os.devnull, "rb") as stdin, open(Path(scratch) / "out", "w+b") as out:
            began = time.monotonic()
            process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            took = time.monotonic() - began
            if process.returncode != 0:
                out.seek(0)
                text = out.read().decode(errors="replace")[-2000:]
                raise SystemExit(f"{peer.name} ended with {process.returncode}:\n{text}")
    rows = peer.rows or options.rows
    found = json.loads(
        field("check", "--bootstrap", options.bootstrap, "--topic", topic, "--input", few_file if peer.rows else rows_file)
    )
    one = {
        "rate": rows * 1000 / found["took_ms"], "wall_s": took, "cpu_us": (used.ru_utime + used.ru_stime) * 1e6 / rows,
        "rss_mb": used.ru_maxrss / 1024, **found,
    }  # fmt: skip
    print(f"  {peer.name}: {one}", file=sys.stderr)
    return one


def spread(turns, what, show):
    values = [one[what] for one in turns]
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def verdict(peer):
    total = {what: sum(one[what] for one in peer.turns) for what in ("missing", "repeats", "misordered", "scattered", "foreign")}
    if not peer.keyed:
        return "no order: no key"
    order = "in order" if total["misordered"] + total["scattered"] == 0 else f"**{total['misordered']:,} misordered**"
    repeats = "no repeats" if total["repeats"] == 0 else f"{total['repeats'] // len(peer.turns):,} repeats a turn"
    lost = "" if total["missing"] + total["foreign"] == 0 else f", **{total['missing']:,} missing, {total['foreign']:,} foreign**"
    return f"{order}, {repeats}{lost}"


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--bootstrap", required=True)
    words.add_argument("--rows", type=int, default=200_000)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--partitions", type=int, default=12)
    options = words.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        rows_file, keyed_file, few_file = (Path(folder) / name for name in ("rows", "keyed", "few"))
        text = field("input", "--rows", options.rows, "--seed", options.seed)
        rows_file.write_text(text)
        lines = text.splitlines(keepends=True)
        few_file.write_text("".join(lines[: options.rows // FEW]))
        # kcat ends a key at a zero byte, which some ids have; without it the key is still one per device.
        key_of = lambda line: json.loads(line)["device_id"].replace("\0", "")  # noqa: E731
        keyed_file.write_text("".join(f"{key_of(line)}\t{line}" for line in lines))
        everyone = peers(options, rows_file, keyed_file)
        able = [peer for peer in everyone if not peer.skipped]
        for round_of in range(options.rounds):
            # Each round begins with another one.
            for at in range(len(able)):
                peer = able[(round_of + at) % len(able)]
                topic = f"peers-{os.getpid()}-{round_of}-{everyone.index(peer)}"
                peer.turns.append(turn(peer, options, topic, rows_file, few_file))
    print(f"{options.rows:,} rows, {options.partitions} partitions, {options.rounds} rounds; median (least to most)\n")
    print("| who | rows/s | CPU a row | memory | order per device, repeats |")
    print("|---|---|---|---|---|")
    for peer in everyone:
        if peer.skipped:
            print(f"| {peer.name} | skipped: {peer.skipped} | | | |")
            continue
        rate = spread(peer.turns, "rate", lambda value: f"{value:,.0f}")
        cpu = spread(peer.turns, "cpu_us", lambda value: f"{value:,.1f}")
        memory = f"{statistics.median(one['rss_mb'] for one in peer.turns):,.0f} MB"
        print(f"| {peer.name} | {rate} | {cpu} µs | {memory} | {verdict(peer)} |")


main()
