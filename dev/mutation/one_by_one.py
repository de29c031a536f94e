"""Changes that need a build of their own, by cargo-mutants."""

import json
import os
import re
import signal
import subprocess
import time

from mutation.trials import QUICK

# What cargo-mutants returns when some changes survived, or took too long: those are no failure of its own.
FINE = {0, 2, 3}
# What cargo-mutants says of a change.
OUTCOMES = {"CaughtMutant": "a test", "Timeout": "a test", "MissedMutant": None}


def run(package, arguments, changes, deadline, place, keep):
    """Tries these changes until the deadline. `keep` is told of each result. Returns how many do not compile."""
    place = os.path.join(place, package)
    os.makedirs(place, exist_ok=True)
    options = os.path.join(place, "options.toml")
    with open(options, "w", encoding="utf-8") as file:
        names = [f"^{re.escape(change.full_name)}$" for change in changes]
        file.write(f"examine_re = {json.dumps(names)}\n")
    # Each argument for both of its steps: with another selection of tests it would build everything twice.
    tests = [f"--cargo-arg={argument}" for argument in ("--locked", *arguments)]
    command = ["cargo", "mutants", f"--config={options}", "--package", package, "--all-features", "--shuffle"]
    command += ["--jobs=2", "--timeout=90", "--no-times", *tests, f"--output={place}"]
    # An interruption prints a backtrace of cargo-mutants otherwise.
    process = subprocess.Popen(command, env={**os.environ, **QUICK, "RUST_BACKTRACE": "0"})
    try:
        left = deadline - time.monotonic()
        status = process.wait(left if left < float("inf") else None)
        if status not in FINE:
            raise SystemExit(f"cargo mutants failed with status {status}: see {place}/mutants.out")
    except subprocess.TimeoutExpired:
        # It ends its own children, and has written every result that it has.
        process.send_signal(signal.SIGINT)
        process.wait()
    named = {change.full_name: change for change in changes}
    unviable = 0
    with open(os.path.join(place, "mutants.out", "outcomes.json"), encoding="utf-8") as file:
        for outcome in json.load(file)["outcomes"]:
            tried = outcome["scenario"]
            change = named.get(tried["Mutant"]["name"]) if isinstance(tried, dict) else None
            if change and outcome["summary"] in OUTCOMES:
                keep(change, OUTCOMES[outcome["summary"]])
            unviable += bool(change) and outcome["summary"] == "Unviable"
    return unviable
