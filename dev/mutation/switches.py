"""All changes in one build: each in a copy of its function's body, which the number of the change switches on.

    fn double(number: u32) -> u32 {
        if crate::mutation_switch::active(17) {
            return { number + 2 };
        }
        number * 2
    }
"""

import json
import os
import re
import subprocess

MODULE = "mutation_switch"
# What a brace may be inside of, before the body of a function begins.
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|[(){]", re.S)
# Read once, as it is asked at each call of each function.
SOURCE = """//! Which mechanical change is active in this process, and which could be.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

pub(crate) fn active(number: usize) -> bool {
    static CHOSEN: OnceLock<(Option<usize>, Option<std::path::PathBuf>)> = OnceLock::new();
    let (chosen, reached) = CHOSEN.get_or_init(|| {
        let number = std::env::var("SYNOD_MUTANT").ok().and_then(|number| number.parse().ok());
        (number, std::env::var_os("SYNOD_REACHED").map(Into::into))
    });
    if let Some(reached) = reached
        && !REACHED[number].swap(true, Ordering::Relaxed)
    {
        let mut file = std::fs::File::options().create(true).append(true).open(reached).unwrap();
        file.write_all(format!("{number}\\n").as_bytes()).unwrap();
    }
    *chosen == Some(number)
}
"""


def can_be_switched(change, lines):
    """Not what runs while it compiles, nor what returns a type that only its own body has."""
    if change.function is None or "impl " in change.returns:
        return False
    before_body = excerpt(lines, change.function[0], opening(change, lines))
    return not re.search(r"\bconst\b.*\bfn\b", before_body.split("(")[0])


def write(tree, package, folder, changes):
    """Puts a switch for each change into the tree. Returns the changes that have one, with their numbers, those that do
    not compile, and those that cannot have a switch.
    """
    sources = {file: read(file) for file in {change.file for change in changes}}
    switched = {n: change for n, change in enumerate(changes) if can_be_switched(change, sources[change.file])}
    others = [change for change in changes if not can_be_switched(change, sources[change.file])]
    put_module(tree, folder, len(changes))
    broken = {}
    while True:
        places = {}
        for file, lines in sources.items():
            here = {n: change for n, change in switched.items() if change.file == file}
            text, places[file] = with_switches(lines, here)
            put(os.path.join(tree, file), text)
        wrong = do_not_compile(tree, package, places)
        if not wrong:
            return switched, list(broken.values()), others
        broken.update((number, switched.pop(number)) for number in wrong)
        print(f"{package}: {len(broken)} changes do not compile", flush=True)


def put_module(tree, folder, count):
    put(os.path.join(tree, folder, "src", f"{MODULE}.rs"), SOURCE.replace("COUNT", str(count)))
    root = os.path.join(folder, "src", "lib.rs")
    put(os.path.join(tree, root), "\n".join([*read(root), f"mod {MODULE};", ""]))


def with_switches(lines, changes):
    """The text of a file with these switches, and of each line of it the number of the change that is there."""
    inserted = {}
    for number, change in changes.items():
        inserted.setdefault(opening(change, lines), []).append(number)
    text, owners, done = [], [], (0, 0)

    def add(part, owner):
        # A part begins on a line of its own, so that an error there is known to be of its change.
        for line in part.split("\n"):
            text.append(line)
            owners.append(owner)

    for place in sorted(inserted):
        add(excerpt(lines, done, place), None)
        for number in inserted[place]:
            change = changes[number]
            close = (change.function[1][0], change.function[1][1] - 1)
            body = excerpt(lines, place, change.start) + change.replacement + excerpt(lines, change.end, close)
            add(f"if crate::{MODULE}::active({number}) {{\n#[allow(warnings)]\nreturn {{{body}\n}};\n}}", number)
        done = place
    add(excerpt(lines, done, (len(lines), 0)), None)
    return "\n".join(text), owners


def do_not_compile(tree, package, places):
    """The numbers of changes that the compiler refuses."""
    command = ["cargo", "check", "--locked", "--package", package, "--all-features", "--lib", "--message-format=json"]
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    wrong, unknown = set(), []
    for line in done.stdout.splitlines():
        message = json.loads(line).get("message")
        if message and message["level"] == "error":
            numbers = {number for span in message["spans"] for number in blamed(tree, span, places)}
            wrong |= numbers
            if not numbers and message["spans"]:
                unknown.append(message["rendered"])
    if done.returncode and not wrong:
        raise SystemExit(f"{package} does not compile:\n{''.join(unknown) or done.stderr}")
    return wrong


def blamed(tree, span, places):
    """The changes in whose lines a message begins, or the macro that it is about."""
    while span:
        file = os.path.relpath(os.path.join(tree, span["file_name"]), tree)
        if file in places and span["is_primary"]:
            owner = places[file][span["line_start"] - 1]
            if owner is not None:
                yield owner
        span = span["expansion"] and {**span["expansion"]["span"], "is_primary": True}


def opening(change, lines):
    """Where the body of a change's function begins: after the first brace that is in no parentheses."""
    line, column = change.function[0]
    text, depth = excerpt(lines, *change.function), 0
    for token in TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "{" and not depth:
            rows = text[: token.end()].split("\n")
            return (line + len(rows) - 1, len(rows[-1]) + (column if len(rows) == 1 else 0))
    raise SystemExit(f"{change.full_name} is in a function without a body")


def excerpt(lines, start, end):
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]] if start[0] < len(lines) else ""
    last = [lines[end[0]][: end[1]]] if end[0] < len(lines) else []
    return "\n".join([lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]], *last])


def read(file):
    with open(file, encoding="utf-8") as source:
        return source.read().split("\n")


def put(place, text):
    """Writes a file, if it is another one than is there: what did not change is not built again."""
    try:
        with open(place, encoding="utf-8") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(place, "w", encoding="utf-8") as file:
        file.write(text)
