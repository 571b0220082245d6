//! The names by which clients may call a server: the defence against DNS rebinding.
//!
//! A page of another site can give its own name an address of this machine and so have the browser take our answers for its
//! own. The browser then sends that name in the Host header. No name that is an address, and not `localhost`, can be given
//! another meaning; any other name may.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Which names are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All: clients of other machines use the names that these have.
    Any,
    /// Addresses, and `localhost`.
    AddressesOnly,
}

impl Hosts {
    /// Whether a Host header is answered.
    pub fn allow(self, host: &str) -> bool {
        self == Hosts::Any || is_address(host)
    }
}

fn is_address(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, after)) = rest.split_once(']') else { return false };
        let is_end = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return is_end && address.parse::<Ipv6Addr>().is_ok();
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    is_port(port) && (name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_others_can_give_are_refused() {
        for host in
            ["localhost", "LocalHost:1", "127.0.0.1:9337", "10.1.2.3", "[::1]:9337", "[::1]"]
        {
            assert!(Hosts::AddressesOnly.allow(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9337",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1:9337:x",
            "127.0.0.1@evil.example",
            "[::1]evil.example",
            "[::1",
            "::1",
        ] {
            assert!(!Hosts::AddressesOnly.allow(host), "{host}");
            assert!(Hosts::Any.allow(host));
        }
    }
}
