"""Changes that can have no switch, each in a build of its own."""

import concurrent.futures
import os
import subprocess
import time

from mutation import trials
from mutation.switches import excerpt, put, read


def run(tree, package, folder, arguments, skipped, changes, seconds, deadline, keep):
    """Tries these changes until the deadline, by all tests, the quick ones first: `seconds` has what each took. `keep` is
    told of each result: the change, and the test that found it. Returns how many do not compile.
    """
    unviable = 0
    for change in changes:
        if time.monotonic() > deadline:
            break
        lines, place = read(change.file), os.path.join(tree, change.file)
        before, after = excerpt(lines, (0, 0), change.start), excerpt(lines, change.end, (len(lines), 0))
        put(place, before + change.replacement + after)
        try:
            tests = trials.built(tree, package, arguments, skipped)
        except subprocess.CalledProcessError:
            unviable += 1
        else:
            tests.sort(key=lambda test: seconds.get(str(test), 0))
            keep(change, first_failing(tests, os.path.join(tree, folder)))
        finally:
            put(place, "\n".join(lines))
    return unviable


def first_failing(tests, folder):
    failing = []

    def one(test):
        if not failing and test.fails(folder):
            failing.append(test)

    with concurrent.futures.ThreadPoolExecutor(trials.AT_ONCE) as pool:
        list(pool.map(one, tests))
    return failing[0] if failing else None
