"""Each change against the tests that reach it, one test after the other, until one fails."""

import collections
import concurrent.futures
import json
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time

# Nobody debugs what is built here.
QUICK = {"CARGO_INCREMENTAL": "1", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_TEST_DEBUG": "0"}
# Bodies with many copies need much of the stack.
STACK = 1 << 26
# A change that makes a loop endless may take all memory.
MEMORY = 6 << 30
# What a test may take, beside several times of what it took without a change.
SECONDS = 15
# Far more processes than processors, as most tests wait for answers and clocks.
AT_ONCE = 8 * len(os.sched_getaffinity(0))
# How often the state is shown.
EVERY = 60


class Test:
    def __init__(self, program, name):
        self.program, self.name = program, name
        self.seconds, self.reached = 0.0, frozenset()

    def __str__(self):
        return f"{os.path.basename(self.program).rsplit('-', 1)[0]} {self.name}"

    def fails(self, folder, **variables):
        """Whether it fails twice: a busy machine alone seldom does that."""
        return not (self.passes(folder, **variables) or self.passes(folder, **variables))

    def passes(self, folder, **variables):
        """Whether it passes, alone in a process."""
        began = time.monotonic()
        process = subprocess.Popen(
            [self.program, "--exact", self.name],
            cwd=folder,
            env={**os.environ, "RUST_MIN_STACK": str(STACK), "RUST_BACKTRACE": "0", **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        try:
            return process.wait(SECONDS + 8 * self.seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if not self.seconds:
                self.seconds = time.monotonic() - began


def built(tree, package, arguments, skipped, *options):
    """The tests of a package, each of them a program and a name. Fails if they do not compile."""
    command = ["cargo", "test", "--locked", "--quiet", "--no-run", "--package", package, "--all-features", *arguments]
    command += ["--message-format=json", *options]
    environment = {**os.environ, **QUICK}
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    programs = [one["executable"] for one in map(json.loads, done.stdout.splitlines()) if one.get("executable")]
    tests = []
    for program in sorted(set(programs)):
        listed = subprocess.run([program, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
        names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
        tests += [Test(program, name) for name in names if not name.startswith(skipped)]
    return tests


def measure(tests, folder):
    """Runs each test without a change: how long it takes, and which switches it reaches."""

    def one(test):
        with tempfile.TemporaryDirectory() as place:
            reached = os.path.join(place, "reached")
            failed = test.fails(folder, SYNOD_REACHED=reached)
            if os.path.exists(reached):
                with open(reached, encoding="utf-8") as file:
                    test.reached = frozenset(map(int, file))
        return str(test) if failed else None

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [name for name in pool.map(one, tests) if name]
    if failed:
        raise SystemExit("\n".join(["fails without a change:", *failed]))


def run(changes, tests, folder, deadline, keep):
    """Tries each change until the deadline. `keep` is told of each result: the change, and the test that found it."""
    reaching = collections.defaultdict(list)
    for test in sorted(tests, key=lambda test: test.seconds):
        for number in test.reached:
            reaching[number].append(test)
    # Which tests found the changes of a file: they are tried first for the next one of it.
    finders = collections.defaultdict(collections.Counter)
    lock = threading.Lock()
    state = {"tried": 0, "survived": 0, "shown": time.monotonic()}

    def one(number, change):
        with lock:
            known = dict(finders[change.file])
            known.update((test, 1000 + count) for test, count in finders[change.file, change.function].items())
        variables = {"SYNOD_MUTANT": str(number)}
        for test in sorted(reaching[number], key=lambda test: -known.get(test, 0)):
            if time.monotonic() > deadline:
                return
            if test.fails(folder, **variables):
                with lock:
                    finders[change.file][test] += 1
                    finders[change.file, change.function][test] += 1
                break
        else:
            test = None
        with lock:
            keep(change, test)
            state["tried"] += 1
            state["survived"] += test is None
            if time.monotonic() > state["shown"] + EVERY:
                state["shown"] = time.monotonic()
                print(f"  {state['tried']} of {len(changes)} tried, {state['survived']} survived", flush=True)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for task in [pool.submit(one, number, change) for number, change in changes]:
            task.result()
    print(f"  {state['tried']} of {len(changes)} tried, {state['survived']} survived", flush=True)
