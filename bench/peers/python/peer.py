"""kazoo as a racer: a task on each line of the input, an answer on each line of the output."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient

DIR = "/kazoo-bench"
PERMITS = 4
BUNCH = 20
ITEMS = 1000
# For how long the members of a partition must be the same: as short as kazoo goes on with.
STABLE = 0.01
DATA = b"x" * 100
# With more threads than these it is no longer kazoo that is measured, but Python.
MOST_WAITERS = 100


class Peer:
    def __init__(self, address, session):
        self.address = address
        self.session = session
        self.clients = []

    def run(self, task):
        works = {
            "get-local": self.nodes,
            "get": self.nodes,
            "set": self.nodes,
            "create-delete": self.nodes,
            "lock": self.locks,
            "lock-contended": self.contended,
            "lock-tasks": self.one_process,
            "drain": self.drain,
            "semaphore": self.semaphore,
            "read-write": self.read_write,
            "increment": self.increment,
            "increment-tasks": self.increment_tasks,
            "partition": self.partition,
            "double-barrier": self.rounds,
            "queue-take": self.taken,
            "queue-ack": self.acknowledged,
            "queue-bunches": self.in_bunches,
            "observe": self.observe,
        }
        work = works.get(task["work"])
        if work is None or task["clients"] > MOST_WAITERS:
            return {"missing": task["work"]}
        return work(task)

    def nodes(self, task):
        client = self.sessions(1)[0]
        client.ensure_path(f"{DIR}/made")
        lanes = []
        for lane in range(task["clients"]):
            node, made = f"{DIR}/nodes/{lane}", f"{DIR}/made/{lane}"
            client.ensure_path(node)
            client.set(node, DATA)
            lanes.append(lane_of(client, task["work"], node, made))
        return drive(task, lanes)

    def locks(self, task):
        client = self.sessions(1)[0]
        return drive(task, [cycle(client.Lock(f"{DIR}/locks/{n}")) for n in range(task["clients"])])

    def contended(self, task):
        count, inside = task["clients"], []
        path = f"{DIR}/contended/{count}"
        locks = [client.Lock(path) for client in self.sessions(count)]
        return drive(task, [cycle(lock, inside) for lock in locks])

    def one_process(self, task):
        client, inside = self.sessions(1)[0], []
        locks = [client.Lock(f"{DIR}/one-process") for _ in range(task["clients"])]
        return drive(task, [cycle(lock, inside) for lock in locks])

    def drain(self, task):
        client = self.sessions(1)[0]
        path, count, inside = f"{DIR}/drained", task["clients"], []
        laps, took, work, memory = [], 0, 0, 0
        for _ in range(max(task.get("laps", 0), 1)):
            first, last = client.Lock(path), [0]
            first.acquire()

            def wait():
                lock = client.Lock(path)
                lock.acquire()
                alone(inside)
                now = time.perf_counter_ns()
                laps.append(now - last[0])
                last[0] = now
                lock.release()

            waiters = [threading.Thread(target=wait, daemon=True) for _ in range(count)]
            for waiter in waiters:
                waiter.start()
            while client.exists(path).numChildren <= count:
                time.sleep(0.01)
            # Candidates set their watches only some time after they join.
            time.sleep(0.2 + count / 1000)
            memory = max(memory, rss())
            work_before, begun = time.process_time_ns(), time.perf_counter_ns()
            last[0] = begun
            first.release()
            for waiter in waiters:
                waiter.join()
            took += time.perf_counter_ns() - begun
            work += time.process_time_ns() - work_before
        return report(laps, took, work, memory)

    def semaphore(self, task):
        path = f"{DIR}/semaphore"
        permits = [client.Semaphore(path, PERMITS) for client in self.sessions(task["clients"])]
        return drive(task, [cycle(permit) for permit in permits])

    def read_write(self, task):
        path = f"{DIR}/read-write"

        def lane(number, client):
            locks = [client.WriteLock(path)] + [client.ReadLock(path) for _ in range(9)]
            laps = [number]

            def lap():
                laps[0] += 1
                with locks[laps[0] % 10]:
                    pass

            return lap

        own = self.sessions(task["clients"])
        return drive(task, [lane(number, client) for number, client in enumerate(own)])

    def increment(self, task):
        return self.counted(task, self.sessions(task["clients"]))

    def increment_tasks(self, task):
        return self.counted(task, self.sessions(1) * task["clients"])

    def counted(self, task, clients):
        path = f"{DIR}/counter"
        counter = clients[0].Counter(path)
        before = counter.value
        done = drive(task, [increment(client.Counter(path)) for client in clients])
        if counter.value - before != done["laps"]:
            raise RuntimeError(f"{done['laps']} additions, and the sum has {counter.value - before}")
        return done

    def partition(self, task):
        items = [f"item-{item}" for item in range(ITEMS)]
        *others, last = self.sessions(task["clients"])
        path = f"{DIR}/partition/{task['clients']}"
        staying = [Member(client, path, items, str(n)) for n, client in enumerate(others)]

        def settled(members):
            while sum(member.count() for member in members) < ITEMS:
                time.sleep(0.001)

        laps, millis, wanted = [], task.get("millis", 0), task.get("laps", 0)
        work_before, begun = time.process_time_ns(), time.perf_counter_ns()
        while len(laps) < wanted if wanted else time.perf_counter_ns() - begun < millis * 1_000_000:
            leaving = Member(last, path, items, "last")
            settled([*staying, leaving])
            started = time.perf_counter_ns()
            leaving.leave()
            settled(staying)
            laps.append(time.perf_counter_ns() - started)
        took, work = time.perf_counter_ns() - begun, time.process_time_ns() - work_before
        for member in staying:
            member.leave()
        return report(laps, took, work, rss())

    def rounds(self, task):
        count, failed = task["clients"], []
        path = f"{DIR}/both-{count}"
        members = [client.DoubleBarrier(path, count) for client in self.sessions(count)]

        def take_part(member):
            try:
                member.enter()
                member.leave()
            except Exception as why:  # any error is reported
                failed.append(why)

        def lap():
            threads = [threading.Thread(target=take_part, args=(it,), daemon=True) for it in members]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]

        return drive(task, [lap])

    def taken(self, task):
        own = self.sessions(task["clients"])
        return drive(task, [put_and_take(client.Queue(f"{DIR}/taken"), 1) for client in own])

    def acknowledged(self, task):
        own = self.sessions(task["clients"])
        queues = [client.LockingQueue(f"{DIR}/acknowledged") for client in own]
        return drive(task, [put_and_acknowledge(queue) for queue in queues])

    def in_bunches(self, task):
        own = enumerate(self.sessions(task["clients"]))
        queues = [client.Queue(f"{DIR}/bunches/{lane}") for lane, client in own]
        return drive(task, [put_and_take(queue, BUNCH) for queue in queues])

    def observe(self, task):
        first, second = self.sessions(2)
        node, heard = f"{DIR}/observed", threading.Semaphore(0)
        first.ensure_path(node)
        keep_on = [True]

        @second.DataWatch(node)
        def changed(data, stat):
            heard.release()
            return keep_on[0]

        heard.acquire()

        def lap():
            first.set_async(node, DATA)
            heard.acquire()

        try:
            return drive({**task, "clients": 1}, [lap])
        finally:
            keep_on[0] = False
            first.set(node, DATA)
            heard.acquire()

    def sessions(self, count):
        while len(self.clients) < count:
            client = KazooClient(self.address, timeout=self.session)
            client.start(timeout=15)
            self.clients.append(client)
        return self.clients[:count]


class Member:
    """A member of a partition, which releases what it has when it is asked, in a thread."""

    def __init__(self, client, path, items, name):
        self.changed, self.leaves = threading.Event(), False
        self.part = client.SetPartitioner(
            path, items, identifier=name, time_boundary=STABLE, state_change_event=self.changed
        )
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.part.failed:
            self.changed.wait(1)
            self.changed.clear()
            # Both in one thread: kazoo's are not made for two at the same time.
            if self.leaves:
                self.part.finish()
            elif self.part.release:
                self.part.release_set()

    def count(self):
        if self.part.failed:
            raise RuntimeError("a member has failed")
        return len(list(self.part)) if self.part.acquired else 0

    def leave(self):
        self.leaves = True
        self.changed.set()
        self.thread.join()


def lane_of(client, work, node, made):
    def get():
        client.sync_async(node)
        client.get(node)

    def create_delete():
        client.create(made, DATA, ephemeral=True)
        client.delete(made)

    return {
        "get-local": lambda: client.get(node),
        "get": get,
        "set": lambda: client.set(node, DATA),
        "create-delete": create_delete,
    }[work]


def cycle(lock, inside=None):
    def lap():
        with lock:
            if inside is not None:
                alone(inside)

    return lap


def increment(counter):
    def lap():
        nonlocal counter
        counter += 1

    return lap


def put_and_take(queue, count):
    def lap():
        for _ in range(count):
            queue.put(DATA)
        for _ in range(count):
            # It does not wait for an item.
            while queue.get() is None:
                pass

    return lap


def put_and_acknowledge(queue):
    def lap():
        queue.put(DATA)
        queue.get()
        queue.consume()

    return lap


def alone(inside):
    inside.append(1)
    if len(inside) != 1:
        raise RuntimeError("two hold one lock")
    time.sleep(0)
    inside.pop()


def drive(task, lanes):
    laps, failed = [], []
    millis, wanted = task.get("millis", 0), task.get("laps", 0)
    work_before, begun = time.process_time_ns(), time.perf_counter_ns()

    def goes_on(done):
        if wanted:
            return done < wanted
        return not done or time.perf_counter_ns() - begun < millis * 1_000_000

    def drive_one(lane):
        own = []
        try:
            while goes_on(len(own)):
                started = time.perf_counter_ns()
                lane()
                own.append(time.perf_counter_ns() - started)
        except Exception as why:  # any error is reported
            failed.append(why)
        laps.extend(own)

    threads = [threading.Thread(target=drive_one, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, work = time.perf_counter_ns() - begun, time.process_time_ns() - work_before
    if failed:
        raise failed[0]
    return report(laps, took, work, rss())


def report(laps, took, work, memory):
    laps = sorted(laps)

    def at(hundredths):
        return laps[(len(laps) - 1) * hundredths // 100] / 1e3 if laps else 0

    return {
        "laps": len(laps),
        "micros": took / 1e3,
        "p50": at(50),
        "p90": at(90),
        "p99": at(99),
        "cpu": work / 1e3,
        "rss": memory,
    }


def rss():
    with open("/proc/self/status", encoding="ascii") as status:
        told = [line.split()[1] for line in status if line.startswith("VmRSS:")]
    return int(told[0])


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]) / 1000)
    for line in sys.stdin:
        try:
            answer = peer.run(json.loads(line))
        except Exception as why:
            answer = {"failed": f"{type(why).__name__}: {why}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
