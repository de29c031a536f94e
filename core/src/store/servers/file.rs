//! [`ServersFile`]: a list of servers in a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::ServerSource;

/// A file with one server per line, as `host:port` or `host`. Empty lines, and text after `#`, are
/// ignored.
///
/// Replace the file by a rename: a client may read a part of a file that is written in place.
#[derive(Clone, PartialEq, Eq)]
pub struct ServersFile(PathBuf);

/// The maximum length of the file. A longer file is not a list of servers.
const MAX_BYTES: u64 = 1 << 20;

impl ServersFile {
    /// A file, which is read later, and need not exist yet.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self(file.into())
    }
}

#[async_trait]
impl ServerSource for ServersFile {
    async fn servers(&self) -> io::Result<Vec<String>> {
        let file = self.0.clone();
        #[expect(clippy::disallowed_methods, reason = "a file may be on a slow disk")]
        let reading = tokio::task::spawn_blocking(move || read(&file));
        Ok(parse(&reading.await??))
    }
}

fn read(file: &Path) -> io::Result<String> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(file)?.is_file() {
        return Err(invalid("it is not a regular file"));
    }
    let mut text = String::new();
    let length = File::open(file)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(length).is_ok_and(|length| length <= MAX_BYTES) {
        Ok(text)
    } else {
        Err(invalid("it is longer than 1 MiB"))
    }
}

fn parse(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Shows the path.
impl fmt::Debug for ServersFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file {}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_server_a_comment_or_nothing() {
        let text = "# the servers\na:1\n\n  b \t# behind the switch\r\n#c\n[::1]:2";
        assert_eq!(parse(text), ["a:1", "b", "[::1]:2"]);
        for empty in ["", "\n\n", "# nothing", " \t"] {
            assert!(parse(empty).is_empty(), "{empty:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_list_is_an_error() {
        let name = format!("synod-servers-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let source = ServersFile::new(&file);
        let read = async || source.servers().await.map_err(|error| error.kind());
        assert_eq!(read().await, Err(io::ErrorKind::NotFound));
        let length = usize::try_from(MAX_BYTES).expect("it is a mebibyte");
        for (bytes, result) in [
            (b"a:1\n".to_vec(), Ok(vec!["a:1".to_owned()])),
            (vec![0xff, 0xfe], Err(io::ErrorKind::InvalidData)),
            (vec![b'\n'; length], Ok(vec![])),
            (vec![b'\n'; length + 1], Err(io::ErrorKind::InvalidData)),
        ] {
            std::fs::write(&file, &bytes).expect("it is written");
            assert_eq!(read().await, result, "{}", bytes.len());
        }
        std::fs::remove_file(&file).expect("it is there");
        let directory = ServersFile::new(std::env::temp_dir()).servers().await;
        assert!(directory.expect_err("a directory").to_string().contains("regular file"));
    }
}
