//! The command with the arguments that a user types.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use synod_servers::home::Home;

use crate::run::{failing, failing_with, synod, text};

mod run;

#[test]
fn a_missing_store_is_reported_with_the_option_to_set() {
    assert!(failing_with(2, &["get", "/a"]).contains("--store URL or set SYNOD_STORE"));
}

#[test]
fn a_wrong_url_is_reported_with_the_right_form() {
    assert!(failing(&["ls", "--store", "localhost"]).contains("starts with mem://"));
    assert!(failing(&["ls", "--store", "mem://?colour=1"]).contains("it knows session"));
    // No server listens on port 1. If the backend is not compiled in, the error says that. Why
    // ZooKeeper's servers refuse connections is examined only after some seconds.
    for url in ["zk://127.0.0.1:1?connect=300ms&acl=open", "etcd://127.0.0.1:1?connect=300ms"] {
        let output = synod(&["ls", "--store", url]);
        let missing = text(&output.stderr);
        if missing.contains(":// is not compiled in") {
            continue;
        }
        assert_eq!(output.status.code(), Some(69), "the store does not answer");
        let why = missing.strip_prefix(
            "error: opening a session failed: store unreachable: no answer within 300ms",
        );
        // The error names what to check, once, and contains no text of the client libraries.
        let why = why.expect(&missing).trim_end();
        assert!(why.ends_with('?') && !why.contains("failed"), "{missing}");
    }
}

#[cfg(unix)]
#[test]
fn the_timeout_of_a_lock_limits_the_wait_for_the_store() {
    let late = ["lock", "-w", "0.3", "--store", "etcd://127.0.0.1:1", "/a", "true"];
    let (told, missing) = (failing(&late), "etcd:// is not compiled in");
    assert!(told.contains("did not answer within 300ms") || told.contains(missing), "{told}");
}

#[cfg(unix)]
#[test]
fn an_invalid_option_of_a_lock_is_reported_with_the_valid_form() {
    let said = |arguments: &[&str]| {
        let output = synod(&[&["lock", "--store", "mem://", "/a"], arguments, &["true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    assert!(said(&["--permits", "0"]).contains("there is at least one"));
    assert!(said(&["--timeout", "soon"]).contains("say 30, 30s, 1.5 or 2m"));
    assert!(said(&["--grace", "1e99"]).contains("is no time"));
    assert!(said(&["--bogus"]).contains("--bogus"));
}

#[cfg(unix)]
#[test]
fn a_store_that_excludes_no_other_process_is_refused() {
    for held in ["lock", "elect"] {
        for store in ["mem://", "mem://name", "mem:///below"] {
            let told = failing(&[held, "--store", store, "/a", "true"]);
            assert!(
                told.contains("excludes no other process") && told.contains("--store zk://"),
                "{told}"
            );
        }
    }
}

#[test]
fn a_password_is_in_no_output() {
    let urls = [
        "zk://ann:canary-7f3a@127.0.0.1:1?connect=300ms",
        "etcd://ann:canary-7f3a@127.0.0.1:1?connect=300ms",
        "mem://ann:canary-7f3a@x",
        "xx://a:canary-7f3a@h",
    ];
    for url in urls {
        for command in ["ls", "tree"] {
            let output = synod(&[command, "--store", url]);
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(!said.contains("canary"), "{command} {url}: {said}");
        }
        let mut help = Command::new(env!("CARGO_BIN_EXE_synod"));
        let help = help.env("SYNOD_STORE", url).arg("--help").output().expect("it starts");
        assert!(!text(&help.stdout).contains("canary"));
    }
}

#[test]
fn a_password_in_the_wrong_place_is_in_no_output() {
    let url = "etcd://ann:canary-7f3a@h:1";
    let store = format!("--stor={url}");
    for arguments in [&["get", "/a", url][..], &["get", url], &[url], &["ls", &store]] {
        let output = synod(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("canary") && said.starts_with("error: "), "{said}");
    }
    // The message names the intended option.
    assert!(text(&synod(&["get", "/a", url]).stderr).contains("'etcd://***@h:1"));
}

/// A directory with these files.
fn files(all: &[(&str, &str)]) -> Home {
    let home = Home::new("files").expect("a temporary directory");
    for (name, text) in all {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("writable");
    }
    home
}

const PROFILES: &str = r#"
    default = "here"
    [profiles.here]
    url = "mem://"
    namespace = "/app"
    session = "5s"
    [profiles.there]
    url = "etcd://127.0.0.1:1?plaintext=allow"
    connect = "300ms"
    user = "ann"
    password_file = "canary"
    [profiles.odd]
    url = "mem://"
    colour = "blue"
    [profiles.number]
    url = "etcd://h"
    credentials = { user = "ann", password = 77777777 }
    [profiles.twice]
    url = "mem://"
    user = "ann"
    credentials = { user = "ann", password = "canary-7f3a" }
    [profiles.nofile]
    url = "mem://"
    user = "ann"
    password_file = "missing"
"#;

#[test]
fn a_profile_names_a_store() {
    let home = files(&[("synod/config.toml", PROFILES), ("synod/canary", "canary-7f3a\n")]);
    let file = home.path().join("synod/config.toml");
    let file = file.to_str().expect("text");
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
        command.env_remove("SYNOD_STORE").env_remove("SYNOD_PROFILE").args(arguments);
        command.env("XDG_CONFIG_HOME", home.path()).envs(variables.iter().copied());
        let output = command.output().expect("it starts");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("canary-7f3a") && !said.contains("77777777"), "{said}");
        (output.status.code(), said)
    };
    let fails = |arguments: &[&str], variables: &[(&str, &str)], why: &str| {
        let (code, said) = run(&[&["get", "/a"], arguments].concat(), variables);
        let is_of_arguments = why.starts_with("--");
        assert_eq!(code, Some(if is_of_arguments { 2 } else { 1 }), "{said}");
        assert!(said.starts_with("error: ") && said.contains(why), "{said}");
    };
    // The profile is read and the store is reached: the node does not exist.
    for arguments in [&[][..], &["--profile", "here"], &["--config", file]] {
        assert_eq!(run(&[&["get", "/a"], arguments].concat(), &[]).0, Some(66), "{arguments:?}");
    }
    assert_eq!(run(&["get", "/a"], &[("SYNOD_PROFILE", "here")]).0, Some(66));
    fails(&["--profile", "no"], &[], "config.toml: no profile `no`; it has here, nofile, number");
    fails(&["--profile", "odd"], &[], "profile odd: unknown field `colour`");
    fails(&["--profile", "number"], &[], "`credentials.password` is a text");
    fails(&["--profile", "twice"], &[], "`user` and `credentials` exclude each other");
    fails(&["--profile", "nofile"], &[], "missing: No such file");
    fails(
        &["--profile", "here", "--store", "mem://"],
        &[],
        "--store and --profile name two stores",
    );
    let both = [("SYNOD_PROFILE", "here"), ("SYNOD_STORE", "mem://")];
    fails(&[], &both, "SYNOD_STORE and SYNOD_PROFILE name two stores");
    assert_eq!(run(&["get", "/a", "--store", "mem://"], &both).0, Some(66), "the option counts");
    fails(&["--config", "/nowhere/at/all"], &[], "/nowhere/at/all: No such file");
    let (code, said) = run(&["get", "/a", "--profile", "there"], &[]);
    assert!(code == Some(69) || said.contains("is not compiled in"), "{said}");
}

#[test]
fn an_error_of_the_configuration_file_does_not_quote_it() {
    let home = files(&[
        ("line.toml", "[profiles.a]\nurl = \"mem://\"\npassword = \"canary-7f3a\n"),
        ("none.toml", ""),
        ("table.toml", "default = \"a\"\nprofiles = 3"),
        ("list.toml", "default = [\"canary-7f3a\"]"),
    ]);
    for (name, why) in [
        ("line.toml", "line 3: "),
        ("none.toml", "it has no `default`; say --profile NAME"),
        ("table.toml", "it has no table such as [profiles.prod]"),
        ("list.toml", "`default` is the name of a profile"),
    ] {
        let file = home.path().join(name);
        let told = failing(&["get", "/a", "--config", file.to_str().expect("text")]);
        assert!(told.contains(why) && !told.contains("canary"), "{told}");
    }
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let home = files(&[("password", "canary-7f3a\n")]);
    let file = home.path().join("password");
    let file = file.to_str().expect("text");
    let get = ["get", "/a", "--store", "mem://", "--user", "ann"];
    let no_login = failing(&[&get[..], &["--password-file", file]].concat());
    assert!(no_login.contains("mem") && !no_login.contains("canary"), "{no_login}");
    assert!(failing(&get).contains("say --password-file, or set SYNOD_PASSWORD"));
    let alone = ["get", "/a", "--store", "mem://", "--password-file", file];
    assert!(failing_with(2, &alone).contains("--password-file needs --user"));
    let twice = ["get", "/a", "--store", "etcd://b:x@h:1", "--user", "ann"];
    let twice = failing(&[&twice[..], &["--password-file", file]].concat());
    assert!(!twice.contains("canary"), "{twice}");
}

#[test]
fn a_log_is_on_standard_error_and_only_if_it_is_wanted() {
    let url = "mem://?session=5s";
    let log = |arguments: &[&str], wanted: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
        command.args(["create", "/a", "--store", url]).args(arguments).env("RUST_LOG", wanted);
        let output = command.output().expect("it starts");
        assert_eq!(text(&output.stdout), if output.status.success() { "/a\n" } else { "" });
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(log(&[], ""), (Some(0), String::new()));
    assert_eq!(log(&["-v"], "off"), (Some(0), String::new()), "RUST_LOG counts");
    for (arguments, wanted) in [(&["-vvv"][..], ""), (&[], "synod_core=trace")] {
        let (code, said) = log(arguments, wanted);
        assert!(code == Some(0) && said.contains("synod_core"), "{said}");
    }
    let (code, said) = log(&[], "synod=loud");
    assert!(code == Some(1) && said.contains("RUST_LOG: "), "{said}");
}

#[test]
fn control_characters_of_an_argument_are_escaped() {
    let said = text(&synod(&["get", "--store", "mem://", "/a\n\u{1b}[31mb"]).stderr);
    assert!(said.contains("'/a\\n\\u{1b}[31mb'"), "{said}");
}

#[test]
fn help_and_version_are_no_errors() {
    for argument in ["--help", "--version"] {
        let output = synod(&[argument]);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty());
    }
    assert_eq!(synod(&[]).status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn shells_complete_the_commands_of_this_build() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = synod(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in ["inspect", "barrier", "permits"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    let mut bash =
        Command::new("bash").args(["-n", "-s"]).stdin(Stdio::piped()).spawn().expect("bash");
    let script = synod(&["completions", "bash"]).stdout;
    bash.stdin.take().expect("piped").write_all(&script).expect("it reads");
    assert!(bash.wait().expect("it ends").success(), "bash refuses the script");
    assert_eq!(synod(&["completions", "sh"]).status.code(), Some(2));
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let page = text(&synod(&["man"]).stdout);
    assert!(page.contains(".TH synod 1") && page.contains("synod\\-lock(1)"), "{page}");

    let home = Home::new("manual").expect("a temporary directory");
    let output = synod(&["man", "--into", home.path().to_str().expect("text")]);
    assert!(output.status.success() && output.stdout.is_empty());
    let pages = fs::read_dir(home.path()).expect("it is there");
    let pages: Vec<_> = pages.map(|page| page.expect("readable").file_name()).collect();
    for page in ["synod.1", "synod-lock.1", "synod-queue.1", "synod-queue-put.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} is not among {pages:?}");
    }
    let is_hidden = |name: &OsString| name.to_string_lossy().contains("guard");
    assert!(!pages.iter().any(is_hidden), "what is hidden has a page");
    let missing = failing(&["man", "--into", "/nowhere/at/all"]);
    assert!(missing.contains("No such file"), "{missing}");
}

#[test]
fn what_is_put_is_created_or_replaced() {
    let put = synod(&["put", "--store", "mem://", "/a/b", "data", "--json"]);
    assert!(put.status.success() && text(&put.stdout).contains("\"version\":0"), "{put:?}");
    let refused = failing(&["put", "--store", "mem://", "/", "data"]);
    assert!(refused.contains("error:"), "{refused}");
}

#[test]
fn a_wrong_path_is_refused_where_it_is_typed() {
    let output = synod(&["get", "--store", "mem://", "/a/../b"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("a name is not . or .. at byte 3"));
}

#[test]
fn what_is_not_there_is_a_failure() {
    assert!(
        failing_with(66, &["get", "--store", "mem://", "/a"]).contains("there is no node at /a")
    );
    assert!(
        failing_with(66, &["set", "--store", "mem://", "/a", "x"]).contains("it does not exist")
    );
    assert!(failing_with(66, &["delete", "--store", "mem://", "/a"]).contains("it does not exist"));
    assert!(
        failing_with(66, &["delete", "-r", "--store", "mem://", "/a"]).contains("nothing at /a")
    );
}

#[test]
fn a_node_that_is_created_is_printed() {
    let made = synod(&["create", "--store", "mem://", "/a/b", "data", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(told["path"], "/a/b");
    assert_eq!(told["kind"], "persistent");

    let ticket = synod(&["create", "--store", "mem://", "/q/t-", "--sequential", "--ttl", "30s"]);
    assert!(text(&ticket.stdout).starts_with("/q/t-"), "{}", text(&ticket.stdout));
}

#[test]
fn the_demo_ends_by_itself_and_leaves_nothing() {
    let demo = synod(&["demo", "--json"]);
    assert!(demo.status.success(), "{}", text(&demo.stderr));
    let told: Vec<serde_json::Value> =
        text(&demo.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let said = |what: &str| told.iter().any(|line| line["what"] == what);
    let seen: Vec<_> = told.iter().filter(|line| line["group"].is_array()).collect();
    assert_eq!(seen.last().expect("a list")["group"], serde_json::json!(["ann", "cat"]));
    let all = |what: &str| {
        let lines = told.iter().filter(|line| line["what"] == what);
        lines.map(|line| line["who"].as_str().expect("text")).collect::<Vec<_>>()
    };
    assert_eq!(all("has the lock, and prints"), ["ann", "bob", "cat"]);
    assert_eq!(all("releases the lock"), ["ann", "cat"], "bob fails while it has the lock");
    let masters = [all("is the master").len(), all("is the next master").len()];
    assert_eq!(masters, [1, 1], "{told:?}");
    assert!(said("sees that all 60 tasks are done: each has one result"), "{told:?}");
    assert!(said("has 0 nodes, 0 sessions and 0 watches left"));
}

#[test]
fn a_command_that_is_not_built_in_is_listed_and_names_its_feature() {
    let help = text(&synod(&["--help"]).stdout);
    let tools = [
        ("bench", cfg!(feature = "bench")),
        ("conformance", cfg!(feature = "conformance")),
        ("sim", cfg!(feature = "sim")),
    ];
    for (name, is_built) in tools {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
        assert_eq!(help.contains(&format!("needs the feature `{name}`")), !is_built, "{help}");
        if is_built {
            continue;
        }
        let build = format!("cargo install --path cli --features {name}");
        for arguments in [&[name][..], &["--store", "mem://", name, "all", "--only", "x", "--json"]]
        {
            let output = synod(arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.starts_with("error: ") && said.contains(&build), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let help = synod(&[name, "--help"]);
        assert!(help.status.success() && text(&help.stdout).contains(&build));
    }
}
