"""A router of the usual asyncio design, on aiokafka: reads the rows that `fencepost route` reads, from standard input, and
sends each to the topic, keyed by its device.

A bounded asyncio.Queue between reader and workers; a set of keys with a time-to-live in front of the producer; a circuit
breaker around it; `send_and_wait` with acks=all and idempotence. `--workers N` share one queue. With `--lanes` each
worker has a queue of its own and a device always goes to the same one, which keeps its order with more than one
worker. Prints one JSON object at the end. It is a peer to measure against, not a part of the product.
"""

import argparse
import asyncio
import json
import sys
import time
import zlib
from collections import deque

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


class Seen:
    """Keys of the last `ttl` seconds; the oldest go first."""

    def __init__(self, ttl):
        self.ttl, self.keys, self.order = ttl, set(), deque()

    def is_repeat(self, key):
        now = time.monotonic()
        while self.order and now - self.order[0][0] > self.ttl:
            self.keys.discard(self.order.popleft()[1])
        if key in self.keys:
            return True
        self.keys.add(key)
        self.order.append((now, key))
        return False


class Breaker:
    """Closed until `limit` failures in a row; then open for `pause` seconds, then one try."""

    def __init__(self, limit=5, pause=1.0):
        self.limit, self.pause, self.failures, self.until = limit, pause, 0, 0.0
        self.opened = 0

    async def wait(self):
        while (left := self.until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def note(self, is_good):
        if is_good:
            self.failures = 0
            return
        self.failures += 1
        if self.failures >= self.limit:
            self.until = time.monotonic() + self.pause
            self.opened += 1


def read(line):
    row = json.loads(line)
    device = row["device_id"].encode()
    return device, (device, row["fence_id"], row["state"], row["event_time_ms"] // 1000), line


async def work(queue, producer, topic, seen, breaker, counts):
    while (row := await queue.get()) is not None:
        device, key, line = row
        if seen.is_repeat(key):
            counts["deduplicated"] += 1
            continue
        while True:
            await breaker.wait()
            try:
                await producer.send_and_wait(topic, line, key=device)
                breaker.note(True)
                counts["delivered"] += 1
                break
            except KafkaError as error:
                breaker.note(False)
                print(f"asyncio_router: {error!r}", file=sys.stderr)


async def run(options):
    counts = {"read": 0, "delivered": 0, "deduplicated": 0, "malformed": 0}
    seen, breaker = Seen(options.dedup_ttl), Breaker()
    each = max(1, options.queue // (options.workers if options.lanes else 1))
    queues = [asyncio.Queue(maxsize=each) for _ in range(options.workers if options.lanes else 1)]
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap, acks="all", enable_idempotence=True, linger_ms=options.linger_ms
    )
    await producer.start()
    try:
        workers = [
            asyncio.create_task(work(queues[n % len(queues)], producer, options.topic, seen, breaker, counts))
            for n in range(options.workers)
        ]
        for line in sys.stdin.buffer:
            if options.rows and counts["read"] == options.rows:
                break
            counts["read"] += 1
            try:
                row = read(line.rstrip(b"\n"))
            except (ValueError, KeyError, TypeError):
                counts["malformed"] += 1
                continue
            await queues[zlib.crc32(row[0]) % len(queues)].put(row)
        for n in range(options.workers):
            await queues[n % len(queues)].put(None)
        await asyncio.gather(*workers)
    finally:
        await producer.stop()
    print(json.dumps(counts | {"breaker_opened": breaker.opened}))


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--bootstrap", required=True)
    words.add_argument("--topic", required=True)
    words.add_argument("--workers", type=int, default=1)
    words.add_argument("--lanes", action="store_true")
    words.add_argument("--queue", type=int, default=10_000)
    words.add_argument("--linger-ms", type=int, default=5)
    words.add_argument("--dedup-ttl", type=float, default=10.0)
    words.add_argument("--rows", type=int, default=0, help="stop after so many rows; 0 reads all")
    asyncio.run(run(words.parse_args()))


main()
