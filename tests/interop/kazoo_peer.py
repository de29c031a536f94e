"""A process with locks of kazoo, told what to do line by line: `mutex PATH`, `read PATH`, `write PATH`,
`release`, `wait PATH`, `set PATH`, `lift PATH`, `both PATH PARTIES`, `leave-both`, `count PATH TIMES`, `join PATH NAME DATA`, `members`, `part`, `put PATH TEXT PRIORITY`, `get PATH`, `offer PATH TEXT PRIORITY`, `lock-next PATH`, `consume`, `let-go`. It answers `in`
and `out`, or a number, each with the time (`in @NANOSECONDS`) by the clock that the processes of a machine
share, and ends with its input."""

import sys
import time

from kazoo.client import KazooClient

# What the tickets of others end in, in front of their sequence.
OTHERS = ["lock-", "__WRIT__"]


def main() -> None:
    client = KazooClient(hosts=sys.argv[1], timeout=2.0)
    client.start()
    say("ready")
    held = None
    party = None
    both = None
    locking = None
    for line in sys.stdin:
        verb, *path = line.split()
        if verb == "count":
            number = client.Counter(path[0])
            for _ in range(int(path[1])):
                number += 1
            say(str(number.value))
            continue
        if verb == "release":
            held.release()
            say("out")
            continue
        if verb in ("wait", "set", "lift"):
            barrier = client.Barrier(path[0])
            {"wait": barrier.wait, "set": barrier.create, "lift": barrier.remove}[verb]()
            say("out" if verb == "set" else "in")
            continue
        if verb == "both":
            both = client.DoubleBarrier(path[0], int(path[1]))
            both.enter()
            say("in")
            continue
        if verb == "leave-both":
            both.leave()
            say("out")
            continue
        if verb == "join":
            party = client.Party(path[0], path[2])
            party.join()
            say("in")
            continue
        if verb == "members":
            say(",".join(sorted(party)))
            continue
        if verb == "put":
            client.Queue(path[0]).put(path[1].encode(), int(path[2]))
            say("in")
            continue
        if verb == "get":
            item = client.Queue(path[0]).get()
            say("none" if item is None else item.decode())
            continue
        if verb == "offer":
            client.LockingQueue(path[0]).put(path[1].encode(), int(path[2]))
            say("in")
            continue
        if verb == "lock-next":
            locking = client.LockingQueue(path[0])
            item = locking.get(timeout=20)
            say("none" if item is None else item.decode())
            continue
        if verb in ("consume", "let-go"):
            done = locking.consume() if verb == "consume" else locking.release()
            say("out" if done else "not held")
            continue
        if verb == "part":
            party.leave()
            say("out")
            continue
        make = {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}[verb]
        others = OTHERS if verb == "read" else [*OTHERS, "__READ__"]
        held = make(path[0], "kazoo", extra_lock_patterns=others)
        held.acquire()
        say("in")
    client.stop()


def say(word: str) -> None:
    print(f"{word} @{time.monotonic_ns()}", flush=True)


main()
