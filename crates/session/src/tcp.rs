//! TCP connections inside this machine: whether members alone hold the socket at the other end, so that nobody outside gets what
//! is sent.
//!
//! The kernel is asked for that socket (sock_diag(7), by the addresses of the connection, reversed), and the members' descriptors are
//! searched for it, once for each socket.
//!
//! Owns: which sockets members alone hold. Does not own: who is a member; the caller says so.
//!
//! Invariants:
//! - A socket is held by members alone if a member has it and it did not come from outside: then a member made it, by socket(2) or
//!   accept(2). It came from outside if it was inherited, or maybe if a member has received descriptors or taken them from a
//!   process ([`Connections::trust_none`]).
//! - That stays so until a member passes descriptors out. The caller notes that, and asks no more.
//! - A socket is known by its cookie, which the kernel gives to no other one (SO_COOKIE of socket(7)).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::task::{option, option_of};

/// Sockets that are remembered.
const KNOWN_MAX: usize = 1 << 16;
/// A socket that no member has is searched for so often: accept(2) makes it known to the kernel before it has a descriptor.
const SEARCHES_MAX: u8 = 3;

/// asm-generic/socket.h.
const SO_COOKIE: libc::c_int = 57;
/// As above.
const SO_BINDTOIFINDEX: libc::c_int = 62;
/// As above, since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// States of a connection (net/tcp_states.h).
const ESTABLISHED: u8 = 1;
/// There is no connection, or none any more.
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
/// States of a connection's end that was closed or shut down by the process that had it: FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING.
const ENDING: [u8; 5] = [4, 5, 6, 9, 11];

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bytes of `struct nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg` (linux/netlink.h, linux/inet_diag.h).
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    /// Members alone, or nobody any more.
    Inside,
    /// Somebody else, as long as the connection lasts.
    Outside,
    /// There is no connection, or it cannot be known yet.
    Unknown,
}

/// Knows the connections of a session.
pub(crate) struct Connections {
    /// `None`: no connection is inside.
    kernel: Option<Kernel>,
    /// Sockets that the session got from outside, by inode.
    inherited: HashSet<u64>,
    /// Cookies of sockets that members alone hold.
    of_members: HashSet<u64>,
    /// How often other sockets were searched for.
    searched: HashMap<u64, u8>,
}

impl Connections {
    /// Of a session that has none from outside.
    pub(crate) fn new() -> Connections {
        Connections {
            kernel: Kernel::open().ok(),
            inherited: HashSet::new(),
            of_members: HashSet::new(),
            searched: HashMap::new(),
        }
    }

    /// The session got these sockets from outside, by inode.
    pub(crate) fn inherit(&mut self, sockets: impl Iterator<Item = u64>) {
        self.inherited.extend(sockets);
    }

    /// Sockets may have come from outside, or gone there: no connection is inside any more.
    pub(crate) fn trust_none(&mut self) {
        self.kernel = None;
    }

    /// Whether any connection may be inside.
    pub(crate) fn trusts_some(&self) -> bool {
        self.kernel.is_some()
    }

    /// Who is at the other end of the connection of a TCP socket with this inode. `is_held` says whether a member has a socket
    /// with an inode.
    pub(crate) fn other_end(
        &mut self,
        socket: OwnedFd,
        inode: u64,
        is_held: impl FnOnce(u64) -> bool,
    ) -> OtherEnd {
        let Some(kernel) = &mut self.kernel else { return OtherEnd::Outside };
        if self.inherited.contains(&inode) || !kernel.is_of_same_network(socket.as_fd()) {
            return OtherEnd::Outside;
        }
        let own = option::<u64>(socket.as_fd(), SO_COOKIE);
        let socket = TcpStream::from(socket);
        let (Ok(local), Ok(remote)) = (socket.local_addr(), socket.peer_addr()) else {
            return OtherEnd::Unknown;
        };
        let (local, remote) = (canonical(local), canonical(remote));
        if !is_of_this_machine(local.ip(), remote.ip()) {
            return OtherEnd::Outside;
        }
        let Ok(Some(other)) = kernel.find(remote, local) else { return OtherEnd::Unknown };
        let end = match other {
            // Whoever had it has closed it.
            Found { inode: 0, state, .. } if ENDING.contains(&state) => OtherEnd::Inside,
            // In the queue of a socket that listens, and anybody may accept it who has that socket.
            Found { inode: 0, .. } => OtherEnd::Unknown,
            Found { cookie, .. } if self.of_members.contains(&cookie) => OtherEnd::Inside,
            Found { inode, .. } if self.inherited.contains(&inode) => OtherEnd::Outside,
            Found { inode, cookie, .. } => match is_held(inode) {
                true => {
                    self.remember(cookie);
                    OtherEnd::Inside
                }
                false => self.note_search(cookie),
            },
        };
        if let (OtherEnd::Inside, Some(own)) = (end, own) {
            self.remember(own);
        }
        end
    }

    /// Whether a socket had a connection inside, and it has ended: nobody notices that the socket is closed.
    pub(crate) fn has_ended(&self, socket: BorrowedFd<'_>) -> bool {
        self.trusts_some()
            && option(socket, SO_COOKIE).is_some_and(|own| self.of_members.contains(&own))
            && option_of(socket, libc::IPPROTO_TCP, libc::TCP_INFO) == Some(CLOSE)
    }

    fn remember(&mut self, cookie: u64) {
        if self.of_members.len() >= KNOWN_MAX {
            self.of_members.clear();
        }
        self.searched.remove(&cookie);
        self.of_members.insert(cookie);
    }

    fn note_search(&mut self, cookie: u64) -> OtherEnd {
        if self.searched.len() >= KNOWN_MAX {
            self.searched.clear();
        }
        let searches = self.searched.entry(cookie).or_default();
        *searches += 1;
        if *searches >= SEARCHES_MAX { OtherEnd::Outside } else { OtherEnd::Unknown }
    }
}

/// Whether a process has a socket with this inode.
pub(crate) fn has_socket(process: u32, inode: u64) -> io::Result<bool> {
    let link = format!("socket:[{inode}]");
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // A descriptor may have been closed meanwhile.
        if fs::read_link(entry?.path()).is_ok_and(|found| found.as_os_str() == link.as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An IPv4 address as such, also if the socket is of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a connection between these addresses is inside this machine: what is sent to an own address goes by the loopback device.
fn is_of_this_machine(local: IpAddr, remote: IpAddr) -> bool {
    local == remote || local.is_loopback() && remote.is_loopback()
}

/// A socket of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    state: u8,
    cookie: u64,
    /// 0: no descriptor leads to it.
    inode: u64,
}

/// The kernel, to be asked for sockets.
struct Kernel {
    connection: OwnedFd,
    /// The network namespace that it is asked of.
    namespace: u64,
    sequence: u32,
}

impl Kernel {
    fn open() -> io::Result<Kernel> {
        let connection = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        let namespace = option(connection.as_fd(), SO_NETNS_COOKIE)
            .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        Ok(Kernel { connection, namespace, sequence: 0 })
    }

    /// Whether addresses mean the same to a socket as they do here.
    fn is_of_same_network(&self, socket: BorrowedFd<'_>) -> bool {
        option(socket, SO_NETNS_COOKIE) == Some(self.namespace)
            && option(socket, SO_BINDTOIFINDEX) == Some(0_i32)
    }

    /// The socket that has a connection between these addresses.
    fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Found>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.sequence, local, remote);
        rustix::net::send(&self.connection, &request, SendFlags::empty())?;
        let mut answer = [0; 4096];
        loop {
            // The kernel answers before send(2) returns.
            let (bytes, _) = rustix::net::recv(&self.connection, &mut answer, RecvFlags::DONTWAIT)?;
            if word(&answer, 8) == self.sequence {
                return Ok(found(&answer[..bytes], local, remote));
            }
        }
    }
}

/// A request for one socket.
fn request(sequence: u32, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend((HEADER_BYTES as u32 + REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    // In every state; on any device; with any cookie.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(addresses(local, remote));
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

/// As `struct inet_diag_sockid` begins: both ports, and both addresses in 16 bytes.
fn addresses(local: SocketAddr, remote: SocketAddr) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[..2].copy_from_slice(&local.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, address) in [(4, local.ip()), (20, remote.ip())] {
        match address {
            IpAddr::V4(address) => bytes[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    bytes
}

/// What an answer says of the socket between these addresses; the kernel also answers with one that listens.
fn found(answer: &[u8], local: SocketAddr, remote: SocketAddr) -> Option<Found> {
    let kind = u16::from_ne_bytes([*answer.get(4)?, *answer.get(5)?]);
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < HEADER_BYTES + ANSWER_BYTES {
        return None;
    }
    let answer = &answer[HEADER_BYTES..];
    let ours = match i32::from(answer[0]) {
        libc::AF_INET => addresses(local, remote),
        libc::AF_INET6 => addresses(of_ipv6(local), of_ipv6(remote)),
        _ => return None,
    };
    let state = answer[1];
    let device = word(answer, 40);
    let is_connected = matches!(state, ESTABLISHED | CLOSE_WAIT) || ENDING.contains(&state);
    (is_connected && device == 0 && answer[4..40] == ours).then(|| Found {
        state,
        cookie: u64::from(word(answer, 44)) | u64::from(word(answer, 48)) << 32,
        inode: word(answer, 68).into(),
    })
}

/// An address as a socket of IPv6 has it.
fn of_ipv6(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};
    use std::os::fd::AsRawFd;

    use super::*;

    /// What a connection is whose other end this process has, if it is a member.
    struct Session(Connections);

    impl Session {
        fn new() -> Session {
            Session(Connections::new())
        }

        fn of(&mut self, socket: &TcpStream, is_held: impl FnOnce(u64) -> bool) -> OtherEnd {
            let duplicate = OwnedFd::from(socket.try_clone().unwrap());
            self.0.other_end(duplicate, inode(socket), is_held)
        }

        fn own(&mut self, socket: &TcpStream) -> OtherEnd {
            self.of(socket, |inode| has_socket(std::process::id(), inode).unwrap())
        }
    }

    fn inode(socket: &impl AsFd) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    #[test]
    fn the_other_end_is_inside_once_a_member_has_accepted_it() {
        for address in ["127.0.0.1:0", "[::1]:0", "127.8.7.6:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut session = Session::new();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(session.own(&client), OtherEnd::Unknown, "{address}");
            let (server, _) = listener.accept().unwrap();
            assert_eq!(session.own(&client), OtherEnd::Inside);
            assert_eq!(session.own(&server), OtherEnd::Inside);
            // It is not searched for again.
            assert_eq!(session.of(&client, |_| panic!()), OtherEnd::Inside);
            assert!(!session.0.has_ended(client.as_fd()));
            drop(server);
            // Nobody has it any more.
            assert_eq!(session.of(&client, |_| panic!()), OtherEnd::Inside);
            client.shutdown(Shutdown::Write).unwrap();
            assert!(session.0.has_ended(client.as_fd()));
            session.0.trust_none();
            assert!(!session.0.has_ended(client.as_fd()));
            assert_eq!(session.own(&client), OtherEnd::Outside);
        }
    }

    #[test]
    fn a_socket_of_ipv6_may_be_connected_by_ipv4() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut session = Session::new();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert!(server.local_addr().unwrap().is_ipv6());
        assert_eq!(session.own(&client), OtherEnd::Inside);
        assert_eq!(session.own(&server), OtherEnd::Inside);
    }

    #[test]
    fn what_no_member_has_is_outside_for_good_after_some_searches() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut session = Session::new();
        assert_eq!(session.of(&client, |_| false), OtherEnd::Unknown);
        assert_eq!(session.of(&client, |_| false), OtherEnd::Unknown);
        assert_eq!(session.of(&client, |_| false), OtherEnd::Outside);
        // What was inherited is outside, whoever has it.
        let mut session = Session::new();
        session.0.inherit([inode(&server)].into_iter());
        assert_eq!(session.own(&client), OtherEnd::Outside);
        assert_eq!(session.own(&server), OtherEnd::Outside);
    }

    #[test]
    fn a_socket_without_a_connection_is_in_doubt() {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let inode = inode(&socket);
        assert_eq!(Session::new().0.other_end(socket, inode, |_| true), OtherEnd::Unknown);
    }

    #[test]
    fn a_socket_that_listens_is_no_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let elsewhere = SocketAddr::new(here.ip(), 1);
        let mut kernel = Kernel::open().unwrap();
        assert_eq!(kernel.find(here, elsewhere).unwrap(), None);
        assert_eq!(kernel.find(elsewhere, here).unwrap(), None);
        assert!(has_socket(std::process::id(), inode(&listener)).unwrap());
        assert!(!has_socket(std::process::id(), listener.as_raw_fd() as u64).unwrap());
    }

    #[test]
    fn only_addresses_of_this_machine_count() {
        let is = |local: &str, remote: &str| {
            is_of_this_machine(local.parse().unwrap(), remote.parse().unwrap())
        };
        assert!(is("127.0.0.1", "127.0.0.2") && is("::1", "::1") && is("10.0.0.1", "10.0.0.1"));
        assert!(!is("10.0.0.1", "10.0.0.2") && !is("127.0.0.1", "10.0.0.1"));
    }
}
