//! The messages outside the shared memories: by ioctl(2) on files of the mount, and one over a socket.
//!
//! An ioctl proves to the daemon that its caller has the open description: the kernel sends the description's handle
//! with it. So a client can put no file into the lane that it could not use without the lane.
//!
//! 1. [`FIND`] on any regular file of the mount returns, to users who may use the lane, the name of the daemon's socket
//!    in the abstract namespace (unix(7)), and the proof that the daemon will send over that socket.
//! 2. A program of such a user connects (SOCK_SEQPACKET) and receives one [`Welcome`], with three descriptors: the board
//!    and the frames, both read-only, and the client's region. After that a byte over the socket wakes the daemon; when
//!    the socket is closed, the client has ended.
//! 3. [`ATTACH`] puts an open description into the lane. [`LEAVE`] takes it out: for good, or until the same process
//!    attaches it again.
//! 4. [`TAKE`] lets a client in a session post.
//!
//! All numbers are in the byte order of the machine, at fixed offsets.

/// The version of the layout of all three memories, and of the messages. Other versions are refused.
pub const VERSION: u32 = 5;

const READ_WRITE: u32 = 3 << 30;

const fn number(command: u32, bytes: usize) -> u32 {
    READ_WRITE | (bytes as u32) << 16 | (b'W' as u32) << 8 | command
}

/// Bytes of an ioctl's message.
pub const MESSAGE_BYTES: usize = 64;

/// ioctl(2): [`Found`] out.
pub const FIND: u32 = number(1, MESSAGE_BYTES);
/// ioctl(2): [`Attach`] in, [`Attachment`] out.
pub const ATTACH: u32 = number(2, MESSAGE_BYTES);
/// ioctl(2): [`Leave`] in; the description is used by the kernel from now on.
pub const LEAVE: u32 = number(3, MESSAGE_BYTES);

/// ioctl(2), on a regular file or a directory: [`Order`] out. Not of the lane: the C library asks it (`library/weir.c`).
pub const ORDER: u32 = number(4, MESSAGE_BYTES);
/// ioctl(2), on a regular file or a directory of a mount with one order: all that was changed before is durable when it returns. A member of a
/// session commits by it, since its fsync(2) is a promise.
pub const COMMIT: u32 = number(5, MESSAGE_BYTES);
/// ioctl(2), on a regular file: [`Attach`] in. The client becomes the poster of its session ([`crate::post_order`]), and everything posted before
/// the call is applied. EAGAIN: it is applied, but another client has asked, too.
pub const TAKE: u32 = number(6, MESSAGE_BYTES);

/// A message of an ioctl.
pub type Message = [u8; MESSAGE_BYTES];

/// Where the daemon's socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name in the abstract namespace, without the leading zero: at most 48 bytes.
    pub socket: String,
    /// The number that the daemon will send in its [`Welcome`]: another program that listens by that name does not know
    /// it.
    pub proof: u64,
}

impl Found {
    /// As sent.
    pub fn encode(&self) -> Message {
        assert!(self.socket.len() <= 48);
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&VERSION.to_ne_bytes());
        message[4..8].copy_from_slice(&(self.socket.len() as u32).to_ne_bytes());
        message[8..16].copy_from_slice(&self.proof.to_ne_bytes());
        message[16..16 + self.socket.len()].copy_from_slice(self.socket.as_bytes());
        message
    }

    /// As received. `None` if the message is of another version, or not valid.
    pub fn decode(message: &Message) -> Option<Found> {
        let socket = std::str::from_utf8(Found::socket_in(message)?).ok()?;
        Some(Found { socket: socket.to_owned(), proof: Found::proof_in(message) })
    }

    /// The proof in a message as received.
    pub fn proof_in(message: &Message) -> u64 {
        long(message, 8)
    }

    /// The socket's name in a message as received. Does not allocate.
    pub fn socket_in(message: &Message) -> Option<&[u8]> {
        let len = word(message, 4) as usize;
        if word(message, 0) != VERSION || len > 48 {
            return None;
        }
        Some(&message[16..16 + len])
    }
}

/// A client asks that the description be put into the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The client.
    pub client: u32,
    /// The secret that only this client was told.
    pub token: u64,
    /// The process, by a number of its own choice that no other process of the client has.
    pub process: u32,
    /// It is a member of a session, and posts only as the session's order allows ([`crate::post_order`]).
    pub keeps_order: bool,
}

impl Attach {
    /// As sent.
    pub fn encode(&self) -> Message {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&VERSION.to_ne_bytes());
        message[4..8].copy_from_slice(&self.client.to_ne_bytes());
        message[8..16].copy_from_slice(&self.token.to_ne_bytes());
        message[16..20].copy_from_slice(&self.process.to_ne_bytes());
        message[20..24].copy_from_slice(&u32::from(self.keeps_order).to_ne_bytes());
        message
    }

    /// As received.
    pub fn decode(message: &[u8]) -> Option<Attach> {
        let message: &Message = message.get(..MESSAGE_BYTES)?.try_into().ok()?;
        let (client, token) = (word(message, 4), long(message, 8));
        let (process, keeps_order) = (word(message, 16), word(message, 20) != 0);
        let attach = Attach { client, token, process, keeps_order };
        (word(message, 0) == VERSION).then_some(attach)
    }
}

/// A client takes a description out of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The process that may attach it again, by its number in [`Attach`]; 0: the description left for good.
    pub process: u32,
}

impl Leave {
    /// For good.
    pub const FOR_GOOD: Leave = Leave { process: 0 };

    /// As sent.
    pub fn encode(&self) -> Message {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&VERSION.to_ne_bytes());
        message[4..8].copy_from_slice(&self.process.to_ne_bytes());
        message
    }

    /// As received. A message that is not valid means for good.
    pub fn decode(message: &[u8]) -> Leave {
        let message: Option<&Message> =
            message.get(..MESSAGE_BYTES).and_then(|message| message.try_into().ok());
        match message {
            Some(message) if word(message, 0) == VERSION => Leave { process: word(message, 4) },
            _ => Leave::FOR_GOOD,
        }
    }
}

/// The answer to [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The file's place on the board.
    pub slot: u32,
    /// The description's number in entries.
    pub description: u32,
    /// The client had already attached the description, by another descriptor.
    pub was_attached: bool,
}

impl Attachment {
    /// As sent.
    pub fn encode(&self) -> Message {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&VERSION.to_ne_bytes());
        message[4..8].copy_from_slice(&self.slot.to_ne_bytes());
        message[8..12].copy_from_slice(&self.description.to_ne_bytes());
        message[12..16].copy_from_slice(&u32::from(self.was_attached).to_ne_bytes());
        message
    }

    /// As received.
    pub fn decode(message: &Message) -> Option<Attachment> {
        let attachment = Attachment {
            slot: word(message, 4),
            description: word(message, 8),
            was_attached: word(message, 12) != 0,
        };
        (word(message, 0) == VERSION).then_some(attachment)
    }
}

/// The answer to [`ORDER`]: all changes on the mount have one order. On other mounts it is EOPNOTSUPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// A number that no other mount has.
    pub mount: [u8; 16],
}

impl Order {
    /// What the message begins with: another file system may answer every ioctl.
    const MARK: [u8; 8] = *b"weirord\x01";

    /// As sent.
    pub fn encode(&self) -> Message {
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&Order::MARK);
        message[8..24].copy_from_slice(&self.mount);
        message
    }

    /// As received; `None` if it is not of Weir.
    pub fn decode(message: &Message) -> Option<Order> {
        let mut mount = [0; 16];
        mount.copy_from_slice(&message[8..24]);
        message.starts_with(&Order::MARK).then_some(Order { mount })
    }
}

/// The first message to a client, sent with its three descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The client's number.
    pub client: u32,
    /// The secret that proves it in [`Attach`].
    pub token: u64,
    /// The number of frames.
    pub frames: u32,
    /// As in [`Found`].
    pub proof: u64,
}

/// Bytes of a [`Welcome`].
pub const WELCOME_BYTES: usize = 32;

impl Welcome {
    /// As sent.
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut message = [0; WELCOME_BYTES];
        message[..4].copy_from_slice(&VERSION.to_ne_bytes());
        message[4..8].copy_from_slice(&self.client.to_ne_bytes());
        message[8..16].copy_from_slice(&self.token.to_ne_bytes());
        message[16..20].copy_from_slice(&self.frames.to_ne_bytes());
        message[24..32].copy_from_slice(&self.proof.to_ne_bytes());
        message
    }

    /// As received.
    pub fn decode(message: &[u8; WELCOME_BYTES]) -> Option<Welcome> {
        let welcome = Welcome {
            client: word(message, 4),
            token: long(message, 8),
            frames: word(message, 16),
            proof: long(message, 24),
        };
        (word(message, 0) == VERSION).then_some(welcome)
    }
}

fn word(message: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&message[at..at + 4]);
    u32::from_ne_bytes(bytes)
}

fn long(message: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&message[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_received_as_sent() {
        for socket in ["", "weir-lane-1234", &"x".repeat(48)] {
            let found = Found { socket: socket.to_owned(), proof: u64::MAX - 2 };
            assert_eq!(Found::decode(&found.encode()), Some(found));
        }
        let attach = Attach { client: 7, token: u64::MAX - 1, process: 4321, keeps_order: true };
        assert_eq!(Attach::decode(&attach.encode()), Some(attach));
        assert_eq!(Attach::decode(&attach.encode()[..63]), None);
        for process in [0, 4321] {
            assert_eq!(Leave::decode(&Leave { process }.encode()), Leave { process });
        }
        let attachment = Attachment { slot: 4095, description: 9, was_attached: true };
        assert_eq!(Attachment::decode(&attachment.encode()), Some(attachment));
        let welcome = Welcome { client: 1, token: 2, frames: 3, proof: 4 };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }

    #[test]
    fn invalid_messages_are_refused() {
        for byte in [0, 0xff] {
            let message = [byte; MESSAGE_BYTES];
            assert_eq!(Found::decode(&message), None);
            assert_eq!(Attach::decode(&message), None);
            assert_eq!(Attachment::decode(&message), None);
            assert_eq!(Leave::decode(&message), Leave::FOR_GOOD);
            assert_eq!(Welcome::decode(&[byte; WELCOME_BYTES]), None);
        }
        let mut message = Found { socket: "weir".to_owned(), proof: 0 }.encode();
        message[16] = 0xff;
        assert_eq!(Found::decode(&message), None);
        message[4] = 49;
        assert_eq!(Found::decode(&message), None);
    }

    /// _IOWR('W', 1, char[64]), as the kernel's headers define it.
    #[test]
    fn ioctl_numbers_are_built_as_the_kernel_builds_them() {
        assert_eq!([FIND, ATTACH, LEAVE], [0xc040_5701, 0xc040_5702, 0xc040_5703]);
    }
}
