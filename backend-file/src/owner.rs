//! [`Owner`]: the process of a seat, as the file of its lock names it, for people.

use std::fmt::Write as _;

/// The process of a seat. It is no evidence of anything: ids are used again, and differ between
/// namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: Option<u32>,
    namespace: Option<String>,
    program: Option<String>,
}

impl Owner {
    /// Returns this process.
    pub(crate) fn new() -> Self {
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
        let program = std::fs::read_to_string("/proc/self/comm").ok();
        Self {
            pid: Some(std::process::id()),
            namespace: namespace.map(|namespace| namespace.display().to_string()),
            program: program.map(|name| name.trim_end().escape_debug().to_string()),
        }
    }

    /// Returns the text of the file, a line for each part.
    pub(crate) fn to_text(&self) -> String {
        let pid = self.pid.map(|pid| pid.to_string());
        let parts = [("pid", &pid), ("namespace", &self.namespace), ("program", &self.program)];
        let mut text = String::new();
        for (name, value) in parts {
            if let Some(value) = value {
                let _fits = writeln!(text, "{name} {value}");
            }
        }
        text
    }

    /// Reads the text of a file. Parts that are missing are not known.
    pub(crate) fn parse(text: &str) -> Self {
        let part = |name: &str| {
            let of_name = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
            text.lines().find_map(of_name)
        };
        let pid = part("pid").and_then(|pid| pid.parse().ok());
        Self { pid, namespace: part("namespace"), program: part("program") }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Returns the process id if it is one of this namespace.
    pub(crate) fn local_pid(&self) -> Option<u32> {
        self.pid.filter(|_| self.namespace == Self::new().namespace)
    }

    pub(crate) fn program(self) -> Option<String> {
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let own = Owner::new();
        assert_eq!(Owner::parse(&own.to_text()), own);
        assert_eq!(own.local_pid(), Some(std::process::id()));
        let program = Some("a \\n pid 1".to_owned());
        let other = Owner { pid: Some(7), namespace: Some("pid:[1]".into()), program };
        assert_eq!(Owner::parse(&other.to_text()), other);
        assert_eq!(other.local_pid(), None, "an id of another namespace");
        for unknown in ["", "pid", "pid x\n", "pids 1"] {
            assert_eq!(Owner::parse(unknown), Owner::default());
        }
    }
}
