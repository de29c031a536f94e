//! [`UriSpec`]: how the URI of an instance is made of what the instance says.

use serde::{Deserialize, Serialize};
use synod_core::error::{Error, ErrorKind, Result};

/// A URI with places for what an instance says, such as `{scheme}://{address}:{port}/health`.
///
/// The places are those of Curator: `scheme` (`https` if there is a port for TLS, else `http`), `name`, `id`, `address`, `port`,
/// `ssl-port`, `registration-time-utc` and `service-type`; `{[}` and `{]}` are braces. What is not known is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UriSpec {
    parts: Vec<UriPart>,
}

/// A text, or the name of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UriPart {
    value: String,
    variable: bool,
}

impl UriSpec {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if its braces are not in pairs.
    pub fn new(text: &str) -> Result<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (before, place) =
                rest.split_once('{').map_or((rest, None), |it| (it.0, Some(it.1)));
            if before.contains('}') {
                return Err(unpaired());
            }
            parts.extend(Some(before).filter(|it| !it.is_empty()).map(|it| part(it, false)));
            let Some(place) = place else { break };
            let (name, behind) = place.split_once('}').ok_or_else(unpaired)?;
            if name.contains('{') {
                return Err(unpaired());
            }
            parts.push(part(name.trim(), true));
            rest = behind;
        }
        Ok(Self { parts })
    }

    /// The URI, with what the places stand for.
    pub(super) fn fill(&self, known: impl Fn(&str) -> Option<String>) -> String {
        let filled = self.parts.iter().map(|part| match &*part.value {
            text if !part.variable => text.to_owned(),
            "[" => "{".to_owned(),
            "]" => "}".to_owned(),
            place => known(place).unwrap_or_default(),
        });
        filled.collect()
    }
}

fn part(value: &str, variable: bool) -> UriPart {
    UriPart { value: value.to_owned(), variable }
}

fn unpaired() -> Error {
    Error::new(ErrorKind::Invalid, "reading a URI with places")
        .because("its braces are not in pairs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_and_unknown_ones_left_out() {
        let spec = UriSpec::new("{scheme}://{ address }:{port}/{[}x{]}{other}").expect("valid");
        let known = |place: &str| match place {
            "scheme" => Some("http".to_owned()),
            "address" => Some("10.0.0.7".to_owned()),
            "port" => Some("80".to_owned()),
            _ => None,
        };
        assert_eq!(spec.fill(known), "http://10.0.0.7:80/{x}");
        assert_eq!(UriSpec::new("").expect("valid").fill(known), "");
        for unpaired in ["{", "}", "{a", "a}", "{a{b}}", "{a}}"] {
            let error = UriSpec::new(unpaired).expect_err(unpaired);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{unpaired}");
        }
    }
}
