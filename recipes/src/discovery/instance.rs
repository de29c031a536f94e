//! [`Instance`]: the record that a program registers, in the JSON of Curator's `x-discovery`.

use std::fmt;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::random::Random;

/// An instance of a service: its address, and its payload.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Instance<T> {
    /// The name of its service.
    pub name: String,
    /// Its id, which no other instance of the service has. If it was not set, it is empty until the
    /// registration.
    pub id: String,
    /// Its address.
    #[serde(default)]
    pub address: Option<String>,
    /// Its port.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its port for TLS.
    #[serde(default)]
    pub ssl_port: Option<u16>,
    /// Data of the application.
    pub payload: Option<T>,
    /// The time of its registration, in milliseconds since 1970 by the wall clock of its machine.
    /// For information only.
    #[serde(rename = "registrationTimeUTC", default)]
    pub registered: i64,
    #[serde(rename = "serviceType", default)]
    kind: InstanceKind,
    /// The template of its URI.
    #[serde(default)]
    pub uri_spec: Option<UriSpec>,
    /// True if it may be chosen. A [`Provider`](crate::discovery::Provider) chooses only such
    /// instances.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// The lifetime of a registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum InstanceKind {
    /// Registered as long as its program is alive.
    #[default]
    Dynamic,
    /// As [`Dynamic`](Self::Dynamic), with a sequence at the end of the name of its node.
    DynamicSequential,
    /// Until it is removed.
    Static,
    /// Until it is removed.
    Permanent,
}

fn yes() -> bool {
    true
}

impl<T> Instance<T> {
    /// An instance of a service, at an address.
    pub fn new(service: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            name: service.into(),
            id: String::new(),
            address: Some(address.into()),
            port: None,
            ssl_port: None,
            payload: None,
            registered: 0,
            kind: InstanceKind::Dynamic,
            uri_spec: None,
            enabled: true,
        }
    }

    /// Sets the id. Otherwise the instance gets one when it is registered.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// Sets the port.
    pub fn port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Sets the payload.
    pub fn payload(self, payload: T) -> Self {
        Self { payload: Some(payload), ..self }
    }

    /// Sets the template of the URI.
    pub fn uri_spec(self, spec: UriSpec) -> Self {
        Self { uri_spec: Some(spec), ..self }
    }

    /// The lifetime of its registration.
    pub fn kind(&self) -> InstanceKind {
        self.kind
    }

    /// Its URI, if it has a template.
    pub fn uri(&self) -> Option<String> {
        self.uri_spec.as_ref().map(|spec| spec.fill(|place| self.place(place)))
    }

    fn place(&self, place: &str) -> Option<String> {
        match place {
            "scheme" if self.ssl_port.is_some() => Some("https".to_owned()),
            "scheme" => Some("http".to_owned()),
            "name" => Some(self.name.clone()),
            "id" => Some(self.id.clone()),
            "address" => self.address.clone(),
            "port" => self.port.map(|port| port.to_string()),
            "ssl-port" => self.ssl_port.map(|port| port.to_string()),
            "registration-time-utc" => Some(self.registered.to_string()),
            "service-type" => Some(self.kind.lower_case().to_owned()),
            _ => None,
        }
    }

    /// Makes the instance permanent: it stays until it is removed.
    pub(super) fn permanent(self) -> Self {
        Self { kind: InstanceKind::Permanent, ..self }
    }

    /// Adds an id and a date, if they are missing.
    pub(super) fn complete(mut self, random: &Random) -> Self {
        if self.id.is_empty() {
            self.id = random.id();
        }
        if self.registered == 0 {
            let since = clock::date().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.registered = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        }
        self
    }
}

impl InstanceKind {
    fn lower_case(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::DynamicSequential => "dynamic_sequential",
            Self::Static => "static",
            Self::Permanent => "permanent",
        }
    }
}

/// Shows the address, but not the payload, which belongs to the application.
impl<T> fmt::Debug for Instance<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name)
            .field("id", &self.id)
            .field("address", &self.address)
            .field("port", &self.port)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A URI with placeholders for the fields of an instance, such as
/// `{scheme}://{address}:{port}/health`.
///
/// The placeholders are those of Curator: `scheme` (`https` if there is a port for TLS, else
/// `http`), `name`, `id`, `address`, `port`, `ssl-port`, `registration-time-utc` and
/// `service-type`; `{[}` and `{]}` are braces. Unknown fields are omitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UriSpec {
    parts: Vec<UriPart>,
}

/// A text, or the name of a placeholder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UriPart {
    value: String,
    variable: bool,
}

impl UriSpec {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a brace has no counterpart.
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

    /// The URI, with the values of the placeholders.
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
    Error::new(ErrorKind::Invalid, "parsing a URI template").because("its braces are not in pairs")
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::value::{decode, encode};

    use super::*;

    /// An instance as Curator writes it, by default without `enabled`.
    const CURATORS: &str = r#"{"name":"web","id":"host-7","address":"10.0.0.7","port":80,"sslPort":null,"payload":{"@class":"com.example.Load","weight":3},"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true}]},"enabled":true}"#;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "@class", rename = "com.example.Load")]
    struct Load {
        weight: u32,
    }

    fn read(text: &str) -> Option<Instance<Load>> {
        decode(&path!("/services/web/host-7"), text.as_bytes()).ok()
    }

    #[test]
    fn an_instance_is_the_json_of_curator() {
        let spec = UriSpec::new("{scheme}://{address}").expect("valid");
        let instance = Instance::new("web", "10.0.0.7").id("host-7").port(80);
        let mut instance = instance.payload(Load { weight: 3 }).uri_spec(spec);
        instance.registered = 1_700_000_000_000;
        let written = encode(&path!("/services/web/host-7"), &instance).expect("JSON");
        assert_eq!(written, CURATORS);
        let again = read(CURATORS).expect("it is one");
        assert!(again == instance && again.kind() == InstanceKind::Dynamic);
        assert_eq!(again.uri().as_deref(), Some("http://10.0.0.7"));
    }

    #[test]
    fn missing_and_unknown_fields_are_ignored() {
        let least = read(r#"{"name":"web","id":"1"}"#).expect("it is one");
        assert!(least.enabled && least.payload.is_none() && least.uri().is_none());
        let later = CURATORS.replace("\"enabled\":true", "\"enabled\":false,\"later\":[1]");
        assert!(!read(&later).expect("it is one").enabled);
        let sequential = CURATORS.replace("\"DYNAMIC\"", "\"DYNAMIC_SEQUENTIAL\"");
        assert_eq!(read(&sequential).map(|it| it.kind()), Some(InstanceKind::DynamicSequential));
        for bad in ["", "{", "null", "[]", r#"{"name":"web"}"#, &CURATORS.replace("80", "\"80\"")] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_instance_gets_an_id_and_a_date_unless_it_has_them() {
        let random = Random::seeded(1);
        let first = Instance::<u32>::new("web", "a").complete(&random);
        let second = Instance::<u32>::new("web", "a").complete(&random);
        assert!(first.id.len() == 32 && first.id != second.id && first.registered > 0);
        let again = first.clone().complete(&random);
        assert!(again == first);
    }

    #[test]
    fn placeholders_are_filled_and_unknown_ones_are_left_out() {
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
