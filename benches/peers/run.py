"""Runs `fencepost route` and its peers on the same rows and the same broker, in turns, and prints a Markdown table.

Every turn has a topic of its own. The rate is rows read ÷ the time from the first append to the last by the broker's own
clock, so that nobody's start and stop counts; beside it, rows ÷ the whole life of the process. CPU and memory are the whole
process, by wait4. Each topic is then read back and compared with the rows: whoever keys by device must have all of them, in
order, and `fencepost route` each once, or the exit code is 1. The slow take their turn with a part of the rows. What cannot
run says "skipped" and why. script/bench peers, and script/bench route, start it beside a broker.
"""

import argparse
import itertools
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
# What takes ten thousand rows a second gets a tenth, and one `send_and_wait` at a time, a round trip a row, a thousandth:
# all rows would take the morning.
TENTH, THOUSANDTH = 10, 1_000


class Peer:
    """Someone who takes turns. `command` is given the topic and a scratch folder."""

    def __init__(self, name, command, skipped=None, part=1, keyed=True, stdin=False, environment=None, once=False):
        self.name, self.command, self.skipped, self.part = name, command, skipped, part
        self.keyed, self.stdin, self.environment, self.once = keyed, stdin, environment, once
        self.turns = []


def peers(options):
    broker = options.bootstrap

    def route(topic, _, scratch):
        config = scratch / "fencepost.toml"
        config.write_text(
            f'[topic]\nname = "{topic}"\n[kafka]\nbootstrap = "{broker}"\n[state]\ndir = "{scratch}/state"\n'
        )
        return [FENCEPOST, "route", "-c", config, "--json"]

    def raw(topic, rows, _):
        return [
            FIELD, "raw", "--bootstrap", broker, "--topic", topic, "--partitions", options.partitions, "--input", rows.file,
        ]  # fmt: skip

    def asyncio_router(*words):
        return lambda topic, *_: [PYTHON, HERE / "asyncio_router.py", "--bootstrap", broker, "--topic", topic, *words]

    def performance(topic, rows, _):
        return [
            ROOT / "script/kafka", "tool", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
            "--num-records", rows.count, "--payload-file", rows.file, "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={broker}", "acks=all", "enable.idempotence=true",
        ]  # fmt: skip

    def kcat(topic, rows, _):
        return [
            "kcat", "-P", "-b", broker, "-t", topic, "-K", "\t", "-l", "-X", "acks=all", "-X", "enable.idempotence=true",
            "-X", "partitioner=murmur2_random", "-X", "linger.ms=5", "-X", "queue.buffering.max.messages=1000000",
            rows.keyed(),
        ]  # fmt: skip

    benthos = os.environ.get("BENTHOS", "")
    no_python = None if PYTHON.exists() else "aiokafka could not be installed"
    everyone = [
        Peer("fencepost route", route, stdin=True, once=True),
        Peer("librdkafka alone, frames made beforehand, no dedup", raw),
        Peer("kcat (librdkafka), keyed, no dedup", kcat, None if shutil.which("kcat") else "there is no kcat"),
        Peer("ProducerPerformance, rows at random, no key, no dedup", performance, keyed=False),
        Peer(f"asyncio, 64 workers, a lane a device, 1/{TENTH} of the rows", asyncio_router("--workers", "64", "--lanes"),
             no_python, part=TENTH, stdin=True),
        Peer(f"asyncio, 64 workers on one queue, 1/{TENTH} of the rows", asyncio_router("--workers", "64"), no_python,
             part=TENTH, stdin=True),
        Peer(f"asyncio, 1 worker, 1/{THOUSANDTH} of the rows", asyncio_router(), no_python, part=THOUSANDTH, stdin=True),
        Peer("Redpanda Connect", lambda *_: [benthos, "run", HERE / "benthos.yaml"],
             None if benthos else "BENTHOS does not name its binary", stdin=True,
             environment=lambda topic: {"BOOTSTRAP": broker, "TOPIC": topic}),
    ]  # fmt: skip
    return everyone[: options.first] if options.first else everyone


class Rows:
    """So many of the rows, in a file. None of them stay in memory: what a process has had at most counts from before its exec."""

    def __init__(self, all_rows, count):
        self.count, self.file = count, all_rows.with_name(f"rows-{count}")
        with open(all_rows, "rb") as source, open(self.file, "wb") as target:
            target.writelines(itertools.islice(source, count))

    def keyed(self):
        """With the key in front. kcat ends a key at a zero byte, which some ids have; without it the key is still one per device."""
        keyed = self.file.with_suffix(".keyed")
        if not keyed.exists():
            with open(self.file) as source, open(keyed, "w") as target:
                for line in source:
                    target.write(json.loads(line)["device_id"].replace("\0", "") + "\t" + line)
        return keyed


def field(*words):
    done = subprocess.run([FIELD, *map(str, words)], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def turn(peer, options, topic, rows):
    field("topic", "--bootstrap", options.bootstrap, "--topic", topic, "--partitions", options.partitions)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as scratch:
        command = [str(word) for word in peer.command(topic, rows, Path(scratch))]
        environment = dict(os.environ) | (peer.environment(topic) if peer.environment else {})
        with open(rows.file if peer.stdin else os.devnull, "rb") as stdin, open(Path(scratch) / "out", "w+b") as out:
            began = time.monotonic()
            process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            took = time.monotonic() - began
            if process.returncode != 0:
                out.seek(0)
                text = out.read().decode(errors="replace")[-2000:]
                raise SystemExit(f"{peer.name} ended with {process.returncode}:\n{text}")
    found = json.loads(field("check", "--bootstrap", options.bootstrap, "--topic", topic, "--input", rows.file))
    one = {
        "rate": rows.count * 1000 / found["took_ms"], "life_rate": rows.count / took,
        "cpu_us": (used.ru_utime + used.ru_stime) * 1e6 / rows.count, "rss_mb": used.ru_maxrss / 1024, **found,
    }  # fmt: skip
    print(f"  {peer.name}: {one}", file=sys.stderr)
    return one


def spread(turns, what, show):
    values = [one[what] for one in turns]
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def totals(peer):
    kinds = ("missing", "repeats", "misordered", "scattered", "foreign")
    return {what: sum(one[what] for one in peer.turns) for what in kinds}


def is_wrong(peer):
    """Whether it broke what it promises; only what is keyed by device promises an order, and only a router no repeats."""
    total = totals(peer)
    promised = total["missing"] + total["foreign"] + total["misordered"] + total["scattered"]
    return peer.once and promised + total["repeats"] > 0


def verdict(peer):
    total = totals(peer)
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
    words.add_argument("--again", metavar="FILE", help="a recording to play over and over, in place of the fleet's rows")
    words.add_argument("--first", type=int, metavar="N", help="the first N of the table alone")
    options = words.parse_args()
    everyone = peers(options)
    able = [peer for peer in everyone if not peer.skipped]
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        again = ("--again", options.again) if options.again else ()
        all_rows = Path(folder) / "all"
        with open(all_rows, "wb") as target:
            made = [FIELD, "input", "--rows", options.rows, "--seed", options.seed, *again]
            subprocess.run([str(word) for word in made], stdout=target, check=True)
        parts = {part: Rows(all_rows, max(1, options.rows // part)) for part in {peer.part for peer in able}}
        for round_of in range(options.rounds):
            # Each round begins with another one.
            for at in range(len(able)):
                peer = able[(round_of + at) % len(able)]
                topic = f"peers-{os.getpid()}-{round_of}-{everyone.index(peer)}"
                peer.turns.append(turn(peer, options, topic, parts[peer.part]))
    print(f"{options.rows:,} rows, {options.partitions} partitions, {options.rounds} rounds; median (least to most)\n")
    print("| who | rows/s | of librdkafka alone, round by round | rows/s of its whole life | CPU a row | memory at most | order per device, repeats |")
    print("|---|---|---|---|---|---|---|")
    alone = next(peer for peer in everyone if "alone" in peer.name)
    for peer in everyone:
        if peer.skipped:
            print(f"| {peer.name} | skipped: {peer.skipped} | | | | | |")
            continue
        rate, life = (spread(peer.turns, what, lambda value: f"{value:,.0f}") for what in ("rate", "life_rate"))
        ratios = [{"of": one["rate"] / other["rate"]} for one, other in zip(peer.turns, alone.turns)]
        ratio = spread(ratios, "of", lambda value: f"{value:.2f}")
        cpu = spread(peer.turns, "cpu_us", lambda value: f"{value:,.1f}")
        memory = f"{max(one['rss_mb'] for one in peer.turns):,.0f} MB"
        print(f"| {peer.name} | {rate} | {ratio} | {life} | {cpu} µs | {memory} | {verdict(peer)} |")
    wrong = [peer.name for peer in able if is_wrong(peer)]
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")


main()
