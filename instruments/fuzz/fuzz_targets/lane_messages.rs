//! The messages between a program and the daemon, both ways: any bytes decode to a message or are refused, a message is
//! received as it was sent, and messages of other versions are refused. Also the file of the programs' counters, in which
//! the user may put anything.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_lane::memory::{self, Access, Memory};
use weir_lane::tally::{Count, Fallback, PROGRAMS, Tally};
use weir_lane::wire::{
    Attach, Attachment, Found, Leave, MESSAGE_BYTES, Message, VERSION, WELCOME_BYTES, Welcome,
};

#[derive(Arbitrary, Debug)]
enum Input {
    /// Bytes from the other side.
    Received {
        version: Option<u32>,
        bytes: Vec<u8>,
    },
    Found {
        socket: String,
        proof: u64,
    },
    Attach {
        client: u32,
        token: u64,
        process: u32,
        keeps_order: bool,
    },
    Leave {
        process: u32,
    },
    Attachment {
        slot: u32,
        description: u32,
        was_attached: bool,
    },
    Welcome {
        client: u32,
        token: u64,
        frames: u32,
        proof: u64,
    },
    Tally {
        words: Vec<(u16, u32)>,
        programs: Vec<([u8; 2], u32)>,
        alive: u32,
    },
}

/// Fields are at fixed offsets, in the machine's byte order.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn received(version: Option<u32>, bytes: &[u8]) {
    let mut message = [0; MESSAGE_BYTES];
    let len = bytes.len().min(MESSAGE_BYTES);
    message[..len].copy_from_slice(&bytes[..len]);
    message[..4].copy_from_slice(&version.unwrap_or(VERSION).to_ne_bytes());
    let is_ours = version.is_none_or(|version| version == VERSION);

    let name_len = word(&message, 4) as usize;
    let name = (is_ours && name_len <= MESSAGE_BYTES - 16).then(|| &message[16..16 + name_len]);
    assert_eq!(Found::socket_in(&message), name);
    let found = Found::decode(&message);
    assert_eq!(found.is_some(), name.is_some_and(|name| std::str::from_utf8(name).is_ok()));
    if let Some(found) = found {
        assert_eq!(Found::decode(&found.encode()), Some(found));
    }
    // The kernel passes as many bytes as the program gave.
    let cut = &message[..bytes.len().min(MESSAGE_BYTES)];
    let attach = Attach::decode(cut);
    assert_eq!(attach.is_some(), is_ours && cut.len() == MESSAGE_BYTES);
    if let Some(attach) = attach {
        assert_eq!((attach.client, attach.process), (word(cut, 4), word(cut, 16)));
    }
    let leave = Leave::decode(cut);
    let process = if attach.is_some() { word(cut, 4) } else { 0 };
    assert_eq!(leave, Leave { process });
    let attachment = Attachment::decode(&message);
    assert_eq!(attachment.is_some(), is_ours);
    if let Some(attachment) = attachment {
        assert_eq!(Attachment::decode(&attachment.encode()), Some(attachment));
    }
    let welcome: [u8; WELCOME_BYTES] = message[..WELCOME_BYTES].try_into().expect("as many");
    assert_eq!(Welcome::decode(&welcome).is_some(), is_ours);
}

fn tally(words: &[(u16, u32)], programs: &[([u8; 2], u32)], alive: u32) {
    let fd = memory::create("tally", Tally::BYTES).expect("there is memory");
    let file = Memory::map(&fd, Tally::BYTES, Access::ReadWrite).expect("there is memory");
    let corrupt = |words: &[(u16, u32)]| {
        for &(at, value) in words {
            let at = usize::from(at) * 4 % Tally::BYTES;
            // SAFETY: inside, aligned, and an atomic.
            let word = unsafe { file.at::<std::sync::atomic::AtomicU32>(at) };
            word.store(value, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let (before, after) = words.split_at(words.len() / 2);
    corrupt(before);
    let Ok(tally) = Tally::map(&fd) else { return };
    for &(short, process) in programs.iter().take(40) {
        let mut name = [0; 15];
        name[..2].copy_from_slice(&short);
        let place = tally.take(process, name, |process| process & alive != 0);
        place.add(Count::LaneReads, u64::MAX);
        place.add_kernel_write(Fallback::Full, 1);
        corrupt(after);
    }
    assert!(tally.programs().len() <= PROGRAMS);
    for program in tally.programs() {
        assert!(program.name().len() <= 16);
        for fallback in Fallback::ALL {
            std::hint::black_box((program.kernel_reads(fallback), program.kernel_writes(fallback)));
        }
    }
}

fuzz_target!(|input: Input| match input {
    Input::Received { version, bytes } => received(version, &bytes),
    Input::Found { mut socket, proof } => {
        while socket.len() > MESSAGE_BYTES - 16 {
            socket.pop();
        }
        let found = Found { socket, proof };
        let message: Message = found.encode();
        assert_eq!(Found::proof_in(&message), proof);
        assert_eq!(Found::decode(&message), Some(found));
    }
    Input::Attach { client, token, process, keeps_order } => {
        let attach = Attach { client, token, process, keeps_order };
        assert_eq!(Attach::decode(&attach.encode()), Some(attach));
    }
    Input::Leave { process } => {
        assert_eq!(Leave::decode(&Leave { process }.encode()), Leave { process });
    }
    Input::Attachment { slot, description, was_attached } => {
        let attachment = Attachment { slot, description, was_attached };
        assert_eq!(Attachment::decode(&attachment.encode()), Some(attachment));
    }
    Input::Welcome { client, token, frames, proof } => {
        let welcome = Welcome { client, token, frames, proof };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }
    Input::Tally { words, programs, alive } => tally(&words, &programs, alive),
});
