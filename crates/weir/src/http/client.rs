//! Whose program a client on this machine is.
//!
//! A loopback address admits every user of the machine, and TCP does not say who connects. The kernel's table of TCP sockets
//! (/proc/net/tcp, proc(5)) has the user of each socket of this network namespace, also of the client's end.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// The user whose socket at `client` is connected to `server`; `None` if there is no such socket on this machine.
pub fn user(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    // A listener at an IPv4 address that is written as one of IPv6 has clients of both kinds: the sockets of a client are where the
    // client made them.
    let (client, server) = (canonical(client), canonical(server));
    let in_table = |table: &str, client: SocketAddr, server: SocketAddr| {
        let table = BufReader::new(std::fs::File::open(table).ok()?);
        let (client, server) = (hexadecimal(client), hexadecimal(server));
        table.lines().map_while(Result::ok).find_map(|line| user_in(&line, &client, &server))
    };
    if client.is_ipv4()
        && let Some(user) = in_table("/proc/net/tcp", client, server)
    {
        return Some(user);
    }
    in_table("/proc/net/tcp6", mapped(client), mapped(server))
}

/// An IPv4 address that is written as one of IPv6, as what it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address as one of IPv6.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// `sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode ...`. A socket without an inode is nobody's any
/// more.
fn user_in(line: &str, local: &str, remote: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, at, to, _, _, _, _, user, _, inode] = fields[..] else { return None };
    let is_it = at == local && to == remote && inode != "0";
    is_it.then(|| user.parse().ok()).flatten()
}

/// As in the table: words of 32 bits in the machine's byte order.
fn hexadecimal(address: SocketAddr) -> String {
    let words = |bytes: &[u8]| {
        let words = bytes.as_chunks::<4>().0.iter();
        words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect::<String>()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_client_is_its_users() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let place = client.local_addr().unwrap();
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(user(place, server), Some(own), "{address}");
            assert_eq!(user(server, server), None);
        }
    }

    #[test]
    fn a_client_of_a_mapped_address_is_its_users() {
        // A machine may have no IPv6.
        let Ok(listener) = TcpListener::bind("[::ffff:127.0.0.1]:0") else { return };
        let server = listener.local_addr().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let by_ipv4 = SocketAddr::from(([127, 0, 0, 1], server.port()));
        for to in [server, by_ipv4] {
            let client = TcpStream::connect(to).unwrap();
            let (_accepted, place) = listener.accept().unwrap();
            assert_eq!(user(place, server), Some(own), "{to}");
            drop(client);
        }
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        let line = "   1: 0100007F:8A12 0100007F:2479 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        assert_eq!(user_in(line, "0100007F:8A12", "0100007F:2479"), Some(1000));
        assert_eq!(user_in(line, "0100007F:2479", "0100007F:8A12"), None);
        assert_eq!(user_in(&line.replace(" 4711", " 0"), "0100007F:8A12", "0100007F:2479"), None);
        assert_eq!(user_in("sl local_address", "a", "b"), None);
    }
}
