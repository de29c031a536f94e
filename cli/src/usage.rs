//! [`report`]: errors of the arguments, without passwords and control characters.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Error;
use clap::builder::StyledStr;

/// The exit code of wrong arguments.
pub(crate) const USAGE: u8 = 2;

/// Prints an error of the arguments, or the help that they request, and returns the exit code.
pub(crate) fn report(error: &Error, arguments: &[OsString]) -> ExitCode {
    let text = error.render().to_string();
    let cleaned = if error.use_stderr() { cleaned(&text, arguments) } else { text.clone() };
    // If the output is closed, the exit code is the only report.
    let _told = if cleaned == text {
        error.print().is_ok()
    } else {
        io::stderr().write_all(cleaned.as_bytes()).is_ok()
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// The text of an error that quotes arguments, without passwords: the URL of a store may be in the
/// wrong place.
fn cleaned(text: &str, arguments: &[OsString]) -> String {
    let mut text = text.to_owned();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        // For an option with a value, the value is quoted.
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        for quoted in [&*argument, value] {
            if quoted.contains(char::is_control) {
                // The text has it without its escape sequences.
                let printed = StyledStr::from(quoted.to_owned()).to_string();
                text = text.replace(&printed, &escaped(quoted));
            }
        }
    }
    text.split_inclusive('\n').map(without_password).collect()
}

fn escaped(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.into() };
    text.chars().map(escaped).collect()
}

/// A line without the text between the scheme and the host of a URL.
fn without_password(line: &str) -> String {
    const SCHEME_END: &str = "://";
    match (line.find(SCHEME_END), line.rfind('@')) {
        (Some(scheme), Some(host)) if scheme < host => {
            format!("{}***{}", &line[..scheme + SCHEME_END.len()], &line[host..])
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_argument_has_no_password_and_no_control_characters() {
        let table: [(&str, &[&str], &str); 5] = [
            ("no '/a'\n\nUsage: x\n", &["/a"], "no '/a'\n\nUsage: x\n"),
            (
                "unexpected 'etcd://u:p@w@h'\nmore",
                &["etcd://u:p@w@h"],
                "unexpected 'etcd://***@h'\nmore",
            ),
            (
                "unexpected 'zk://u:p\nw@h' found",
                &["zk://u:p\nw@h"],
                "unexpected 'zk://***@h' found",
            ),
            ("bad 'a\nb' for x", &["--to=a\n\u{1b}[31mb"], "bad 'a\\n\\u{1b}[31mb' for x"),
            ("say mem://name", &["x@y"], "say mem://name"),
        ];
        for (text, arguments, clean) in table {
            let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
            assert_eq!(cleaned(text, &arguments), clean);
        }
    }
}
