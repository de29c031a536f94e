//! [`Teller`]: prints events as they happen.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::output;

/// Prints one line per event: the time, the member and the event.
#[derive(Clone, Debug)]
pub(crate) struct Teller(Arc<Voice>);

#[derive(Debug)]
struct Voice {
    json: bool,
    colour: bool,
    since: Instant,
}

impl Teller {
    pub(crate) fn new(json: bool) -> Self {
        let colour = !json && output::wants_colour();
        Self(Arc::new(Voice { json, colour, since: Instant::now() }))
    }

    /// Prints a line for the user; JSON output omits it.
    pub(crate) fn say(&self, text: &str) -> Result<(), Failure> {
        if self.0.json { Ok(()) } else { Ok(output::line(text)?) }
    }

    /// Prints the introduction of a part, and leaves some time to read it.
    pub(crate) async fn chapter(&self, introduction: &str) -> Result<(), Failure> {
        self.say(&format!("\n{introduction}\n"))?;
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Prints an event of the member `who`, and its view of the group if it watches one.
    pub(crate) fn tell(
        &self,
        who: &str,
        what: &str,
        group: Option<&[String]>,
    ) -> Result<(), Failure> {
        let at = self.0.since.elapsed();
        if self.0.json {
            let told = json!({
                "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                "who": who,
                "what": what,
                "group": group,
            });
            return Ok(output::object(&told)?);
        }
        let group = group.map(|names| format!(" [{}]", names.join(" "))).unwrap_or_default();
        let who = self.painted(&format!("{who:<8}"), who);
        let told = format!("{:>5.1}s  {who}{what}{group}", at.as_secs_f32());
        Ok(output::line(told.trim_end())?)
    }

    fn painted(&self, text: &str, who: &str) -> String {
        let colour = match who {
            "ann" => "32",
            "bob" => "33",
            "cat" => "36",
            "dan" => "35",
            "power" | "network" => "31",
            _ => "2",
        };
        if self.0.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
