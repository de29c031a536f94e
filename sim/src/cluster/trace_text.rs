//! Readable texts of a trace.

use std::fmt;

use synod_core::store::{Expect, Freshness, Lifetime, Node, Op, Query, Revision, Scope, View};

/// A query.
pub(super) struct Asked<'a>(pub(super) &'a Query);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Query { path, more, scope, freshness, .. } = self.0;
        f.write_str(match scope {
            Scope::Node => "",
            Scope::Children => "the children of ",
            Scope::Subtree => "all below ",
        })?;
        let local = if *freshness == Freshness::Local { ", from the server at hand" } else { "" };
        write!(f, "{path}")?;
        more.iter().try_for_each(|path| write!(f, " and {path}"))?;
        f.write_str(local)
    }
}

/// The text of an operation.
pub(super) fn said(op: &Op) -> String {
    match op {
        Op::Check { path, expect } => format!("check {path}{}", expected(*expect)),
        Op::Create { path, data, lifetime, sequential } => {
            let ephemeral = if *lifetime == Lifetime::Session { "ephemeral " } else { "" };
            let ticket = if *sequential { "ticket " } else { "" };
            format!("create {ephemeral}{ticket}{path}{}", glimpse(data))
        }
        Op::Set { path, data, expect } => {
            format!("set {path}{}{}", glimpse(data), expected(*expect))
        }
        Op::Delete { path, expect } => format!("delete {path}{}", expected(*expect)),
    }
}

fn expected(expect: Expect) -> String {
    match expect {
        Expect::Any => String::new(),
        Expect::Absent => " if absent".to_owned(),
        Expect::Version(version) => format!(" if version {version}"),
    }
}

/// Data: one line, shortened.
pub(super) fn glimpse(data: &[u8]) -> String {
    const SHOWN: usize = 20;
    if data.is_empty() {
        return String::new();
    }
    let text = String::from_utf8_lossy(data);
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!(
        " = {}{more}",
        text.chars().take(SHOWN).flat_map(char::escape_debug).collect::<String>()
    )
}

/// A view.
pub(super) fn seen(view: &View, at: Revision) -> String {
    const SHOWN: usize = 3;
    let node = |node: &Node| format!("{}{}", node.path.name(), glimpse(&node.data));
    let shown = view.nodes.iter().take(SHOWN).map(node).collect::<Vec<_>>().join(", ");
    let more = if view.nodes.len() > SHOWN { ", …" } else { "" };
    let shown = if shown.is_empty() { "nothing there" } else { &shown };
    format!("{shown}{more}, as of #{at}")
}
