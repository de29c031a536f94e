//! `backup` and `doctor`: a store in a directory.

use std::path::{Path as FilePath, absolute};
use std::time::Duration;

use serde_json::{Value, json};
use synod::file::{FileBackend, FileProcess, FileProcessState, FileReport, FileSessionEnd};
use synod::{Scheme, SessionId};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;

/// The exit code if something is wrong.
const WRONG: u8 = 1;

pub(crate) async fn backup(common: &Common, to: &FilePath) -> Result<(), Failure> {
    let backend = backend(common, "for a backup of this one use: synod export")?;
    let to = absolute(to)?;
    backend.backup(&to).await?;
    if common.json {
        output::object(&json!({ "file": to.display().to_string() }))?;
    }
    Ok(())
}

pub(crate) async fn doctor(common: &Common) -> Result<(), Failure> {
    let backend = backend(common, "of other stores see: synod status")?;
    let report = backend.report().await?;
    if common.json {
        output::object(&object(&report))?;
    } else {
        for line in lines(&report) {
            output::line(&line)?;
        }
    }
    if report.problems.is_empty() { Ok(()) } else { Err(Failure::Exit(WRONG, None)) }
}

fn backend(common: &Common, otherwise: &str) -> Result<FileBackend, Failure> {
    let config = Settings::of(common)?.config()?;
    if config.url.scheme() != Scheme::File {
        return Err(Failure::plain(format!(
            "this is for a store in a directory, as file:///var/lib/app; {otherwise}"
        )));
    }
    Ok(config.file_backend()?)
}

fn lines(report: &FileReport) -> Vec<String> {
    let mut lines = vec![
        format!("directory  {}", output::file(&report.directory)),
        format!("           user {}, mode {:o}, {}", report.owner, report.mode, report.file_system),
        format!("revision   {}, {} nodes", report.revision, report.nodes),
        format!("store.db   {} bytes, and {} in the log", report.database_bytes, report.wal_bytes),
    ];
    let writer = report.writer.map_or_else(|| "nobody".to_owned(), |pid| format!("process {pid}"));
    lines.push(format!("turn       {writer}"));
    lines.extend(report.processes.iter().map(|process| {
        let program = process.program.as_deref().unwrap_or("unknown");
        let (state, sessions) = (state(process), process.sessions.len());
        format!("process    {}  {program}  {state}, {sessions} sessions", pid(process.pid))
    }));
    lines.extend(report.ended.iter().map(|end| {
        format!(
            "ended      {}  session {} of process {}: {}",
            time(end),
            end.session,
            pid(end.pid),
            end.reason
        )
    }));
    lines.extend(report.problems.iter().map(|problem| format!("problem    {problem}")));
    lines
}

fn object(report: &FileReport) -> Value {
    let process = |process: &FileProcess| {
        let session = |(id, ttl): &(SessionId, Duration)| json!({ "id": id.to_string(), "ttl_ms": u64::try_from(ttl.as_millis()).ok() });
        json!({
            "seat": process.seat,
            "pid": process.pid,
            "program": process.program,
            "state": state(process),
            "sessions": process.sessions.iter().map(session).collect::<Vec<_>>(),
        })
    };
    let ended = |end: &FileSessionEnd| {
        json!({
            "session": end.session.to_string(),
            "pid": end.pid,
            "at": time(end),
            "reason": end.reason,
        })
    };
    json!({
        "directory": report.directory.display().to_string(),
        "owner": report.owner,
        "mode": format!("{:o}", report.mode),
        "file_system": report.file_system,
        "revision": report.revision.get(),
        "nodes": report.nodes,
        "database_bytes": report.database_bytes,
        "wal_bytes": report.wal_bytes,
        "writer": report.writer,
        "processes": report.processes.iter().map(process).collect::<Vec<_>>(),
        "ended": report.ended.iter().map(ended).collect::<Vec<_>>(),
        "problems": report.problems,
    })
}

fn state(process: &FileProcess) -> &'static str {
    match process.state {
        FileProcessState::Runs => "runs",
        FileProcessState::Stopped => "stopped",
        _ => "ended",
    }
}

fn pid(pid: Option<u32>) -> String {
    pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
}

fn time(end: &FileSessionEnd) -> String {
    humantime::format_rfc3339_seconds(end.at).to_string()
}
