//! A diagram as an HTML page.

use std::fmt::Write as _;

use crate::cluster::What;

use crate::diagram::text::shown;
use crate::diagram::{Cell, Diagram};

const STYLE: &str = "\
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; color: #1c2330; background: #fff; }
pre { background: #f4f6f9; padding: 1rem; border-radius: 6px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { position: sticky; top: 0; background: #1c2330; color: #fff; text-align: left; }
th, td { padding: 2px 10px; border-left: 3px solid #e3e7ee; vertical-align: top; }
td:first-child { white-space: nowrap; color: #667; text-align: right; border-left: none; }
td.on { border-left-color: #2f7d4f; background: #eef8f1; }
.fault { color: #a33b00; } .phase, .session { color: #555; font-style: italic; }
.committed { color: #1f4f9c; } .told { color: #7a3fa0; } .begun, .over { color: #2f7d4f; font-weight: 600; }
tr.marked td.said { background: #ffe9e6; outline: 2px solid #c62828; font-weight: 600; }
.legend { color: #667; }
";

impl Diagram {
    /// The diagram as a page without external files, with the story above it.
    pub fn html(&self, title: &str, story: &str) -> String {
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n\
             <style>\n{STYLE}</style></head>\n<body>\n<h1>{0}</h1>\n<pre>{1}</pre>\n<table>\n<tr><th></th>",
            escaped(title),
            escaped(story.trim_end()),
        );
        for lane in &self.lanes {
            let _written = write!(page, "<th>{}</th>", escaped(lane));
        }
        page.push_str("</tr>\n");
        for cell in &self.cells {
            self.row(&mut page, cell);
        }
        page.push_str("</table>\n<p class=\"legend\">");
        page.push_str(&escaped(LEGEND));
        page.push_str("</p>\n</body></html>\n");
        page
    }

    fn row(&self, page: &mut String, cell: &Cell) {
        let marked = if cell.is_marked { " class=\"marked\"" } else { "" };
        let _written = write!(page, "<tr{marked}><td>{}</td>", shown(cell.at));
        for place in 0..self.lanes.len() {
            let on = if cell.goes_on.get(place) == Some(&true) { " on" } else { "" };
            if place == cell.lane {
                let times =
                    if cell.times > 1 { format!(" ({} times)", cell.times) } else { String::new() };
                let text = escaped(&format!("{}{times}", cell.text));
                let _written =
                    write!(page, "<td class=\"said {}{on}\">{text}</td>", kind(cell.what));
            } else {
                let _written = write!(page, "<td class=\"{}\"></td>", on.trim_start());
            }
        }
        page.push_str("</tr>\n");
    }
}

/// The legend of a diagram.
pub(crate) const LEGEND: &str = "→ request   ← answer   ✗ no answer   ! notified of a change   \
⚡ fault   #n the store's n-th change   ┃ in force   ▶ what the failure is about";

fn kind(what: What) -> &'static str {
    match what {
        What::Fault => "fault",
        What::Committed => "committed",
        What::Phase => "phase",
        What::Session => "session",
        What::Told => "told",
        What::Begun => "begun",
        What::Over => "over",
        _ => "",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
