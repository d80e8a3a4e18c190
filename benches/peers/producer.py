"""Kafka's own ProducerPerformance at its defaults (acks=all, idempotent) and `fencepost bench ceiling` with tuning/throughput.toml,
in turns on one broker; prints a Markdown table and the ratio. script/bench performance starts it beside a broker."""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD_BYTES = 86


def performance(options):
    command = [
        ROOT / "script/kafka", "tool", "org.apache.kafka.tools.ProducerPerformance", "--topic", "performance",
        "--num-records", options.records, "--record-size", RECORD_BYTES, "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={options.bootstrap}", "acks=all", "enable.idempotence=true",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    last = done.stdout.decode().strip().splitlines()[-1]
    found = re.search(r"([\d.]+) records/sec", last)
    if not found:
        raise SystemExit(f"ProducerPerformance ended with: {last}")
    return float(found[1])


def ceiling(options):
    command = [
        ROOT / "target/release/fencepost", "bench", "ceiling", "--kafka", options.bootstrap, "-c",
        ROOT / "tuning/throughput.toml", "--seconds", options.seconds, "--json", "-",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    figures = {one["name"]: one["value"] for one in json.loads(done.stdout)["outcome"]["figures"]}
    return figures["rate"]


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--bootstrap", required=True)
    words.add_argument("--pairs", type=int, default=5)
    words.add_argument("--records", type=int, default=2_500_000)
    words.add_argument("--seconds", type=int, default=5)
    options = words.parse_args()
    turns = []
    for pair in range(options.pairs):
        order = [performance, ceiling] if pair % 2 == 0 else [ceiling, performance]
        found = {who: who(options) for who in order}
        turns.append((found[performance], found[ceiling]))
        print(f"  pair {pair + 1}: {turns[-1][0]:,.0f} and {turns[-1][1]:,.0f}/s", file=sys.stderr)
    ratios = [ours / theirs for theirs, ours in turns]
    head = " | ".join(f"pair {pair + 1}" for pair in range(options.pairs))
    print(f"| | {head} | median |\n|---|{'---|' * options.pairs}---|")
    for name, values, show in [
        (f"ProducerPerformance, {options.records:,} records of {RECORD_BYTES} bytes", [one[0] for one in turns], "{:,.0f}/s"),
        ("fencepost bench ceiling, throughput.toml", [one[1] for one in turns], "{:,.0f}/s"),
        ("ratio", ratios, "{:.2f}"),
    ]:
        print(f"| {name} | {' | '.join(show.format(value) for value in values)} | {show.format(statistics.median(values))} |")


main()
