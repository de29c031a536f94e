//! `diff`: the nodes that differ between two subtrees, or between a subtree and a file.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path as FilePath;

use bytes::Bytes;
use serde_json::{Map, Value};
use synod::{Client, Path};

use crate::args::Common;
use crate::args::copy::Diff;
use crate::command::connect;
use crate::export_format::{Reader, order};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::walk::PersistentNodes;

/// The exit code if a node differs.
const DIFFERENT: u8 = 1;

pub(crate) async fn run(common: &Common, diff: &Diff) -> Result<(), Failure> {
    // A file that is not there is reported before a store that does not answer.
    let file = diff.file.as_deref().map(open).transpose()?;
    let config = Settings::other(common, diff.with.as_deref(), diff.with_profile.as_deref())?;
    let config = config.map(|settings| settings.config()).transpose()?;
    let client = connect(common).await?;
    let other = match &config {
        Some(config) => Some(Progress::waiting("connecting", config.connect()).await?),
        None => None,
    };
    let compared = compare(common, diff, &client, other.as_ref(), file).await;
    if let Some(other) = other {
        other.close().await?;
    }
    client.close().await?;
    if compared? { Err(Failure::Exit(DIFFERENT, None)) } else { Ok(()) }
}

type Input = Box<dyn BufRead + Send>;

fn open(path: &FilePath) -> Result<Input, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path)
        .map_err(|error| Failure::plain(format!("{}: {error}", output::file(path))))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Prints the differences. Returns `true` if there are any.
async fn compare(
    common: &Common,
    diff: &Diff,
    client: &Client,
    other: Option<&Client>,
    file: Option<Input>,
) -> Result<bool, Failure> {
    let mut first = Side::of_store(client, &diff.path).await?;
    let mut second = if let Some(file) = file {
        let reader = Box::new(Reader::new(file));
        Side::File { reader, root: diff.path.clone(), last: None }
    } else {
        let path = diff.with_path.as_ref().unwrap_or(&diff.path);
        Side::of_store(other.unwrap_or(client), path).await?
    };
    let progress = Progress::new("comparing", None);
    let (mut one, mut two) = (first.next().await?, second.next().await?);
    let mut is_different = false;
    loop {
        let compared = match (&one, &two) {
            (None, None) => return Ok(is_different),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((two, _))) => order(one, two),
        };
        let (left, right) = match compared {
            Ordering::Less => (one.take(), None),
            Ordering::Greater => (None, two.take()),
            Ordering::Equal => (one.take(), two.take()),
        };
        let is_equal = left.as_ref().map(|it| &it.1) == right.as_ref().map(|it| &it.1);
        if !is_equal {
            is_different = true;
            print(common, &diff.path, left.as_ref(), right.as_ref())?;
        }
        if left.is_some() {
            one = first.next().await?;
        }
        if right.is_some() {
            two = second.next().await?;
        }
        progress.advance(1);
    }
}

/// A node, by its path below the node that is compared.
type Compared = (Path, Bytes);

/// The nodes of one side, in the order of an export.
enum Side {
    Store {
        nodes: PersistentNodes,
        root: Path,
    },
    /// A file without a header has the paths of the node that it is compared with.
    File {
        reader: Box<Reader<Input>>,
        root: Path,
        last: Option<Path>,
    },
}

impl Side {
    async fn of_store(client: &Client, path: &Path) -> Result<Self, Failure> {
        let nodes = PersistentNodes::new(client.session().await?, path);
        Ok(Self::Store { nodes, root: path.clone() })
    }

    async fn next(&mut self) -> Result<Option<Compared>, Failure> {
        match self {
            Self::Store { nodes, root } => {
                let Some(node) = nodes.next().await? else { return Ok(None) };
                let path = node.path.relative_to(root).unwrap_or(node.path);
                Ok(Some((path, node.data)))
            }
            Self::File { reader, root, last } => {
                let Some(entry) = reader.next()? else { return Ok(None) };
                let root = reader.root().unwrap_or(root);
                let Some(path) = entry.path.relative_to(root) else {
                    let (line, path) = (entry.line, entry.path);
                    return Err(Failure::plain(format!("line {line}: {path} is not below {root}")));
                };
                if last.as_ref().is_some_and(|last| order(last, &path).is_ge()) {
                    return Err(Failure::plain(format!(
                        "line {}: {} is not in the order of an export: each node comes once, before \
                         the nodes below it, and siblings are sorted by name",
                        entry.line, entry.path
                    )));
                }
                *last = Some(path.clone());
                Ok(Some((path, entry.data)))
            }
        }
    }
}

/// Prints a node that differs, at its path on the first side.
fn print(
    common: &Common,
    root: &Path,
    left: Option<&Compared>,
    right: Option<&Compared>,
) -> Result<(), Failure> {
    let (sign, change) = match (left, right) {
        (Some(_), None) => ('-', "removed"),
        (None, Some(_)) => ('+', "added"),
        _ => ('~', "changed"),
    };
    let Some((below, _)) = left.or(right) else { return Ok(()) };
    let path = below.within(root)?;
    if common.json {
        let mut object = Map::new();
        object.insert("change".into(), change.into());
        object.insert("path".into(), path.as_str().into());
        for (side, node) in [("", left), ("other_", right)] {
            if let Some((_, data)) = node {
                let (key, data) = output::data(data);
                object.insert(format!("{side}{key}"), data);
            }
        }
        return Ok(output::line(&Value::Object(object).to_string())?);
    }
    let shown: Vec<String> =
        left.into_iter().chain(right).map(|(_, data)| output::glimpse(data)).collect();
    Ok(output::line(format!("{sign} {path}  {}", shown.join(" -> ")).trim_end())?)
}
