//! The form of files: their names, their sizes, and texts that they must not contain.

use std::path::Path;

use crate::tree::{File, catches, code, holds, root, spares};

const LONGEST: usize = 600;

#[test]
fn no_source_file_is_longer_than_600_lines() {
    catches(too_long, "core/src/a.rs", &"\n".repeat(601));
    catches(too_long, "dev/a", &format!("#!/bin/sh{}", "\n".repeat(601)));
    spares(too_long, "core/src/a.rs", &"\n".repeat(600));
    spares(too_long, "docs/a.md", &"\n".repeat(601));

    holds(too_long);
}

fn too_long(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if is_source(file) && lines > LONGEST {
        return vec![file.offence(0, &format!("{lines} lines; {LONGEST} is the wall"))];
    }
    Vec::new()
}

#[test]
fn files_are_called_what_they_contain() {
    catches(nameless, "core/src/utils.rs", "");
    catches(nameless, "cli/src/types/a.rs", "");
    catches(nameless, "conformance/tests/common/mod.rs", "");
    catches(nameless, "dev/helpers", "");
    spares(nameless, "core/src/commons.rs", "");

    holds(nameless);
}

fn nameless(file: &File) -> Vec<String> {
    let names = ["util", "utils", "common", "type", "types", "misc", "helper", "helpers"];
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or_default());
    let found = parts.filter(|part| names.contains(part));
    found.map(|part| file.offence(0, &format!("`{part}` says nothing"))).collect()
}

#[test]
fn futures_are_polled_by_hand_where_that_is_safe() {
    catches(polled_by_hand, "core/src/a.rs", "f.poll(&mut Context::from_waker(Waker::noop()))");
    spares(polled_by_hand, POLLS_BY_HAND[0], "Context::from_waker(Waker::noop())");
    spares(polled_by_hand, "core/src/a.rs", "// Waker::noop()");
    spares(polled_by_hand, "core/tests/a.rs", "Waker::noop()");

    holds(polled_by_hand);
    let missing: Vec<_> = POLLS_BY_HAND.iter().filter(|file| !root().join(file).exists()).collect();
    assert!(missing.is_empty(), "exceptions for files that do not exist: {missing:?}");
}

/// The files that may poll by hand: the ZooKeeper client asks a channel for an event that is there.
const POLLS_BY_HAND: [&str; 1] = ["backend-zk/src/listing_cache/sole_contender.rs"];

/// Code that polls by hand may hold a lock that the future takes too.
fn polled_by_hand(file: &File) -> Vec<String> {
    let is_exception = POLLS_BY_HAND.contains(&file.path.as_str());
    if !file.is_rust() || !file.path.contains("/src/") || is_exception {
        return Vec::new();
    }
    file.offences(&code(&file.text), "Waker::noop", "a future is polled by hand")
}

#[test]
fn every_public_async_fn_of_core_and_the_recipes_documents_cancel_safety() {
    let says = "/// Waits.\n///\n/// # Cancel safety\n///\n/// Cancel safe.\n";
    catches(silent_when_dropped, "core/src/a.rs", "/// Waits.\npub async fn f() {}");
    catches(silent_when_dropped, "recipes/src/a.rs", "/// Waits.\npub async fn f() {}");
    catches(silent_when_dropped, "core/src/a.rs", "/// Waits.\npub fn f() -> BoxFuture<'_, ()> {}");
    catches(
        silent_when_dropped,
        "core/src/a.rs",
        &format!("{says}fn a() {{}}\npub async fn f() {{}}"),
    );
    catches(
        silent_when_dropped,
        "core/src/a.rs",
        &format!("{says}\n/// Waits.\npub async fn f() {{}}"),
    );
    spares(
        silent_when_dropped,
        "core/src/a.rs",
        &format!("{says}#[inline]\npub async fn f() {{}}"),
    );
    spares(silent_when_dropped, "core/src/a.rs", "pub(crate) async fn f() {}");
    spares(silent_when_dropped, "core/src/a.rs", "// pub async fn f() {}");

    holds(silent_when_dropped);
}

fn silent_when_dropped(file: &File) -> Vec<String> {
    let is_of_both = ["core/src/", "recipes/src/"].iter().any(|of| file.path.starts_with(of));
    if !is_of_both || !file.is_rust() {
        return Vec::new();
    }
    let code = code(&file.text);
    let (lines, code_lines): (Vec<_>, Vec<_>) =
        (file.text.lines().collect(), code.lines().collect());
    let mut found = Vec::new();
    let mut at = 0;
    for (index, line) in code.split_inclusive('\n').enumerate() {
        let is_item_end = |index: usize| code_lines[index].trim_end().ends_with(['}', '{', ';']);
        let docs = (0..index).rev().take_while(|&i| !lines[i].trim().is_empty() && !is_item_end(i));
        let says = docs.map(|i| lines[i].trim()).any(|line| line == "/// # Cancel safety");
        if is_public_async(line.trim(), &code[at..]) && !says {
            found.push(file.offence(at, "a public async fn without `# Cancel safety`"));
        }
        at += line.len();
    }
    found
}

/// Returns `true` if a public function that returns a future starts on this line.
fn is_public_async(line: &str, from_here: &str) -> bool {
    let signature = from_here.split(['{', ';']).next().unwrap_or_default();
    line.starts_with("pub async fn ")
        || (line.starts_with("pub fn ")
            && signature.split_once("->").is_some_and(|(_, result)| result.contains("Future")))
}

#[test]
fn no_example_is_ignored() {
    catches(ignored_example, "core/src/a.rs", "/// ```ignore\n/// x\n/// ```");
    catches(ignored_example, "core/src/a.rs", "    //! ```rust,ignore\n");
    catches(ignored_example, "README.md", "```ignore\n");
    spares(ignored_example, "core/src/a.rs", "/// ```no_run\n/// ```\n// Nobody may ignore it.");

    holds(ignored_example);
}

fn ignored_example(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in file.text.split_inclusive('\n') {
        let text = line.trim().trim_start_matches(['/', '!']).trim();
        if text.strip_prefix("```").is_some_and(|info| info.contains("ignore")) {
            found.push(file.offence(at, "an example that is not run"));
        }
        at += line.len();
    }
    // In code only the documentation, in pages everything.
    if file.is_rust() || file.has_extension("md") { found } else { Vec::new() }
}

#[test]
fn nothing_is_left_to_do() {
    catches(left_to_do, "core/src/a.rs", "fn f() { todo!() }");
    catches(left_to_do, "core/src/a.rs", "fn f() { unimplemented!(\"later\") }");
    catches(left_to_do, "core/src/a.rs", concat!("// TO", "DO: later"));
    catches(left_to_do, "dev/a", concat!("#!/bin/sh\n# FIX", "ME: later"));
    spares(left_to_do, "core/src/a.rs", "// `todo!()` is not code here\n\"todo!()\"");

    holds(left_to_do);
}

fn left_to_do(file: &File) -> Vec<String> {
    if !is_source(file) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for mark in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
        found.extend(file.offences(&file.text, mark, "something is left to do"));
    }
    if file.is_rust() {
        for stub in ["todo!", "unimplemented!"] {
            found.extend(file.offences(&code(&file.text), stub, "a stub"));
        }
    }
    found
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    catches(allowed_lint, "core/src/a.rs", "#[allow(dead_code)]\nfn f() {}");
    catches(allowed_lint, "core/src/a.rs", "#![allow(dead_code, reason = \"later\")]");
    catches(allowed_lint, "core/src/a.rs", "#[cfg_attr(test, allow(dead_code))]");
    catches(allowed_lint, "core/src/a.rs", "#[expect(dead_code)]");
    spares(
        allowed_lint,
        "core/src/a.rs",
        "#[expect(\n    dead_code,\n    reason = \"see below\"\n)]",
    );
    spares(allowed_lint, "core/src/a.rs", "fn f() { a.allow(b); expect(c); } // #[allow(x)]");

    holds(allowed_lint);
}

fn allowed_lint(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code(&file.text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("#[").chain(code.match_indices("#![")) {
        let attribute = code[at..].split(']').next().unwrap_or_default();
        let inner = attribute.trim_start_matches(['#', '!', '[']).trim_start();
        if inner.starts_with("allow(")
            || (inner.starts_with("cfg_attr") && inner.contains("allow("))
        {
            found.push(file.offence(at, "a lint that is allowed; expect it, and say why"));
        }
        if inner.contains("expect(") && !inner.contains("reason =") {
            found.push(file.offence(at, "a lint that is expected without a reason"));
        }
    }
    found
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    catches(somebodys_place, "docs/a.md", concat!("see /ho", "me/ann/synod/x"));
    catches(somebodys_place, "docs/a.md", concat!("see /Us", "ers/ann/x"));
    catches(somebodys_place, "dev/a", concat!("/ro", "ot/.cargo/bin/cargo"));
    spares(
        somebodys_place,
        "docs/a.md",
        concat!("`/ro", "ot/child`, `~/.cargo`, `$HOME/x`, `/home`, `/wo", "rk/items`"),
    );

    let built = File::new("dev/a", "cd /srv/build/synod/core");
    assert!(!named_places(&built, Path::new("/srv/build/synod")).is_empty());
    assert!(named_places(&built, Path::new("/srv")).is_empty());

    holds(somebodys_place);
}

fn somebodys_place(file: &File) -> Vec<String> {
    named_places(file, &root())
}

fn named_places(file: &File, root: &Path) -> Vec<String> {
    let homes = [concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/.")];
    let mut places: Vec<_> = homes.map(String::from).into();
    // A short one, like /a/b, may well be meant as the path of a node.
    places.extend(Some(root.display().to_string()).filter(|place| place.len() > 8));
    let what = "a place on somebody's machine";
    places.iter().flat_map(|place| file.offences(&file.text, place, what)).collect()
}

/// Rust, scripts and manifests.
fn is_source(file: &File) -> bool {
    let is_script = file.text.starts_with("#!");
    file.is_rust() || is_script || file.has_extension("sh") || file.has_extension("toml")
}

#[test]
fn what_is_simulated_is_linted_more_strictly_and_not_less() {
    let lines = |path: &str| {
        let text = std::fs::read_to_string(root().join(path)).expect("readable");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let house = lines(".clippy.toml");
    for stricter in ["core/.clippy.toml", "backend-mem/.clippy.toml", "sim/.clippy.toml"] {
        let here = lines(stricter);
        let missing: Vec<_> = house.iter().filter(|line| !here.contains(line)).collect();
        assert!(missing.is_empty(), "{stricter} lacks {missing:?}");
        assert!(here.iter().any(|line| line.contains("tokio::time::sleep")), "{stricter}");
    }
}
