//! [`InstanceFormat`]: the format of an instance in its node.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value::{decode, encode};

use crate::discovery::instance::Instance;
use crate::support::names::decoded_name;

/// The format in which a [`Discovery`](crate::discovery::Discovery) writes instances to their
/// nodes: the JSON of another library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceFormat {
    /// The format of Curator's `x-discovery`: all fields of an [`Instance`].
    #[default]
    Curator,
    /// The format of etcd's package `naming/endpoints`: an address, with its port, and the payload
    /// as metadata. Other fields of an instance cannot be written; its service and its id are the
    /// names in its path.
    EtcdEndpoint,
}

/// The JSON of etcd's package.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EtcdEndpoint<A, M> {
    /// 0: the endpoint is added. No other operation is stored.
    op: u8,
    addr: A,
    metadata: M,
}

impl InstanceFormat {
    pub(super) fn write<T: Serialize>(self, path: &Path, instance: &Instance<T>) -> Result<Bytes> {
        match self {
            Self::Curator => encode(path, instance),
            Self::EtcdEndpoint => {
                let addr = addr_of(instance).map_err(|why| {
                    Error::new(ErrorKind::Invalid, "discovery").at(path).because(why)
                })?;
                encode(path, &EtcdEndpoint { op: 0, addr, metadata: &instance.payload })
            }
        }
    }

    pub(super) fn read<T: DeserializeOwned>(
        self,
        path: &Path,
        data: &Bytes,
    ) -> Result<Instance<T>> {
        match self {
            Self::Curator => decode(path, data),
            Self::EtcdEndpoint => {
                let stored: EtcdEndpoint<String, Option<T>> = decode(path, data)?;
                let (address, port) = parted(&stored.addr);
                let service = path.parent().map(|dir| decoded_name(dir.name())).unwrap_or_default();
                let mut instance = Instance::new(service, address).id(decoded_name(path.name()));
                (instance.port, instance.payload) = (port, stored.metadata);
                Ok(instance)
            }
        }
    }
}

/// The address of an instance in the format of etcd's package, or the reason why it has none.
fn addr_of<T>(instance: &Instance<T>) -> Result<String, &'static str> {
    if instance.ssl_port.is_some() || instance.uri_spec.is_some() || !instance.enabled {
        return Err("an endpoint of etcd has an address, a port and a payload, and nothing else");
    }
    match (instance.address.as_deref(), instance.port) {
        (None | Some(""), _) => Err("an endpoint of etcd needs an address"),
        (Some(address), None) => Ok(address.to_owned()),
        (Some(address), Some(port)) if address.contains(':') => Ok(format!("[{address}]:{port}")),
        (Some(address), Some(port)) => Ok(format!("{address}:{port}")),
    }
}

/// Splits an address from its port. An IPv6 address has brackets if it has a port.
fn parted(addr: &str) -> (&str, Option<u16>) {
    let port = |(address, port): (&'_ str, &str)| Some((address.len(), port.parse().ok()?));
    match addr.rsplit_once(':').and_then(port) {
        Some((length, port)) => match addr[..length].strip_prefix('[') {
            Some(address) => (address.strip_suffix(']').unwrap_or(address), Some(port)),
            None if addr[..length].contains(':') => (addr, None),
            None => (&addr[..length], Some(port)),
        },
        None => (addr, None),
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;

    use super::*;

    fn written(instance: &Instance<u32>) -> Option<Bytes> {
        InstanceFormat::EtcdEndpoint.write(&path!("/services/web/a"), instance).ok()
    }

    fn read(text: &str) -> Option<Instance<u32>> {
        let (path, data) =
            (path!("/services/web/10.0.0.7:80"), Bytes::copy_from_slice(text.as_bytes()));
        InstanceFormat::EtcdEndpoint.read(&path, &data).ok()
    }

    #[test]
    fn an_endpoint_is_the_json_of_etcd() {
        let instance = Instance::new("web", "10.0.0.7").port(80).payload(3);
        let json = r#"{"Op":0,"Addr":"10.0.0.7:80","Metadata":3}"#;
        assert_eq!(written(&instance).as_deref(), Some(json.as_bytes()));
        let again = read(json).expect("it is one");
        assert_eq!((&again.name[..], &again.id[..]), ("web", "10.0.0.7:80"));
        assert_eq!(
            (again.address.as_deref(), again.port, again.payload),
            (Some("10.0.0.7"), Some(80), Some(3))
        );
        assert_eq!(read(r#"{"Op":0,"Addr":"a","Metadata":null}"#).and_then(|it| it.payload), None);
        for bad in ["", "null", r#"{"Op":0,"Metadata":3}"#, r#"{"Op":0,"Addr":"a","Metadata":"x"}"#]
        {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_instance_that_an_endpoint_cannot_express_is_refused() {
        let whole = || Instance::<u32>::new("web", "10.0.0.7");
        let mut others = [whole(), whole(), Instance::new("web", "")];
        (others[0].ssl_port, others[1].enabled) = (Some(443), false);
        assert!(others.iter().all(|instance| written(instance).is_none()));
        assert!(written(&whole()).is_some());
    }

    #[test]
    fn an_address_and_its_port_are_split_as_they_were_joined() {
        for (address, port, addr) in [
            ("10.0.0.7", Some(80), "10.0.0.7:80"),
            ("fe80::1", Some(80), "[fe80::1]:80"),
            ("fe80::1", None, "fe80::1"),
            ("example.com", None, "example.com"),
        ] {
            let mut instance = Instance::<u32>::new("web", address);
            instance.port = port;
            assert_eq!(addr_of(&instance).as_deref(), Ok(addr));
            assert_eq!(parted(addr), (address, port));
        }
        assert_eq!(parted("unix:/run/web"), ("unix:/run/web", None));
    }
}
