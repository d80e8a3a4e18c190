"""linger.ms and batch.size against rate and latency: `fencepost bench ceiling` and `bench e2e` on one broker, the settings in
turns, and a Markdown table of the medians. script/field linger starts it beside a broker.

The rate is what the router does as fast as it goes; P99 is at a steady rate, from when a trigger was due to when it and
all before it are acknowledged, of the router and of bare librdkafka with the same settings.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FENCEPOST = Path(__file__).resolve().parent.parent.parent / "target/release/fencepost"
KIB = 1024
# The default is 5 ms and 16 KiB; one of the two moves at a time, and last both.
SETTINGS = [(linger, 16 * KIB) for linger in (0, 1, 5, 20, 50)] + [(5, 4 * KIB), (5, 64 * KIB), (5, 1024 * KIB), (20, 128 * KIB)]


def bench(config, what, *words):
    command = [str(FENCEPOST), "bench", what, "--json", "-", "-c", str(config), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    # 1 says that the router shed some at this rate; its figures stand all the same, and the table tells.
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return {one["name"]: one["value"] for one in json.loads(done.stdout)["outcome"]["figures"]}


def text(values, show):
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--bootstrap", required=True)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--seconds", type=int, default=3)
    words.add_argument("--rate", type=int, default=20_000)
    options = words.parse_args()
    found = {setting: [] for setting in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "fencepost.toml"
        for round_of in range(options.rounds):
            for at in range(len(SETTINGS)):
                linger, batch = setting = SETTINGS[(at + round_of) % len(SETTINGS)]
                config.write_text(
                    '[topic]\nname = "field-linger"\ncreate = true\n'
                    f'[kafka]\nbootstrap = "{options.bootstrap}"\n'
                    f'[kafka.properties]\n"linger.ms" = {linger}\n"batch.size" = {batch}\n'
                    # An acknowledgement is late only well above the linger.
                    f'[publish]\ntimeout = "{linger + 100}ms"\n'
                )
                rate = bench(config, "ceiling", "--seconds", options.seconds)
                e2e = bench(config, "e2e", "--seconds", options.seconds, "--rate", options.rate)
                one = {
                    "rate": rate["rate"], "cpu": rate["cpu_ns"], "shed": e2e["shed"],
                    "p50": e2e["ack_p50_ns"] / 1e6, "p99": e2e["ack_p99_ns"] / 1e6, "raw": e2e["raw_ack_p99_ns"] / 1e6,
                }  # fmt: skip
                print(f"  {setting}: {one}", file=sys.stderr)
                found[setting].append(one)
    print(f"{options.rounds} rounds of {options.seconds} s; latencies at {options.rate:,}/s; median (least to most)\n")
    print("| linger.ms | batch.size | most triggers/s | CPU a trigger | P50 | P99 | P99, raw librdkafka |")
    print("|---|---|---|---|---|---|---|")
    for (linger, batch), turns in found.items():
        of = lambda what, show: text([one[what] for one in turns], show)  # noqa: E731
        ms = lambda value: f"{value:.1f} ms"  # noqa: E731
        shed = sum(one["shed"] for one in turns)
        print(
            f"| {linger} | {batch // KIB} KiB | {of('rate', lambda value: f'{value:,.0f}')} |"
            f" {statistics.median(one['cpu'] for one in turns):,.0f} ns | {of('p50', ms)} | {of('p99', ms)} | {of('raw', ms)} |"
            + (f" {shed:,} shed" if shed else "")
        )


main()
