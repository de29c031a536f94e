//! `synod acl`, and the three teams of `docs/access.md` on a server that they share.

use std::process::{Command, Stdio};

use synod_testkit::limit::waits_for;

use crate::cookbook::{Machine, blocks_of};
use crate::{Leash, Scene, Server, text};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/access.md");

fn a_list_is_shown_and_replaced(on: &Server) {
    let output = |arguments: &[&str]| {
        let output = on.output(arguments);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(on.code(&["put", "/acl/a", "x"]), Some(0));
    let file = r#"{"acl":"world:anyone:cdra","data":"y","path":"/acl-file/a"}"#;
    let imported = on.fed(&["import"], file.as_bytes());
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let Server::ZooKeeper(_) = on else {
        for arguments in [&["acl", "get", "/acl/a"][..], &["export", "--acl", "/acl"]] {
            let (code, _, told) = output(arguments);
            assert_eq!(code, Some(1), "{told}");
            assert!(told.contains("only ZooKeeper has access lists"), "{told}");
        }
        let told = text(&imported.stderr);
        assert!(told.contains("those of the file are left out: 1"), "{told}");
        assert_eq!(output(&["get", "/acl-file/a"]).1, "y");
        return;
    };
    assert_eq!(output(&["acl", "get", "/acl-file/a"]).1, "world:anyone:cdra");
    assert_eq!(output(&["acl", "get", "/acl/a"]).1, "world:anyone:cdrwa");
    assert_eq!(on.code(&["acl", "get", "/acl/none"]), Some(66));
    assert_eq!(on.code(&["acl", "set", "/acl/none", "open"]), Some(66));
    let set =
        ["acl", "set", "--json", "--version", "0", "/acl/a", "world:read+admin,ip:127.0.0.1:w"];
    assert_eq!(output(&set).1, r#"{"path":"/acl/a","version":1}"#);
    assert_eq!(on.code(&set), Some(73), "it has another version");
    let shown = r#"{"acl":"world:anyone:ra,ip:127.0.0.1:w","path":"/acl/a","version":1}"#;
    assert_eq!(output(&["acl", "get", "--json", "/acl/a"]).1, shown);
    for (list, why) in [("world:anyone:x", "letters of cdrwa"), ("digest:a:pw:r", "never")] {
        let (code, _, told) = output(&["acl", "set", "/acl/a", list]);
        assert!(code == Some(1) && told.contains(why) && !told.contains("pw:r"), "{told}");
    }
    assert_eq!(on.code(&["acl", "set", "/acl/a", "creator"]), Some(1), "there is no creator");

    // Lists are kept by an export with them, and by a copy.
    let exported = output(&["export", "--acl", "/acl"]).1;
    let line = r#"{"acl":"world:anyone:ra,ip:127.0.0.1:w","data":"x","path":"/acl/a"}"#;
    assert_eq!(exported.lines().nth(1), Some(line));
    let imported = on.fed(&["import", "--to", "/acl-import"], exported.as_bytes());
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    assert_eq!(on.code(&["cp", "--acl", "/acl", "/acl-copy"]), Some(0));
    assert_eq!(on.code(&["cp", "/acl", "/acl-plain"]), Some(0));
    let list = |path: &str| output(&["acl", "get", path]).1;
    assert_eq!(list("/acl-import/a"), "world:anyone:ra,ip:127.0.0.1:w");
    assert_eq!(list("/acl-copy/a"), list("/acl-import/a"));
    assert_eq!(list("/acl-plain/a"), "world:anyone:cdrwa");
    assert_eq!(output(&["acl", "set", "-r", "/acl-copy", "open"]).1, "2 nodes");
    assert_eq!(list("/acl-copy/a"), "world:anyone:cdrwa");
    // The directory is a container.
    assert_eq!(list("/acl-copy"), "world:anyone:cdra");
    assert_eq!(on.code(&["acl", "set", "-r", "/acl/none", "open"]), Some(66));
}

/// Runs the block of the page, then what each team may do and may not.
fn three_teams_share_a_server(on: &Server) {
    let own = on.another();
    let (section, scheme) = match &own {
        Server::ZooKeeper(_) => ("Set up ZooKeeper", "zk"),
        Server::Etcd(_) => ("Set up etcd", "etcd"),
    };
    let [setup] = &blocks_of(PAGE, section, "sh")[..] else { panic!("one block of {section}") };
    let admin = Machine::new(&own, &[]);
    let address = match &own {
        Server::ZooKeeper(servers) => servers.addresses()[0],
        Server::Etcd(servers) => {
            let etcdctl = servers.etcdctl();
            let program = std::path::Path::new(etcdctl.get_program());
            // A name alone is found as it is, and the script would call itself.
            if program.is_absolute() {
                let script = format!("#!/bin/sh\nexec {} \"$@\"\n", program.display());
                admin.program("etcdctl", &script);
            }
            servers.addresses()[0]
        }
    };
    let with_hosts = |command: &mut Command| {
        command.env("HOSTS", address.to_string()).env("ETCDCTL_ENDPOINTS", address.to_string());
        command.env("ETCDCTL_API", "3");
        for team in ["ROOT", "OPS", "SHOP", "MAIL"] {
            command.env(format!("{team}_PASSWORD"), format!("{team}-pw"));
        }
    };
    let run = |script: &str| {
        let mut command = admin.command(script, &[]);
        with_hosts(&mut command);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = piped.spawn().expect("it starts");
        let _leash = Leash::of(&child, &command);
        waits_for(format_args!("the end of {script}"));
        child.wait_with_output().expect("it was started")
    };
    let set_up = run(&format!("set -eu\n{setup}"));
    assert!(set_up.status.success(), "{} {}", text(&set_up.stdout), text(&set_up.stderr));

    let code = |user: &str, place: &str, arguments: &str| {
        let acl = match (scheme, user) {
            ("zk", "") => "?acl=open",
            ("zk", "ops") => "?acl=/config=world:read,creator:all;creator",
            _ => "",
        };
        let password =
            if user.is_empty() { "" } else { &format!("{user}:{}-pw@", user.to_uppercase()) };
        let done =
            run(&format!("synod --store '{scheme}://{password}{address}{place}{acl}' {arguments}"));
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let may = |user: &str, place: &str, arguments: &str| {
        let (code, told, error) = code(user, place, arguments);
        assert_eq!(code, Some(0), "{user} {place} {arguments}: {error}");
        told
    };
    let may_not = |user: &str, place: &str, arguments: &str| {
        let (code, _, error) = code(user, place, arguments);
        assert_eq!(code, Some(77), "{user} {place} {arguments}: {error}");
        assert!(!error.contains("-pw"), "{error}");
    };
    may("ops", "", "put /config/limits 10");
    may("ops", "", "put /config/limits 11");
    for (team, other) in [("shop", "mail"), ("mail", "shop")] {
        let (own, others) = (format!("/{team}"), format!("/{other}"));
        may(team, &own, "lock /jobs/nightly -- true");
        may(team, &own, "put /queue/item x");
        assert_eq!(may(team, &own, "get /queue/item"), "x");
        assert_eq!(may(team, "", "get /config/limits"), "11");
        assert_eq!(may(team, "", "ls /config"), "limits");
        for arguments in ["put /config/limits 12", "delete /config/limits", "put /config/more 1"] {
            may_not(team, "", arguments);
        }
        for arguments in ["ls /", "put /x 1", "get /queue/item", "lock /jobs/nightly -- true"] {
            may_not(other, &own, arguments);
        }
        may_not(team, &others, "ls /");
        may_not(team, "", "put /elsewhere 1");
    }
    assert_eq!(may("ops", "", "get /config/limits"), "11");
    // Who has no user reads nothing of a team. etcd tells such a client nothing at all.
    assert_ne!(code("", "/shop", "ls /").0, Some(0));
}

/// The page has no block that no scene runs.
fn each_block_of_the_page_is_run(_on: &Server) {
    let page = std::fs::read_to_string(PAGE).expect("it is there");
    let sections = page.split("\n## ").skip(1).filter(|section| section.contains("```sh"));
    let titles: Vec<&str> = sections.filter_map(|section| section.lines().next()).collect();
    assert_eq!(titles, ["Set up ZooKeeper", "Set up etcd"]);
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_list_is_shown_and_replaced", a_list_is_shown_and_replaced),
    ("three_teams_share_a_server", three_teams_share_a_server),
    ("each_block_of_the_access_page_is_run", each_block_of_the_page_is_run),
];
