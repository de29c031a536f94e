"""The mechanical changes that cargo-mutants knows of, and what they are called."""

import json
import re
import subprocess


class Change:
    """One change. Its name has no place in the file, as that moves: several changes may have the same name."""

    def __init__(self, listed, ordinal):
        self.file = listed["file"]
        self.full_name = listed["name"]
        self.name = without_place(listed["name"])
        # Which one of this name it is, in the order of the file.
        self.key = f"{self.name} #{ordinal}"
        self.replacement = listed["replacement"]
        self.start, self.end = between(listed["span"])
        function = listed["function"]
        self.function = between(function["span"]) if function else None
        self.returns = function["return_type"] if function else ""


def between(span):
    """Both ends, as line and column from zero."""
    return tuple((span[end]["line"] - 1, span[end]["column"] - 1) for end in ("start", "end"))


def without_place(name):
    """`FILE:12:5: replace ..` as `FILE: replace ..`."""
    return re.sub(r"^([^:]+):\d+:\d+:", r"\1:", name.strip())


def selection(package, files):
    """What tells cargo-mutants which changes are meant."""
    # The tests that look for secrets read what is shown for debugging, and are no tests of one package. Known mistakes
    # are wrong already.
    chosen = ["--package", package, "--all-features", "--exclude-re", "impl fmt::Debug"]
    chosen += ["--exclude", "mutant.rs", "--exclude", "**/mutant/**"]
    return [*chosen, *(argument for file in files for argument in ("--file", file))]


def listed(package, files):
    command = ["cargo", "mutants", "--list", "--json", *selection(package, files)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    changes, ordinals = [], {}
    for one in json.loads(output):
        name = without_place(one["name"])
        ordinals[name] = ordinals.get(name, 0) + 1
        changes.append(Change(one, ordinals[name]))
    return changes
