//! `tree`: everything below nodes, drawn.

use std::collections::BTreeMap;

use synod::Path;
use synod::{Client, Node, Query};

use crate::args::Common;
use crate::command::connect;
use crate::command::list::name;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// A place in the tree: a node, or a container above nodes.
#[derive(Default)]
struct Branch<'a> {
    node: Option<&'a Node>,
    below: BTreeMap<&'a str, Self>,
}

/// The text of the data of a node.
type Shown = fn(&[u8]) -> String;

pub(crate) async fn run(common: &Common, paths: &[Path], data: bool) -> Result<(), Failure> {
    let client = connect(common).await?;
    let printed = print(common, &client, paths, data).await;
    client.close().await?;
    printed
}

async fn print(
    common: &Common,
    client: &Client,
    paths: &[Path],
    data: bool,
) -> Result<(), Failure> {
    let shown = if data { output::on_one_line } else { output::glimpse };
    for path in paths {
        let view = Progress::waiting("reading", client.read(Query::subtree(path))).await?;
        if !common.json {
            output::line(&drawn(path, &view.nodes, shown))?;
            continue;
        }
        for node in &view.nodes {
            output::object(&output::node(node))?;
        }
    }
    Ok(())
}

fn drawn(path: &Path, nodes: &[Node], shown: Shown) -> String {
    let mut root = Branch::default();
    for node in nodes {
        root.place(path, node);
    }
    let mut drawing = label(&format!("{path}"), root.node, shown);
    root.draw("", &mut drawing, shown);
    drawing
}

impl<'a> Branch<'a> {
    fn place(&mut self, root: &Path, node: &'a Node) {
        let depth = root.segments().count();
        let mut branch = self;
        for segment in node.path.segments().skip(depth) {
            branch = branch.below.entry(segment).or_default();
        }
        branch.node = Some(node);
    }

    fn draw(&self, indent: &str, drawing: &mut String, shown: Shown) {
        let last = self.below.len().saturating_sub(1);
        for (index, (segment, branch)) in self.below.iter().enumerate() {
            let (turn, deeper) =
                if index == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let name = branch.node.map_or_else(|| (*segment).to_owned(), |node| name(&node.path));
            drawing.extend(["\n", indent, turn, &label(&name, branch.node, shown)]);
            branch.draw(&format!("{indent}{deeper}"), drawing, shown);
        }
    }
}

/// A name with its data: containers end in a slash, ephemeral nodes are marked with a star.
fn label(name: &str, node: Option<&Node>, shown: Shown) -> String {
    let Some((node, stat)) = node.and_then(|node| Some((node, node.stat.as_ref()?))) else {
        return if name == "/" { name.to_owned() } else { format!("{name}/") };
    };
    let mark = if stat.owner.is_some() { " *" } else { "" };
    match shown(&node.data) {
        data if data.is_empty() => format!("{name}{mark}"),
        data => format!("{name}{mark} = {data}"),
    }
}

#[cfg(test)]
mod tests {
    use synod::{Revision, SessionId, Stat, Version};

    use super::*;

    fn node(path: &str, data: &'static str, owner: Option<SessionId>) -> Node {
        let stat = Stat::new(Revision::new(1), Revision::new(1), Version::new(0), owner);
        Node::new(Path::new(path).expect("valid")).with(data.into(), stat)
    }

    #[test]
    fn a_tree_is_drawn_with_what_it_holds() {
        let nodes = [
            node("/app/config", "blue", None),
            Node::new(Path::new("/app/group").expect("valid")),
            node("/app/group/ann", "", Some(SessionId::new(1))),
            node("/app/group-x", "", None),
        ];
        assert_eq!(
            drawn(&Path::new("/app").expect("valid"), &nodes, output::glimpse),
            "/app/\n├── config = blue\n├── group/\n│   └── ann *\n└── group-x"
        );
        assert_eq!(drawn(&Path::root(), &[], output::glimpse), "/");
    }
}
