//! [`Files`]: a directory with a file for each node of a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path as FilePath, PathBuf};

use synod::Node;
use synod::Path;

use crate::failure::Failure;

/// The prefix of the names of files that are not nodes: the file that describes the directory, and
/// files that are being written.
const OWN: &str = ".synod-mirror";

/// The name of the file with the data of a node that has nodes below it, and so is a directory.
const VALUE: &str = ".value";

/// The files for the nodes, by their paths in the directory.
pub(crate) type Wanted = BTreeMap<PathBuf, Node>;

/// A directory that has a file for each node, and no other files.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    /// The existing files, with the nodes that they were written from, if known.
    there: BTreeMap<PathBuf, Option<Node>>,
}

/// A change of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileChange {
    Written(PathBuf),
    Removed(PathBuf),
}

/// The files for the nodes at a path and below it, and the nodes without a file because of their
/// names.
pub(crate) fn wanted<'a>(nodes: impl Iterator<Item = &'a Node>, top: &Path) -> (Wanted, Vec<Path>) {
    let nodes: Vec<_> = nodes.collect();
    let directories: BTreeSet<&str> = nodes.iter().flat_map(|node| node.path.above()).collect();
    let (mut files, mut left_out) = (Wanted::new(), Vec::new());
    for node in nodes {
        let Some(below) = node.path.as_str().strip_prefix(top.as_str()) else { continue };
        let mut file = PathBuf::from(below.trim_start_matches('/'));
        if file.iter().any(is_reserved) {
            left_out.push(node.path.clone());
            continue;
        }
        if node.path == *top || directories.contains(node.path.as_str()) {
            // A directory exists without a file for its data.
            if node.data.is_empty() {
                continue;
            }
            file.push(VALUE);
        }
        files.insert(file, node.clone());
    }
    (files, left_out)
}

fn is_reserved(name: &OsStr) -> bool {
    name == VALUE || name.as_encoded_bytes().starts_with(OWN.as_bytes())
}

impl Files {
    /// Opens a directory for the nodes at `top`: a new or empty one, or one that was used for the
    /// same path before. Files in any other directory are never removed.
    pub(crate) fn open(root: &FilePath, top: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(root).map_err(|error| at(root, &error))?;
        let (sign, shown) = (root.join(OWN), root.display());
        let says = format!("{top}\n");
        match fs::read(&sign) {
            Ok(said) if said == says.as_bytes() => {}
            Ok(said) => {
                let said = String::from_utf8_lossy(&said);
                let said = said.trim_end().escape_debug().to_string();
                return Err(Failure::plain(format!("{shown} is a mirror of {said}, not of {top}")));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::read_dir(root)?.next().is_some() {
                    let why = format!(
                        "{shown} has other files, which would be removed; choose an empty directory"
                    );
                    return Err(Failure::plain(why));
                }
                let mut written = File::create_new(&sign).map_err(|error| at(&sign, &error))?;
                written.write_all(says.as_bytes())?;
            }
            Err(error) => return Err(at(&sign, &error)),
        }
        let mut there = BTreeMap::new();
        walk(root, FilePath::new(""), &mut there).map_err(|error| at(root, &error))?;
        remove_empty(root).map_err(|error| at(root, &error))?;
        there.remove(FilePath::new(OWN));
        Ok(Self { root: root.to_owned(), there })
    }

    /// Updates the files to the wanted ones. Each file is replaced atomically, so that a reader
    /// sees either the old or the new file. Returns the changes.
    pub(crate) fn update(&mut self, wanted: &Wanted) -> Result<Vec<FileChange>, Failure> {
        let mut done = Vec::new();
        let gone: Vec<_> =
            self.there.keys().filter(|it| !wanted.contains_key(*it)).cloned().collect();
        for file in gone {
            self.remove(&file).map_err(|error| at(&self.root.join(&file), &error))?;
            done.push(FileChange::Removed(file));
        }
        for (file, node) in wanted {
            if !self.has(file, node) {
                let written = self.write(file, &node.data);
                written.map_err(|error| at(&self.root.join(file), &error))?;
                done.push(FileChange::Written(file.clone()));
            }
            self.there.insert(file.clone(), Some(node.clone()));
        }
        Ok(done)
    }

    fn has(&self, file: &FilePath, node: &Node) -> bool {
        match self.there.get(file) {
            Some(Some(last)) => last.data == node.data,
            // From an earlier run.
            Some(None) => {
                let whole = self.root.join(file);
                // A link belongs to another program, with any target.
                let is_file = fs::symlink_metadata(&whole).is_ok_and(|found| found.is_file());
                is_file && fs::read(whole).is_ok_and(|data| *data == *node.data)
            }
            None => false,
        }
    }

    fn write(&self, file: &FilePath, data: &[u8]) -> io::Result<()> {
        let (whole, new) =
            (self.root.join(file), self.root.join(format!("{OWN}.{}", std::process::id())));
        self.make_directories(file)?;
        // Links are not followed: its target does not belong to this directory.
        remove(&new)?;
        let mut written = File::create_new(&new)?;
        written.write_all(data)?;
        // Otherwise the new name may refer to an empty file after a power failure.
        written.sync_all()?;
        if is_directory(&whole)? {
            remove(&whole)?;
        }
        fs::rename(&new, whole)
    }

    /// Creates the directories above a file. Anything else at such a path is removed, including
    /// links to directories: the files below a link are elsewhere.
    fn make_directories(&self, file: &FilePath) -> io::Result<()> {
        for directory in self.above(file) {
            if !is_directory(&directory)? {
                remove(&directory)?;
                fs::create_dir(&directory)?;
            }
        }
        Ok(())
    }

    /// Removes a file, and the directories that are empty without it.
    fn remove(&mut self, file: &FilePath) -> io::Result<()> {
        let mut is_within = true;
        for directory in self.above(file) {
            is_within &= is_directory(&directory)?;
        }
        if is_within {
            remove(&self.root.join(file))?;
        }
        self.there.remove(file);
        for above in file.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
            if fs::remove_dir(self.root.join(above)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The directories above a file, from the first one within the mirror.
    fn above(&self, file: &FilePath) -> Vec<PathBuf> {
        let mut above: Vec<_> = file.ancestors().skip(1).map(|it| self.root.join(it)).collect();
        // The mirror itself may be a link.
        above.pop();
        above.reverse();
        above
    }
}

/// The failure of an operation on a file.
fn at(file: &FilePath, error: &io::Error) -> Failure {
    Failure::plain(format!("{}: {error}", file.display().to_string().escape_debug()))
}

/// Returns `true` if the path is a directory, and not a link to one.
fn is_directory(path: &FilePath) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes anything at the path, without following links.
fn remove(path: &FilePath) -> io::Result<()> {
    let removed =
        if is_directory(path)? { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Returns `true` if neither the file nor its directory exists.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Removes the directories below this one that have no files.
fn remove_empty(directory: &FilePath) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
            let _empty = fs::remove_dir(entry.path()).is_ok();
        }
    }
    Ok(())
}

/// All files below a directory. A link is a file, with any target.
fn walk(
    root: &FilePath,
    below: &FilePath,
    found: &mut BTreeMap<PathBuf, Option<Node>>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let file = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(root, &file, found)?;
        } else {
            found.insert(file, None);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use synod::{Revision, Stat, Version};

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn nodes(all: &[(&str, &'static str)]) -> Wanted {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        let nodes = all.iter().map(|(at, data)| Node::new(path(at)).with((*data).into(), stat));
        let nodes: Vec<_> = nodes.collect();
        let (files, left_out) = wanted(nodes.iter(), &path("/app"));
        assert!(left_out.is_empty(), "{left_out:?}");
        files
    }

    /// A directory of this test alone, which is removed with this value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("synod-files-{name}-{}", std::process::id());
            let _old = fs::remove_dir_all(std::env::temp_dir().join(&name)).is_ok();
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self) -> Files {
            Files::open(&self.0, &path("/app")).expect("it may be taken")
        }

        /// All files, with their content.
        fn content(&self) -> Vec<String> {
            let mut found = BTreeMap::new();
            walk(&self.0, FilePath::new(""), &mut found).expect("readable");
            let files = found.keys().filter(|it| it.as_os_str() != OWN);
            let data = |file: &PathBuf| fs::read_to_string(self.0.join(file)).expect("readable");
            files.map(|file| format!("{}={}", file.display(), data(file))).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _there = fs::remove_dir_all(&self.0).is_ok();
        }
    }

    #[test]
    fn a_node_is_a_file_and_with_nodes_below_it_a_directory() {
        let files = |all: &[(&str, &'static str)]| {
            let files = nodes(all);
            files.into_keys().map(|it| it.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files(&[("/app", ""), ("/app/a", ""), ("/app/b/c", "1")]), ["a", "b/c"]);
        assert_eq!(
            files(&[("/app", "x"), ("/app/a", "1"), ("/app/a/b", "")]),
            [".value", "a/.value", "a/b"]
        );
        assert_eq!(files(&[("/app", "x")]), [".value"]);
        let odd =
            ["/app/.value", "/app/a/.value/b", "/app/.synod-mirror", "/app/.synod-mirror.1/x"];
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        let all: Vec<_> = odd.iter().map(|at| Node::new(path(at)).with_stat(stat)).collect();
        let (files, left_out) = wanted(all.iter(), &path("/app"));
        assert!(files.is_empty() && left_out.len() == odd.len(), "{files:?}");
    }

    #[test]
    fn files_become_what_is_wanted_and_nothing_else_is_left() {
        let scratch = Scratch::new("become");
        let mut files = scratch.open();
        let mut becomes = |all: &[(&str, &'static str)], expected: &[&str], changes: usize| {
            let done = files.update(&nodes(all)).expect("written");
            assert_eq!(scratch.content(), expected);
            assert_eq!(done.len(), changes, "{done:?}");
        };
        becomes(&[("/app/a", "1"), ("/app/b/c", "2")], &["a=1", "b/c=2"], 2);
        becomes(&[("/app/a", "1"), ("/app/b/c", "2")], &["a=1", "b/c=2"], 0);
        // A file becomes a directory, and a directory a file.
        becomes(
            &[("/app/a", "1"), ("/app/a/x/y", "3"), ("/app/b", "4")],
            &["a/.value=1", "a/x/y=3", "b=4"],
            5,
        );
        becomes(&[("/app/a", "5")], &["a=5"], 4);
        becomes(&[], &[], 1);
        let left = fs::read_dir(&scratch.0).expect("it is there").count();
        assert_eq!(left, 1, "empty directories are removed");
    }

    #[test]
    fn a_directory_is_taken_again_and_what_is_old_in_it_removed() {
        let scratch = Scratch::new("again");
        let all = nodes(&[("/app/a", "1"), ("/app/b/c", "2"), ("/app/b/d", "3")]);
        scratch.open().update(&all).expect("written");
        fs::write(scratch.0.join("b/c"), "other").expect("written");
        fs::write(scratch.0.join(format!("{OWN}.1")), "half").expect("written");
        let mut again = scratch.open();

        let done = again.update(&nodes(&[("/app/a", "1"), ("/app/b/c", "2")])).expect("written");

        assert_eq!(scratch.content(), ["a=1", "b/c=2"]);
        let changed = |name: &str| PathBuf::from(name);
        let half = changed(".synod-mirror.1");
        let all = [
            FileChange::Removed(half),
            FileChange::Removed(changed("b/d")),
            FileChange::Written(changed("b/c")),
        ];
        assert_eq!(done, all);
    }

    #[test]
    fn a_directory_in_the_place_of_a_file_is_removed() {
        let scratch = Scratch::new("place");
        let all = nodes(&[("/app/x", "1")]);
        drop(scratch.open());
        // Left by a process that was killed when the node was `x/y/z`.
        fs::create_dir_all(scratch.0.join("x/y")).expect("made");
        scratch.open().update(&all).expect("written");
        assert_eq!(scratch.content(), ["x=1"]);

        // Put there while the mirror runs.
        let mut files = scratch.open();
        fs::remove_file(scratch.0.join("x")).expect("it is there");
        fs::create_dir_all(scratch.0.join("x/y")).expect("made");
        fs::write(scratch.0.join("x/y/z"), "other").expect("written");
        files.update(&nodes(&[("/app/x", "2")])).expect("written");
        assert_eq!(scratch.content(), ["x=2"]);
        fs::remove_file(scratch.0.join("x")).expect("it is there");
        fs::create_dir_all(scratch.0.join("x/y")).expect("made");
        files.update(&nodes(&[])).expect("removed");
        assert!(!scratch.0.join("x").exists());
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_or_removed_through_a_link() {
        use std::os::unix::fs::symlink;

        let (scratch, target) = (Scratch::new("link"), Scratch::new("target"));
        fs::create_dir_all(&target.0).expect("made");
        let elsewhere =
            |name: &str, data: &str| fs::write(target.0.join(name), data).expect("written");
        elsewhere("c", "mine");
        elsewhere("new", "mine");
        let link = |to: &FilePath, name: &str| symlink(to, scratch.0.join(name)).expect("made");
        let mut files = scratch.open();
        files.update(&nodes(&[("/app/b/c", "1")])).expect("written");

        // The directory becomes a link, and links are where the files will be.
        fs::remove_dir_all(scratch.0.join("b")).expect("it is there");
        link(&target.0, "b");
        link(&target.0.join("new"), "a");
        link(&target.0.join("new"), &format!("{OWN}.{}", std::process::id()));
        files.update(&nodes(&[("/app/a", "2"), ("/app/b/d", "3")])).expect("written");
        assert_eq!(scratch.content(), ["a=2", "b/d=3"]);
        // A link to the same data is not a file, for a mirror that is started again.
        fs::remove_file(scratch.0.join("a")).expect("it is there");
        elsewhere("new", "2");
        link(&target.0.join("new"), "a");
        scratch.open().update(&nodes(&[("/app/a", "2")])).expect("written");
        assert!(fs::symlink_metadata(scratch.0.join("a")).expect("it is there").is_file());

        assert_eq!(fs::read_dir(&target.0).expect("it is there").count(), 2);
        let read = |name: &str| fs::read_to_string(target.0.join(name)).expect("it is there");
        assert_eq!([read("c"), read("new")], ["mine", "2"]);
    }

    #[test]
    fn a_failure_names_the_file() {
        let scratch = Scratch::new("named");
        fs::write(&scratch.0, "a file").expect("written");
        match Files::open(&scratch.0, &path("/app")) {
            Err(Failure::Plain(why)) => assert!(why.contains("synod-files-named"), "{why}"),
            other => panic!("{other:?}"),
        }
        fs::remove_file(&scratch.0).expect("it is there");
    }

    #[test]
    fn a_directory_with_other_files_is_refused() {
        let scratch = Scratch::new("refused");
        let why = |top: &str| match Files::open(&scratch.0, &path(top)) {
            Err(Failure::Plain(why)) => why,
            other => panic!("{other:?}"),
        };
        drop(scratch.open());
        assert!(why("/other").contains("is a mirror of /app, not of /other"), "{}", why("/other"));
        fs::remove_file(scratch.0.join(OWN)).expect("it is there");
        fs::write(scratch.0.join("precious"), "data").expect("written");
        assert!(why("/app").contains("has other files"));
        assert_eq!(scratch.content(), ["precious=data"]);
    }
}
