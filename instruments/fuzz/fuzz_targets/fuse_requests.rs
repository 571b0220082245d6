//! FUSE requests in the memory that io_uring shares with the kernel: whatever lengths they claim, they are taken apart
//! inside that memory or refused. Compared with a table of what each kind needs, from fuse.h.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_fuse::fuzzing::{FRAME_BYTES, PAYLOAD_BYTES, Parts, take_apart};

const HEADER_BYTES: usize = 40;
const FIXED_AT: usize = 128;
const FIXED_BYTES: usize = 128;
const PAYLOAD_LEN_AT: usize = 272;

#[derive(Arbitrary, Debug)]
struct Input {
    opcode: u32,
    /// Bytes of the structure; more than there is room for is possible.
    fixed_len: u8,
    fixed: Vec<u8>,
    /// Of a field of the structure that is a length.
    len: u32,
    payload: Vec<u8>,
    lengths: Lengths,
}

#[derive(Arbitrary, Debug)]
enum Lengths {
    Right,
    /// The payload is as long as is said here, as far as the entry's memory goes.
    Payload(u32),
    /// The request says so of its length.
    Whole(u32),
    Both {
        payload: u32,
        whole: u32,
    },
}

/// What a kind of request needs: bytes of its structure, how many names follow, and where in the structure the length
/// of the data is that follows these.
struct Needs {
    fixed: usize,
    names: usize,
    data: Option<usize>,
}

fn needs(opcode: u32) -> Needs {
    let (fixed, names, data) = match opcode {
        1 | 10 | 11 | 24 => (0, 1, None),
        2 | 18 | 25 | 29 | 30 => (8, 0, None),
        4 => (84, 0, None),
        6 => (0, 2, None),
        8 | 35 => (12, 1, None),
        9 | 13 => (8, 1, None),
        12 => (8, 2, None),
        14 | 23 => (4, 0, None),
        15 => (24, 0, None),
        28 | 44 | 46 => (20, 0, None),
        16 => (36, 0, Some(16)),
        20 | 51 => (12, 0, None),
        21 => (8, 1, Some(0)),
        22 => (4, 1, None),
        39 => (32, 0, Some(24)),
        43 => (28, 0, None),
        45 => (12, 2, None),
        47 | 53 => (48, 0, None),
        _ => (0, 0, None),
    };
    Needs { fixed, names, data }
}

const BATCH_FORGET: u32 = 42;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What must come of a request; `None` if it is to be refused.
fn expected(frame: &[u8; FRAME_BYTES], payload: &[u8]) -> Option<Parts> {
    let payload_len = (u32_at(frame, PAYLOAD_LEN_AT) as usize).min(PAYLOAD_BYTES);
    let (whole, opcode) = (u32_at(frame, 0) as usize, u32_at(frame, 4));
    let fixed_len = whole.checked_sub(HEADER_BYTES)?.checked_sub(payload_len)?;
    let needs = needs(opcode);
    if !(needs.fixed..=FIXED_BYTES).contains(&fixed_len) {
        return None;
    }
    let fixed = &frame[FIXED_AT..FIXED_AT + fixed_len];
    // The rest of it is zeros.
    let byte = |at: usize| payload.get(at).copied().unwrap_or(0);
    let (mut parts, mut at) = (Parts::default(), 0);
    for _ in 0..needs.names {
        let len = (at..payload_len).take_while(|at| byte(*at) != 0).count();
        if at + len == payload_len {
            return None;
        }
        parts.names.push((at..at + len).map(byte).collect());
        at += len + 1;
    }
    if let Some(data) = needs.data {
        let len = u32_at(fixed, data) as usize;
        if len > payload_len - at {
            return None;
        }
        parts.data = (at..at + len).map(byte).collect();
    }
    if opcode == BATCH_FORGET {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|nth| byte(at + nth)));
        let pairs = (0..payload_len / 16).map(|nth| (long(16 * nth), long(16 * nth + 8)));
        parts.forgets = pairs.collect();
    }
    Some(parts)
}

fuzz_target!(|input: Input| {
    let mut frame = [0; FRAME_BYTES];
    let opcode = input.opcode % 64;
    let fixed = &input.fixed[..input.fixed.len().min(FIXED_BYTES)];
    frame[FIXED_AT..FIXED_AT + fixed.len()].copy_from_slice(fixed);
    if let Some(at) = needs(opcode).data {
        frame[FIXED_AT + at..FIXED_AT + at + 4].copy_from_slice(&input.len.to_ne_bytes());
    }
    let mut payload_len = input.payload.len() as u32;
    if let Lengths::Payload(len) | Lengths::Both { payload: len, .. } = input.lengths {
        payload_len = len;
    }
    let there = payload_len.min(PAYLOAD_BYTES as u32);
    let mut whole = HEADER_BYTES as u32 + u32::from(input.fixed_len % 160) + there;
    if let Lengths::Whole(len) | Lengths::Both { whole: len, .. } = input.lengths {
        whole = len;
    }
    frame[..4].copy_from_slice(&whole.to_ne_bytes());
    frame[4..8].copy_from_slice(&opcode.to_ne_bytes());
    frame[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&payload_len.to_ne_bytes());
    assert_eq!(take_apart(&frame, &input.payload), expected(&frame, &input.payload));
});
