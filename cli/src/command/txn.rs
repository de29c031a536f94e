//! `txn`: several operations, which are applied together or not at all.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path as FilePath;

use serde_json::{Deserializer, Map, Value};
use synod::{Commit, Expect, Lifetime, Outcome, RejectReason, Txn, Version};

use crate::args::Common;
use crate::command::connect;
use crate::export_format::{data, path, ttl};
use crate::failure::{Failure, REFUSED};
use crate::output;

pub(crate) async fn run(common: &Common, file: &FilePath) -> Result<(), Failure> {
    let txn = parse(&read(file)?).map_err(Failure::plain)?;
    let client = connect(common).await?;
    let done = client.commit(txn).await;
    client.close().await?;
    match done? {
        Outcome::Committed(commit) => print(common, &commit),
        Outcome::Rejected(no) => {
            let text = format!("operation {}, on {no}; nothing was changed", no.index + 1);
            Err(match no.reason {
                RejectReason::Missing => Failure::NotThere(text),
                _ => Failure::Exit(REFUSED, Some(text)),
            })
        }
    }
}

fn read(file: &FilePath) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    read.map_err(|error| Failure::plain(format!("{}: {error}", output::file(file))))
}

fn print(common: &Common, commit: &Commit) -> Result<(), Failure> {
    if !common.json {
        return Ok(());
    }
    for result in &commit.results {
        let mut object = result.stat.as_ref().map(output::facts).unwrap_or_default();
        object.insert("path".into(), result.path.as_str().into());
        output::object(&object.into())?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Txn, String> {
    let mut txn = Txn::new();
    for (index, value) in Deserializer::from_str(text).into_iter::<Value>().enumerate() {
        let at = |why: String| format!("operation {}: {why}", index + 1);
        let value = value.map_err(|error| at(format!("no JSON: {error}")))?;
        txn = add(txn, &value).map_err(at)?;
    }
    if txn.ops.is_empty() {
        return Err("there is no operation".to_owned());
    }
    Ok(txn)
}

/// Adds the operation that an object describes.
fn add(txn: Txn, value: &Value) -> Result<Txn, String> {
    let object = value.as_object().ok_or("it is no JSON object")?;
    let op = object.get("op").and_then(Value::as_str).unwrap_or_default();
    let fields: &[&str] = match op {
        "check" => &["version", "exists"],
        "create" => &["data", "data_base64", "ttl"],
        "set" => &["data", "data_base64", "version"],
        "delete" => &["version"],
        _ => return Err("`op` is check, create, set or delete".to_owned()),
    };
    // A misspelled version must not become any version.
    let is_known = |key: &str| ["op", "path"].contains(&key) || fields.contains(&key);
    if let Some(key) = object.keys().find(|key| !is_known(key)) {
        return Err(format!("{op} has no `{}`", key.escape_debug()));
    }
    let path = path(object, "path")?;
    Ok(match op {
        "check" => txn.check(path, checked(object)?),
        "create" => {
            let lifetime = ttl(object)?.map_or(Lifetime::Persistent, Lifetime::Ttl);
            txn.create(path, data(object)?, lifetime)
        }
        "set" => txn.set(path, data(object)?, version(object)?.unwrap_or(Expect::Any)),
        _ => txn.delete(path, version(object)?.unwrap_or(Expect::Any)),
    })
}

/// The state that a check requires.
fn checked(object: &Map<String, Value>) -> Result<Expect, String> {
    match (version(object)?, object.get("exists")) {
        (Some(version), None) => Ok(version),
        (None, Some(Value::Bool(exists))) => Ok(if *exists { Expect::Any } else { Expect::Absent }),
        _ => Err("check has a `version`, or `exists` with true or false".to_owned()),
    }
}

fn version(object: &Map<String, Value>) -> Result<Option<Expect>, String> {
    let Some(version) = object.get("version") else { return Ok(None) };
    let number = version.as_u64().ok_or("`version` is no number")?;
    Ok(Some(Expect::Version(Version::new(number))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_operation_after_the_other() {
        let txn = parse(
            r#"{"op":"check","path":"/a","version":18446744073709551615}
               {"op":"check","path":"/b","exists":false} {"op":"check","path":"/c","exists":true}
               {"op":"create","path":"/b",
                "data":"x"}
               {"op":"set","path":"/a","data_base64":"/w==","version":0}
               {"op":"delete","path":"/c"}"#,
        );
        let version = |number| Expect::Version(Version::new(number));
        let path = |text: &str| synod::Path::new(text).expect("valid");
        let expected = Txn::new()
            .check(path("/a"), version(u64::MAX))
            .check(path("/b"), Expect::Absent)
            .check(path("/c"), Expect::Any)
            .create(path("/b"), "x", Lifetime::Persistent)
            .set(path("/a"), &b"\xff"[..], version(0))
            .delete(path("/c"), Expect::Any);
        assert_eq!(txn.expect("valid").ops, expected.ops);
    }

    #[test]
    fn a_wrong_operation_is_refused_with_its_number() {
        let good = r#"{"op":"delete","path":"/a"}"#;
        for (wrong, why) in [
            ("x", "no JSON"),
            ("3", "it is no JSON object"),
            ("[]", "it is no JSON object"),
            (r#"{"path":"/a"}"#, "`op` is check, create, set or delete"),
            (r#"{"op":"put","path":"/a"}"#, "`op` is check"),
            (r#"{"op":"delete"}"#, "no `path`"),
            (r#"{"op":"delete","path":"a"}"#, "a path starts with"),
            (r#"{"op":"delete","path":"/a","verison":1}"#, "delete has no `verison`"),
            (r#"{"op":"delete","path":"/a","version":-1}"#, "`version` is no number"),
            (r#"{"op":"delete","path":"/a","version":null}"#, "`version` is no number"),
            (r#"{"op":"check","path":"/a"}"#, "check has a `version`"),
            (r#"{"op":"check","path":"/a","exists":1}"#, "check has a `version`"),
            (r#"{"op":"check","path":"/a","exists":true,"version":1}"#, "check has a `version`"),
            (r#"{"op":"set","path":"/a"}"#, "neither `data`"),
            (r#"{"op":"create","path":"/a","data":"","version":1}"#, "create has no `version`"),
            (r#"{"op":"create","path":"/a","data":"","ttl":1}"#, "`ttl` is no time"),
        ] {
            let told = parse(&format!("{good}\n{wrong}")).expect_err(wrong);
            assert!(told.starts_with("operation 2: ") && told.contains(why), "{wrong}: {told}");
        }
        assert_eq!(parse(" \n").expect_err("empty"), "there is no operation");
    }
}
