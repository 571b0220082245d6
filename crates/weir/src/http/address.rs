//! Addresses to listen at, as people write them: `9338`, `127.0.0.1:9338`, `[::1]:9338`, `localhost:9338`.
//!
//! A port alone is at 127.0.0.1, which other machines cannot reach. Names of other machines are refused: what they stand
//! for may change.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

/// Why a text is no address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A number that is no port.
    #[error("'{0}' is no port: ports are from 0 to 65535, and 0 is any that is free")]
    Port(String),
    /// An address alone.
    #[error("'{0}' has no port: write {1}, with a port of your choice")]
    NoPort(String, SocketAddr),
    /// Anything else.
    #[error(
        "'{0}' is no address: give a port, or an IP address and a port, such as 127.0.0.1:9338 or [::1]:9338"
    )]
    Unknown(String),
}

/// The port that messages propose.
const PROPOSED: u16 = 9338;

impl ListenAddress {
    /// This port, for this machine alone.
    pub const fn local(port: u16) -> ListenAddress {
        ListenAddress(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<ListenAddress, AddressError> {
        let port = |port: &str| port.parse().map_err(|_| AddressError::Port(port.to_owned()));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number(text) {
            return port(text).map(ListenAddress::local);
        }
        if let Some(number) = text.strip_prefix("localhost:").filter(|text| is_number(text)) {
            return port(number).map(ListenAddress::local);
        }
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress(address));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let proposed = SocketAddr::new(address, PROPOSED);
            return Err(AddressError::NoPort(text.to_owned(), proposed));
        }
        match text.rsplit_once(':') {
            Some((before, number))
                if is_number(number) && format!("{before}:1").parse::<SocketAddr>().is_ok() =>
            {
                Err(AddressError::Port(number.to_owned()))
            }
            _ => Err(AddressError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, wanted) in [
            ("9338", "127.0.0.1:9338"),
            ("0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:9338", "0.0.0.0:9338"),
            ("[::1]:9338", "[::1]:9338"),
            ("[::]:1", "[::]:1"),
        ] {
            let read = text.parse::<ListenAddress>().map(|address| address.to_string());
            assert_eq!(read.as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_said() {
        for (text, words) in [
            ("", "is no address"),
            ("70000", "'70000' is no port"),
            ("127.0.0.1:70000", "'70000' is no port"),
            ("[::1]:70000", "'70000' is no port"),
            ("::1", "'::1' has no port: write [::1]:9338"),
            ("[::1]", "'[::1]' has no port: write [::1]:9338"),
            ("10.0.0.1", "write 10.0.0.1:9338"),
            (":9338", "is no address"),
            ("example.org:9338", "is no address"),
            ("-1", "is no address"),
            ("1 2", "is no address"),
        ] {
            let said = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "([0-9:.\\[\\]%]|localhost|é){0,12}") {
            if let Ok(address) = text.parse::<ListenAddress>() {
                proptest::prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
