//! The file of `export`, `import` and `diff`: a header, a line of JSON for each node, and a line
//! with their number, which shows whether the file is complete. [`Reader`] reads it.

use std::cmp::Ordering;
use std::io::{self, BufRead, Read as _, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use synod::{Node, Path};

use crate::access::Lists;
use crate::failure::Failure;
use crate::output;

/// The version of the format.
const VERSION: u64 = 1;

/// The maximum number of bytes in a line: more than the largest node with each byte escaped.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Writes the header.
pub(crate) fn write_header(to: &mut impl Write, root: &Path) -> io::Result<()> {
    writeln!(to, "{}", json!({ "root": root.as_str(), "synod_export": VERSION }))
}

/// Writes a node. The same content gives the same line, so the line has no revision and no version.
pub(crate) fn write_node(to: &mut impl Write, node: &Node, acl: Option<&str>) -> io::Result<()> {
    let (key, data) = output::data(&node.data);
    let mut line = json!({ key: data, "path": node.path.as_str() });
    if let Some(acl) = acl {
        line["acl"] = acl.into();
    }
    writeln!(to, "{line}")
}

/// Writes the last line.
pub(crate) fn write_footer(to: &mut impl Write, nodes: u64, ephemeral: u64) -> io::Result<()> {
    writeln!(to, "{}", json!({ "ephemeral_left_out": ephemeral, "nodes": nodes }))
}

/// The order of the lines: each node before the nodes below it, siblings by name.
pub(crate) fn order(one: &Path, other: &Path) -> Ordering {
    one.segments().cmp(other.segments())
}

/// A node of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Path,
    pub(crate) data: Bytes,
    pub(crate) ttl: Option<Duration>,
    pub(crate) acl: Option<String>,
    /// The number of its line.
    pub(crate) line: u64,
}

/// Reads a file, line by line.
///
/// A file without a header has no last line either: it was written by hand, or is a part of an
/// export. It can also be the output of `tree --json`.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    from: R,
    line: u64,
    header: Option<Path>,
    /// The number of nodes that were read.
    nodes: u64,
    is_over: bool,
    /// The number of ephemeral nodes that were omitted.
    ephemeral: u64,
}

/// A line.
enum Line {
    Header(Path),
    Node(Entry),
    /// A container, or an ephemeral node.
    LeftOut {
        is_ephemeral: bool,
    },
    Footer {
        nodes: u64,
    },
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, line: 0, header: None, nodes: 0, is_over: false, ephemeral: 0 }
    }

    /// The path that was exported; `None` for a file without a header. Known after the first line.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.header.as_ref()
    }

    /// The number of ephemeral nodes of the file that were omitted.
    pub(crate) fn ephemeral(&self) -> u64 {
        self.ephemeral
    }

    /// The next node; `None` at the end of a complete file.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        while let Some(text) = self.next_line()? {
            let line = parse(&text, self.line).map_err(|why| self.wrong(&why))?;
            if self.is_over {
                return Err(self.wrong("there are more lines after the last one of the export"));
            }
            match line {
                Line::Header(root) if self.line == 1 => self.header = Some(root),
                Line::Header(_) => return Err(self.wrong("a header is the first line of a file")),
                Line::Node(entry) => {
                    if self.header.as_ref().is_some_and(|root| !is_at_or_below(&entry.path, root)) {
                        return Err(self.wrong(&format!("{} is not below the root", entry.path)));
                    }
                    self.nodes += 1;
                    return Ok(Some(entry));
                }
                Line::LeftOut { is_ephemeral } => self.ephemeral += u64::from(is_ephemeral),
                Line::Footer { nodes } if nodes == self.nodes => self.is_over = true,
                Line::Footer { nodes } => {
                    let read = self.nodes;
                    return Err(self.wrong(&format!(
                        "the export had {nodes} nodes, and this file has {read}; without its first and \
                         last line a part of a file is read as it is"
                    )));
                }
            }
        }
        if self.header.is_some() && !self.is_over {
            return Err(self.wrong("the file is cut off: the last line of the export is missing"));
        }
        Ok(None)
    }

    /// The next line that is not empty.
    fn next_line(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.from).take(MAX_LINE + 1).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if read as u64 > MAX_LINE {
                return Err(self.wrong("the line is too long for a node"));
            }
            let text = String::from_utf8(line).map_err(|_| self.wrong("the line is not UTF-8"))?;
            if !text.trim().is_empty() {
                return Ok(Some(text));
            }
        }
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::plain(format!("line {}: {why}", self.line))
    }
}

/// Returns `true` if a path is this one, or below it.
fn is_at_or_below(path: &Path, root: &Path) -> bool {
    path == root || path.is_below(root)
}

fn parse(text: &str, number: u64) -> Result<Line, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(object) = value else { return Err("no JSON object".to_owned()) };
    if let Some(version) = object.get("synod_export") {
        if version.as_u64() != Some(VERSION) {
            return Err(format!("an export of version {version}; this program reads {VERSION}"));
        }
        return Ok(Line::Header(path(&object, "root")?));
    }
    if let (Some(nodes), None) = (object.get("nodes"), object.get("path")) {
        let nodes = nodes.as_u64().ok_or("`nodes` is no number")?;
        return Ok(Line::Footer { nodes });
    }
    match object.get("kind").and_then(Value::as_str) {
        Some("container") => return Ok(Line::LeftOut { is_ephemeral: false }),
        Some("ephemeral") => return Ok(Line::LeftOut { is_ephemeral: true }),
        _ => {}
    }
    let (path, data) = (path(&object, "path")?, data(&object)?);
    if path.is_root() {
        return Err("/ is no node".to_owned());
    }
    let (ttl, acl) = (ttl(&object)?, acl(&object)?);
    Ok(Line::Node(Entry { path, data, ttl, acl, line: number }))
}

pub(crate) fn path(object: &Map<String, Value>, key: &str) -> Result<Path, String> {
    let text = object.get(key).and_then(Value::as_str);
    let text = text.ok_or_else(|| format!("no `{key}` with a path"))?;
    Path::new(text).map_err(|error| error.to_string())
}

pub(crate) fn data(object: &Map<String, Value>) -> Result<Bytes, String> {
    match (object.get("data"), object.get("data_base64")) {
        (Some(Value::String(text)), None) => Ok(text.clone().into()),
        (None, Some(Value::String(text))) => {
            STANDARD.decode(text).map(Bytes::from).map_err(|_| "`data_base64` is no base64".into())
        }
        (Some(_), Some(_)) => Err("`data` and `data_base64` exclude each other".to_owned()),
        (Some(_), None) => Err("`data` is no text; JSON is written as a text, too".to_owned()),
        (None, _) => Err("neither `data` nor `data_base64` has the data as a text".to_owned()),
    }
}

pub(crate) fn ttl(object: &Map<String, Value>) -> Result<Option<Duration>, String> {
    let Some(ttl) = object.get("ttl").filter(|ttl| !ttl.is_null()) else { return Ok(None) };
    let ttl = ttl.as_str().and_then(|ttl| humantime::parse_duration(ttl).ok());
    ttl.map(Some).ok_or_else(|| "`ttl` is no time such as \"30s\"".to_owned())
}

fn acl(object: &Map<String, Value>) -> Result<Option<String>, String> {
    let Some(acl) = object.get("acl").filter(|acl| !acl.is_null()) else { return Ok(None) };
    let acl = acl.as_str().ok_or("`acl` is no text")?;
    Lists::check(acl).map_err(|why| format!("`acl`: {why}"))?;
    Ok(Some(acl.to_owned()))
}

#[cfg(test)]
mod tests {
    use synod::{Revision, Stat, Version};

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn read(text: &str) -> Result<Vec<Entry>, String> {
        let mut reader = Reader::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(entry)) => all.push(entry),
                Ok(None) => return Ok(all),
                Err(Failure::Plain(why)) => return Err(why),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn node(at: &str, data: &'static [u8]) -> Node {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        Node::new(path(at)).with(data.into(), stat)
    }

    fn file(nodes: &[Node]) -> String {
        let mut file = Vec::new();
        write_header(&mut file, &path("/a")).expect("memory");
        for node in nodes {
            write_node(&mut file, node, None).expect("memory");
        }
        write_footer(&mut file, nodes.len() as u64, 3).expect("memory");
        String::from_utf8(file).expect("text")
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let data: [&[u8]; 6] =
            [b"", b"x\n\"\\\0", b"\xff\x00", "\u{2028}é".as_bytes(), b"{}", b"1"];
        let nodes: Vec<Node> =
            data.iter().enumerate().map(|(at, data)| node(&format!("/a/{at}"), data)).collect();
        let entries = read(&file(&nodes)).expect("it is whole");
        assert_eq!(entries.len(), nodes.len());
        for (entry, node) in entries.iter().zip(&nodes) {
            assert_eq!((&entry.path, &entry.data, entry.ttl), (&node.path, &node.data, None));
        }
        assert!(read(&file(&[])).expect("it is whole").is_empty());
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused() {
        let whole = file(&[node("/a/1", b"x"), node("/a/2", b"y")]);
        let lines: Vec<&str> = whole.lines().collect();
        let without = |at: usize| {
            let mut lines = lines.clone();
            lines.remove(at);
            lines.join("\n")
        };
        assert!(read(&without(3)).expect_err("no end").contains("is cut off"));
        assert!(read(&without(1)).expect_err("a node less").contains("had 2 nodes, and this file"));
        assert!(read(&lines[..1].join("\n")).expect_err("no end").contains("is cut off"));
        // In the middle of a line.
        let cut = &whole[..whole.len() - 5];
        assert!(read(cut).expect_err("half a line").starts_with("line 4: no JSON"));
        assert!(read(&(whole.clone() + &whole)).expect_err("twice").starts_with("line 5: "));
        // A part of a file, or one that was written by hand.
        assert_eq!(read(&lines[1..3].join("\n")).expect("lines").len(), 2);
        assert_eq!(read("").expect("no lines"), []);
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (line, why) in [
            ("x", "no JSON"),
            ("[]", "no JSON object"),
            (r#"{"data":"x"}"#, "no `path`"),
            (r#"{"path":"a","data":"x"}"#, "a path starts with"),
            (r#"{"path":"/","data":"x"}"#, "/ is no node"),
            (r#"{"path":"/a"}"#, "neither"),
            (r#"{"path":"/a","dat":"x"}"#, "neither"),
            (r#"{"path":"/a","data":{}}"#, "`data` is no text"),
            (r#"{"path":"/a","data":"x","data_base64":""}"#, "exclude each other"),
            (r#"{"path":"/a","data_base64":"*"}"#, "no base64"),
            (r#"{"path":"/a","data":"x","ttl":"soon"}"#, "no time"),
            (r#"{"path":"/a","data":"x","ttl":3}"#, "no time"),
            (r#"{"path":"/a","data":"x","acl":3}"#, "`acl` is no text"),
            (r#"{"synod_export":2,"root":"/a"}"#, "of version 2"),
            (r#"{"synod_export":1}"#, "no `root`"),
            (r#"{"synod_export":1,"root":"/a"}"#, "is the first line"),
        ] {
            let told = read(&format!("\n{line}\n")).expect_err("it is wrong");
            assert!(told.starts_with("line 2: ") && told.contains(why), "{line}: {told}");
        }
        let outside = file(&[node("/ab", b"x")]);
        assert!(read(&outside).expect_err("outside").contains("/ab is not below the root"));
    }

    #[test]
    fn lines_of_tree_are_read_and_a_time_to_live_is_kept() {
        let lines = r#"
            {"path":"/t","kind":"container"}
            {"path":"/t/e","kind":"ephemeral","data":"","owner":"1"}
            {"path":"/t/p","kind":"persistent","data":"x","version":3}
            {"path":"/t/q","data":"y","ttl":"1m 30s"}
        "#;
        let entries = read(lines).expect("two nodes");
        let ttls: Vec<_> = entries.iter().map(|entry| entry.ttl).collect();
        assert_eq!(ttls, [None, Some(Duration::from_secs(90))]);
    }

    #[cfg(feature = "zookeeper")]
    #[test]
    fn an_access_list_is_kept_and_a_wrong_one_is_refused() {
        let node = node("/a/1", b"x");
        let mut line = Vec::new();
        write_node(&mut line, &node, Some("world:anyone:r")).expect("memory");
        let line = String::from_utf8(line).expect("text");
        assert_eq!(line, "{\"acl\":\"world:anyone:r\",\"data\":\"x\",\"path\":\"/a/1\"}\n");
        assert_eq!(read(&line).expect("valid")[0].acl.as_deref(), Some("world:anyone:r"));
        for wrong in ["", "world:anyone:x", "digest:ann:canary-7f3a:r"] {
            let told = read(&line.replace("world:anyone:r", wrong)).expect_err("it is no list");
            assert!(told.starts_with("line 1: `acl`: ") && !told.contains("canary"), "{told}");
        }
    }

    #[test]
    fn a_node_comes_before_the_nodes_below_it_and_these_before_its_siblings() {
        let sorted = ["/", "/a", "/a/b", "/a/b/c", "/a/c", "/a b", "/a-b", "/b"];
        let mut paths = sorted.map(path);
        paths.reverse();
        paths.sort_by(order);
        assert_eq!(paths.each_ref().map(Path::as_str), sorted);
    }
}
