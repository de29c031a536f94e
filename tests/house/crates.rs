//! Crates depend downwards only, and inherit the settings of the workspace.

use crate::tree::{File, catches, holds, root, spares};

/// The crates, each with the crates that it may depend on: always, and for its tests as well.
#[rustfmt::skip]
const HOUSE: [(&str, &[&str], &[&str]); 15] = [
    ("synod-core",        &[], &[]),
    ("synod-recipes",     &["synod-core"], &[]),
    ("synod-testkit",     &["synod-core", "synod-recipes"], &[]),
    ("synod-servers",     &["synod-core", "synod-recipes", "synod-testkit"], &[]),
    ("synod-conformance", &["synod-core", "synod-recipes", "synod-testkit"], &[]),
    ("synod-mem",         &["synod-core"], &["synod-recipes", "synod-testkit", "synod-conformance"]),
    ("synod-zk",          &["synod-core"], &["synod-recipes", "synod-testkit", "synod-servers", "synod-conformance", "synod-mem"]),
    ("synod-etcd",        &["synod-core"], &["synod-recipes", "synod-testkit", "synod-servers", "synod-conformance"]),
    ("synod-file",        &["synod-core"], &["synod-testkit", "synod-servers", "synod-conformance"]),
    ("synod-sim",         &["synod-core", "synod-recipes", "synod-testkit", "synod-conformance", "synod-mem"], &["synod-sim"]),
    ("synod",             &["synod-core", "synod-recipes", "synod-mem", "synod-zk", "synod-etcd", "synod-file", "synod-sim"], &["synod-testkit", "synod-servers", "synod-conformance", "synod-view"]),
    ("synod-view",        &["synod-core", "synod-recipes"], &["synod-mem", "synod-testkit"]),
    ("synod-cli",         &["synod-core", "synod", "synod-view", "synod-conformance", "synod-bench"], &["synod-testkit", "synod-servers"]),
    ("synod-bench",       &["synod-core", "synod", "synod-servers"], &[]),
    ("synod-first-come",  &["synod-core"], &["synod-mem", "synod-testkit"]),
];

/// One `key = value` of a manifest, with its table.
struct Entry<'a> {
    at: usize,
    table: &'a str,
    key: &'a str,
    value: &'a str,
}

#[test]
fn crates_depend_downwards_only() {
    let mem = "[package]\nname = \"synod-mem\"\n";
    let with = |table: &str| format!("{mem}{table}");
    catches(upward, "a/Cargo.toml", &with("[dependencies]\nsynod.workspace = true"));
    catches(upward, "a/Cargo.toml", &with("[dependencies]\nsynod-conformance = { path = \"\" }"));
    catches(upward, "a/Cargo.toml", &with("[dependencies.synod-zk]\nworkspace = true"));
    catches(upward, "a/Cargo.toml", &with("[dev-dependencies]\nsynod-etcd.workspace = true"));
    catches(upward, "a/Cargo.toml", &with("[build-dependencies]\nsynod-etcd.workspace = true"));
    catches(upward, "a/Cargo.toml", &with("[target.'cfg(unix)'.dependencies]\nsynod = \"0\""));
    catches(upward, "a/Cargo.toml", &with("[dependencies]\nzk = { package = \"synod-zk\" }"));
    catches(upward, "a/Cargo.toml", &with("[dependencies.zk]\npackage = \"synod-zk\""));
    catches(upward, "a/Cargo.toml", "[package]\nname = \"synod-new\"");
    let renamed =
        "[package]\nname = \"synod\"\n[workspace.dependencies]\nx = { package = \"synod-zk\" }";
    catches(upward, "Cargo.toml", renamed);
    spares(upward, "a/Cargo.toml", &with("[dependencies]\nsynod-core.workspace = true"));
    spares(
        upward,
        "a/Cargo.toml",
        &with("[dev-dependencies]\nsynod-conformance = { path = \"\" }"),
    );

    holds(upward);
}

fn upward(file: &File) -> Vec<String> {
    let Some(name) = package(file) else { return Vec::new() };
    let Some((_, always, in_tests)) = HOUSE.iter().find(|(room, ..)| *room == name) else {
        return vec![file.offence(0, "a crate that HOUSE in tests/house/crates.rs does not know")];
    };
    let mut found = Vec::new();
    for entry in entries(&file.text) {
        if entry.table == "workspace.dependencies" {
            if entry.value.contains("package = \"synod") {
                found.push(file.offence(entry.at, "a crate of ours under another name"));
            }
            continue;
        }
        let Some((kind, target)) = dependency(&entry) else { continue };
        let is_ours = target == "synod" || target.starts_with("synod-");
        let in_tests = kind == "dev-dependencies" && in_tests.contains(&target.as_str());
        if is_ours && !always.contains(&target.as_str()) && !in_tests {
            found.push(file.offence(entry.at, &format!("{name} may not depend on {target}")));
        }
    }
    found
}

/// The kind of the dependency of an entry, and its target.
fn dependency(entry: &Entry<'_>) -> Option<(String, String)> {
    let mut table: Vec<_> = entry.table.split('.').collect();
    let kind = table.iter().position(|part| part.ends_with("dependencies"))?;
    let mut named = table.split_off(kind);
    named.push(entry.key);
    // `[dependencies.a] package = "b"` and `a = { package = "b" }` both mean b.
    let renamed = entry.value.split("package = \"").nth(1).and_then(|it| it.split('"').next());
    let renamed = renamed.or((entry.key == "package").then(|| entry.value.trim_matches('"')));
    let target = renamed.unwrap_or_else(|| named[1].split('.').next().unwrap_or_default());
    Some((named[0].into(), target.into()))
}

#[test]
fn every_crate_takes_its_lints_version_edition_and_licence_from_the_workspace() {
    let good = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";
    spares(own_way, "x/Cargo.toml", good);
    for line in good.lines().filter(|line| line.contains("workspace")) {
        catches(own_way, "x/Cargo.toml", &good.replacen(line, "", 1));
    }
    catches(
        own_way,
        "x/Cargo.toml",
        &good.replace("edition.workspace = true", "edition = \"2021\""),
    );
    catches(own_way, "x/Cargo.toml", &good.replace("[lints]\n", "[lints.rust]\n"));

    holds(own_way);
}

fn own_way(file: &File) -> Vec<String> {
    if package(file).is_none() {
        return Vec::new();
    }
    let inherited = [
        ("package", "version.workspace"),
        ("package", "edition.workspace"),
        ("package", "rust-version.workspace"),
        ("package", "license.workspace"),
        ("lints", "workspace"),
    ];
    inherited
        .iter()
        .filter(|(table, key)| value(&file.text, table, key) != Some("true"))
        .map(|(table, key)| file.offence(0, &format!("[{table}] lacks {key} = true")))
        .collect()
}

#[test]
fn unsafe_code_is_forbidden_in_every_crate() {
    catches(
        unsafe_allowed,
        "Cargo.toml",
        "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"deny\"",
    );
    catches(unsafe_allowed, "Cargo.toml", "[workspace]\n");
    spares(unsafe_allowed, "Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"");

    holds(unsafe_allowed);
}

fn unsafe_allowed(file: &File) -> Vec<String> {
    let forbidden = value(&file.text, "workspace.lints.rust", "unsafe_code") == Some("\"forbid\"");
    if file.path != "Cargo.toml" || forbidden {
        return Vec::new();
    }
    vec![file.offence(0, "[workspace.lints.rust] lacks unsafe_code = \"forbid\"")]
}

#[test]
fn a_plain_cargo_test_tests_every_crate() {
    let root = std::fs::read_to_string(root().join("Cargo.toml")).expect("readable");
    let all = value(&root, "workspace", "members").expect("one line");
    assert_eq!(Some(all), value(&root, "workspace", "default-members"));
    let listed = all.matches('"').count() / 2;
    assert_eq!(listed, HOUSE.len(), "HOUSE and the workspace have different crates");
}

#[test]
fn the_readme_lists_every_feature() {
    let manifest = "[features]\ndefault = [\"a\"]\na = []\nb = []\nmutants = []";
    assert_eq!(missing_rows("| `a` (default) |\n| `b` |", manifest), [""; 0]);
    assert_eq!(missing_rows("| `a` (default) |\n`b`", manifest), ["b"]);

    let text = |name| std::fs::read_to_string(root().join(name)).expect("readable");
    assert_eq!(missing_rows(&text("README.md"), &text("Cargo.toml")), [""; 0]);
}

/// The features without a line of their own, except for the one that is not for users.
fn missing_rows(readme: &str, manifest: &str) -> Vec<String> {
    let features = entries(manifest).filter(|entry| entry.table == "features");
    let names =
        features.map(|entry| entry.key).filter(|name| !["default", "mutants"].contains(name));
    let told = |name: &&str| {
        readme.contains(&format!("\n| `{name}`")) || readme.starts_with(&format!("| `{name}`"))
    };
    names.filter(|name| !told(name)).map(Into::into).collect()
}

/// The name of the package that a manifest is of.
fn package(file: &File) -> Option<&str> {
    if file.path != "Cargo.toml" && !file.path.ends_with("/Cargo.toml") {
        return None;
    }
    value(&file.text, "package", "name").map(|name| name.trim_matches('"'))
}

fn value<'a>(manifest: &'a str, table: &str, key: &str) -> Option<&'a str> {
    entries(manifest)
        .find(|entry| entry.table == table && entry.key == key)
        .map(|entry| entry.value)
}

/// The entries of a manifest, as far as our manifests use the language: one line each.
fn entries(manifest: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut table = "";
    let mut next = 0;
    manifest.split_inclusive('\n').filter_map(move |line| {
        let at = next;
        next += line.len();
        let line = line.split(" #").next().unwrap_or(line).trim();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = header.trim_matches(['[', ']']);
            return None;
        }
        let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        Some(Entry { at, table, key: key.trim(), value: value.trim() })
    })
}
