//! `synod export`, `synod import` and `synod diff` on real servers.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use synod_testkit::limit::waits_for;

use crate::{Leash, Running, Scene, Server, eventually, text};

impl Server {
    /// The output of a command that reads this.
    pub(crate) fn fed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.synod(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let _leash = Leash::of(&child, &command);
        let (mut pipe, input) = (child.stdin.take().expect("piped"), input.to_vec());
        // The command may end before it has read everything.
        let writes = std::thread::spawn(move || pipe.write_all(&input).is_ok());
        waits_for(format_args!("the end of synod {arguments:?}"));
        let output = child.wait_with_output().expect("it was started");
        let _all = writes.join().expect("it does not panic");
        output
    }

    /// A file of a test alone.
    fn file(&self, name: &str) -> String {
        let url: String = self.url().chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{}/{name}-{url}", env!("CARGO_TARGET_TMPDIR"))
    }

    fn exported(&self, path: &str) -> String {
        let exported = self.output(&["export", path]);
        assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
        text(&exported.stdout)
    }
}

fn a_tree_is_exported_imported_and_compared(on: &Server) {
    for (path, data) in [
        ("/from/b", &b"1"[..]),
        ("/from/a", b"top"),
        ("/from/a/x", b"\xff\0"),
        ("/from/a-b", b"{}\n"),
    ] {
        assert_eq!(on.fed(&["put", path, "-"], data).status.code(), Some(0));
    }
    let mut held = Running::start(&mut on.synod(&["create", "--ephemeral", "/from/a/e", "x"]));
    held.line();
    let exported = on.output(&["export", "/from"]);
    let told = text(&exported.stderr);
    assert_eq!(told, "warning: ephemeral nodes, which are left out: 1");
    let lines = [
        r#"{"root":"/from","synod_export":1}"#,
        r#"{"data":"top","path":"/from/a"}"#,
        r#"{"data_base64":"/wA=","path":"/from/a/x"}"#,
        r#"{"data":"{}\n","path":"/from/a-b"}"#,
        r#"{"data":"1","path":"/from/b"}"#,
        r#"{"ephemeral_left_out":1,"nodes":4}"#,
    ];
    assert_eq!(text(&exported.stdout), lines.join("\n"));
    held.signal("TERM");
    held.ends_with(0);

    let file = on.file("exported");
    fs::write(&file, &exported.stdout).expect("writable");
    let dry = on.output(&["import", "--to", "/to/here", "--dry-run", &file]);
    assert_eq!(text(&dry.stdout), "would be created 4, replaced 0, unchanged 0, skipped 0");
    assert_eq!(on.code(&["export", "/to"]), Some(66), "it was dry");
    let imported = on.output(&["import", "--json", "--to", "/to/here", &file]);
    let told: serde_json::Value = serde_json::from_slice(&imported.stdout).expect("JSON");
    assert_eq!((&told["created"], &told["dry_run"]), (&4.into(), &false.into()));
    let moved = on.exported("/to/here").replace("/to/here", "/from");
    assert_eq!(moved, text(&exported.stdout).replace(r#"out":1"#, r#"out":0"#));

    let diff = |arguments: &[&str]| {
        let output = on.output(&[&["diff"], arguments].concat());
        (output.status.code(), text(&output.stdout))
    };
    let equal = (Some(0), String::new());
    assert_eq!(diff(&["/from", "--with-path", "/to/here"]), equal);
    assert_eq!(diff(&["/to/here", &file]), equal);
    assert_eq!(on.code(&["put", "/to/here/b", "2"]), Some(0));
    assert_eq!(on.code(&["put", "/to/here/a/w", ""]), Some(0));
    assert_eq!(on.code(&["delete", "/to/here/a-b"]), Some(0));
    let shown = "- /to/here/a/w\n+ /to/here/a-b  {}\\n\n~ /to/here/b  2 -> 1";
    assert_eq!(diff(&["/to/here", &file]), (Some(1), shown.to_owned()));
    let (code, json) = diff(&["--json", "/from", "--with-path", "/to/here"]);
    let last = r#"{"change":"changed","data":"1","other_data":"2","path":"/from/b"}"#;
    assert_eq!((code, json.lines().last()), (Some(1), Some(last)));
    assert_eq!(diff(&["/from", "/no/such/file"]).0, Some(2));

    // An existing node is refused, kept or replaced.
    let refused = on.output(&["import", "--to", "/to/here", &file]);
    assert_eq!(refused.status.code(), Some(73));
    let told = text(&refused.stderr);
    assert!(told.contains("nothing is written: there is /to/here/a, /to/here/a/x"), "{told}");
    assert_eq!(on.code(&["get", "/to/here/a-b"]), Some(66), "it was refused as a whole");
    let import = |choice: &str| {
        let done = on.output(&["import", "--to", "/to/here", "--on-existing", choice, &file]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    assert_eq!(import("skip"), "created 1, replaced 0, unchanged 0, skipped 3");
    assert_eq!(text(&on.output(&["get", "/to/here/b"]).stdout), "2");
    assert_eq!(import("replace"), "created 0, replaced 1, unchanged 3, skipped 0");
    assert_eq!(text(&on.output(&["get", "/to/here/b"]).stdout), "1");
    assert_eq!(on.code(&["export", "/to/nowhere"]), Some(66));
    fs::remove_file(&file).expect("it is there");
}

/// No line of a file is written if one of them cannot be written.
fn a_file_that_does_not_fit_is_refused_as_a_whole(on: &Server) {
    let node = |name: &str, data: &str| format!(r#"{{"path":"/unfit/{name}","data":"{data}"}}"#);
    let good = [node("a", "x"), node("b", "y")].join("\n");
    let large = node("c", &"z".repeat(3_000_000));
    let header = r#"{"root":"/unfit","synod_export":1}"#;
    for (file, why) in [
        (format!("{good}\n{large}"), "line 3: "),
        (format!("{good}\n{good}"), "line 3: /unfit/a is in the file twice"),
        (format!("{header}\n{good}"), "is cut off"),
        (format!("{good}\n{}", node("..", "")), "line 3: "),
        (format!("{good}\n{{\"path\""), "line 3: no JSON"),
        (format!("{good}\n{}\n{}", node("c/d", ""), node("c", "")), "line 4: /unfit/c comes after"),
    ] {
        let refused = on.fed(&["import"], file.as_bytes());
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.starts_with("error: ") && told.contains(why), "{why}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(on.code(&["export", "/unfit"]), Some(66), "{why}");
        // The same for a comparison, whose code 1 is a difference.
        if !file.contains("zzz") {
            assert_eq!(on.fed(&["diff", "/unfit", "-"], file.as_bytes()).status.code(), Some(2));
        }
    }
    let unsorted = [node("b", "y"), node("a", "x")].join("\n");
    let told = on.fed(&["diff", "/unfit", "-"], unsorted.as_bytes());
    assert!(text(&told.stderr).contains("/unfit/a is not in the order"), "{}", text(&told.stderr));
    assert_eq!(on.fed(&["import"], unsorted.as_bytes()).status.code(), Some(0));
    assert_eq!(on.fed(&["diff", "/unfit", "-"], good.as_bytes()).status.code(), Some(0));

    // A node in the store is in the way.
    assert_eq!(on.code(&["put", "/unfit/c/d", "x"]), Some(0));
    let above = [node("new", ""), node("c", "")].join("\n");
    let told = text(&on.fed(&["import"], above.as_bytes()).stderr);
    assert!(told.contains("line 2: /unfit/c cannot be created above /unfit/c/d"), "{told}");
    let mut held = Running::start(&mut on.synod(&["create", "--ephemeral", "/unfit/e"]));
    held.line();
    let below = [node("new", ""), node("e/f/g", "")].join("\n");
    let told = text(&on.fed(&["import"], below.as_bytes()).stderr);
    assert!(told.contains("line 2: /unfit/e is ephemeral"), "{told}");
    held.signal("TERM");
    held.ends_with(0);
    assert_eq!(on.code(&["get", "/unfit/new"]), Some(66));
}

fn a_store_is_copied_into_another_one(on: &Server) {
    let (one, two) = (on.another(), on.another());
    // More nodes than one transaction can have, deep, and with data that fills several
    // transactions.
    let deep = "/d".repeat(40);
    let mut file = String::new();
    for number in 0..150 {
        let data = "x".repeat(if number % 30 == 0 { 400_000 } else { number });
        let path = if number % 2 == 0 { "/flat".to_owned() } else { format!("{deep}{deep}") };
        let line = format!("{{\"path\":\"{path}/{number}\",\"data\":\"{data}\"}}\n");
        file.push_str(&line);
    }
    let made = one.fed(&["import"], file.as_bytes());
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let exported = one.output(&["export"]);
    assert_eq!(two.fed(&["import", "-"], &exported.stdout).status.code(), Some(0));
    assert_eq!(two.exported("/"), text(&exported.stdout));
    assert_eq!(one.code(&["diff", "/", "--with", &two.url()]), Some(0));
    assert_eq!(two.code(&["delete", "/flat/8"]), Some(0));
    let told = one.output(&["diff", "/flat", "--with", &two.url()]);
    assert_eq!(text(&told.stdout), "- /flat/8  xxxxxxxx");
    assert_eq!(told.status.code(), Some(1));

    // The same with one word, of which nothing is written if a node exists.
    let url = two.url();
    let cp = |arguments: &[&str]| {
        let done = one.output(&[&["cp"], arguments].concat());
        (done.status.code(), text(&done.stdout))
    };
    let to_two = ["/flat", "/flat", "--to", &url];
    assert_eq!(cp(&to_two), (Some(73), String::new()));
    assert_eq!(two.code(&["get", "/flat/8"]), Some(66));
    let dry = cp(&[&to_two[..], &["--dry-run", "--on-existing", "skip"]].concat());
    assert_eq!(dry.1, "would be created 1, replaced 0, unchanged 0, skipped 74");
    let done = cp(&[&to_two[..], &["--on-existing", "replace"]].concat());
    assert_eq!(done, (Some(0), "created 1, replaced 0, unchanged 74, skipped 0".to_owned()));
    assert_eq!(one.code(&["diff", "/", "--with", &url]), Some(0));
    // To a profile, below a node, and within one store, also below the node itself.
    let config = on.file("profiles");
    fs::write(&config, format!("[profiles.two]\nurl = \"{url}\"\n")).expect("writable");
    let to_profile = ["/flat", "/by/profile", "--to-profile", "two", "--config", &config];
    assert_eq!(cp(&to_profile).0, Some(0));
    assert_eq!(cp(&["/flat", "/flat/0/inner"]).0, Some(0));
    let diff = ["diff", "/flat/0/inner", "--with", &url, "--with-path", "/by/profile"];
    assert_eq!(one.code(&diff), Some(0));
    let by_profile = |path: &str, profile: &str| {
        one.code(&["diff", "/flat/0/inner", path, "--with-profile", profile, "--config", &config])
    };
    assert_eq!(by_profile("--with-path=/by/profile", "two"), Some(0));
    assert_eq!(by_profile("--with-path=/none", "two"), Some(1));
    assert_eq!(by_profile("--with-path=/flat", "none"), Some(2));
    assert_eq!(cp(&["/none", "/x", "--to", &url]).0, Some(66));
    assert_eq!(cp(&["/flat", "/x", "--to-profile", "none", "--config", &config]).0, Some(1));
    fs::remove_file(&config).expect("it is there");
}

fn a_time_to_live_of_a_file_is_kept(on: &Server) {
    let file = r#"{"path":"/brief","data":"x","ttl":"1s"}"#;
    assert_eq!(on.fed(&["import"], file.as_bytes()).status.code(), Some(0));
    eventually("it is gone", || on.code(&["get", "/brief"]) == Some(66));
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_tree_is_exported_imported_and_compared", a_tree_is_exported_imported_and_compared),
    (
        "a_file_that_does_not_fit_is_refused_as_a_whole",
        a_file_that_does_not_fit_is_refused_as_a_whole,
    ),
    ("a_store_is_copied_into_another_one", a_store_is_copied_into_another_one),
    ("a_time_to_live_of_a_file_is_kept", a_time_to_live_of_a_file_is_kept),
];
