//! The syntax of strace's lines: process, time, name, arguments, result, duration.
//!
//! Owns the grammar alone; what calls mean is `strace_calls`'. strace writes bytes of names that are not printable, and
//! `<` and `>` in a descriptor's path, as `\` and octal digits (strace(1), -y).

use super::lines::shown;

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// A whole call.
    Call(Call<'a>),
    /// A call that another one interrupts: its text up to there.
    Unfinished { text: &'a [u8] },
    /// The rest of its text.
    Resumed { name: &'a [u8], text: &'a [u8] },
    /// The process has ended.
    Ended,
    /// A signal, or a note.
    Other,
}

/// A whole call.
#[derive(Debug, PartialEq)]
pub(super) struct Call<'a> {
    pub(super) name: &'a [u8],
    pub(super) arguments: Vec<&'a [u8]>,
    /// `None`: it did not return.
    pub(super) result: Option<i64>,
    /// What the result's descriptor refers to.
    pub(super) result_path: Option<Vec<u8>>,
    pub(super) took_us: Option<u64>,
}

/// A line's beginning: who, and when in microseconds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) process: Option<u32>,
    pub(super) at_us: Option<u64>,
}

/// Reads a line's beginning; the rest is returned with it.
pub(super) fn head(line: &[u8]) -> Result<(Head, &[u8]), String> {
    let mut rest = line.trim_ascii_start();
    let mut head = Head { process: None, at_us: None };
    if let Some(after) = rest.strip_prefix(b"[pid ") {
        let end = after.iter().position(|byte| *byte == b']').ok_or("'[pid' has no end")?;
        head.process = Some(number(after[..end].trim_ascii()).ok_or("the process is no number")?);
        rest = after[end + 1..].trim_ascii_start();
    }
    for _ in 0..2 {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let word = &rest[..end];
        if !word.first().is_some_and(u8::is_ascii_digit) {
            break;
        }
        if let Some(at_us) = time(word) {
            head.at_us = Some(at_us);
        } else if head.process.is_none() && head.at_us.is_none() {
            head.process =
                Some(number(word).ok_or_else(|| format!("{} is no process", shown(word)))?);
        } else {
            return Err(format!("{} is no time", shown(word)));
        }
        rest = rest[end..].trim_ascii_start();
    }
    Ok((head, rest))
}

/// `1795844638.314263` or `12:34:56.314263`, as microseconds.
fn time(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (whole, micros) = text.split_once('.')?;
    if micros.len() != 6 || !micros.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = match whole.split(':').collect::<Vec<_>>()[..] {
        [seconds] => decimal(seconds)?,
        [hours, minutes, seconds] => {
            let (hours, minutes) = (decimal(hours)?, decimal(minutes)?);
            hours
                .checked_mul(3600)?
                .checked_add(minutes.checked_mul(60)?)?
                .checked_add(decimal(seconds)?)?
        }
        _ => return None,
    };
    seconds.checked_mul(1_000_000)?.checked_add(decimal(micros)?)
}

fn decimal(text: &str) -> Option<u64> {
    // parse() takes a sign, too.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A number of any kind.
pub(super) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads what follows the head.
pub(super) fn body(text: &[u8]) -> Result<Line<'_>, String> {
    if text.starts_with(b"+++ exited") || text.starts_with(b"+++ killed") {
        return Ok(Line::Ended);
    }
    if text.starts_with(b"---")
        || text.starts_with(b"+++")
        || text.starts_with(b"strace:")
        || text.is_empty()
    {
        return Ok(Line::Other);
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let at = find(rest, b" resumed>").ok_or("'<...' without 'resumed>'")?;
        return Ok(Line::Resumed { name: &rest[..at], text: &rest[at + b" resumed>".len()..] });
    }
    if let Some(before) = text.strip_suffix(b"<unfinished ...>") {
        // exit_group(0 <unfinished ...>, and also the call during which a process is killed.
        return Ok(Line::Unfinished { text: before.trim_ascii_end() });
    }
    call(text).map(Line::Call)
}

/// Reads a whole call.
pub(super) fn call(text: &[u8]) -> Result<Call<'_>, String> {
    let open = text
        .iter()
        .position(|byte| *byte == b'(')
        .ok_or_else(|| format!("{} is no call", shown(text)))?;
    let name = &text[..open];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'?';
    if name.is_empty() || !name.iter().all(is_name) {
        return Err(format!("{} is no call", shown(text)));
    }
    let (arguments, rest) = arguments(&text[open + 1..])?;
    let rest = rest.trim_ascii_start();
    let rest = rest
        .strip_prefix(b"=")
        .ok_or_else(|| format!("the call has no result: {}", shown(text)))?;
    let (rest, took_us) = duration(rest.trim_ascii())?;
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'<')).unwrap_or(rest.len());
    let result = match &rest[..end] {
        b"?" => None,
        word => {
            Some(integer(word).ok_or_else(|| format!("the result {} is no number", shown(word)))?)
        }
    };
    let result_path =
        rest[end..].strip_prefix(b"<").map(|path| until_close(path).map(unescaped)).transpose()?;
    Ok(Call { name, arguments, result, result_path, took_us })
}

/// A decimal or hexadecimal number.
pub(super) fn integer(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"0x") {
        // An address may have its highest bit set.
        Some(digits) => u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16)
            .ok()
            .map(|value| value as i64),
        None => number(word),
    }
}

/// `... <0.000123>`.
fn duration(text: &[u8]) -> Result<(&[u8], Option<u64>), String> {
    let Some(before) = text.strip_suffix(b">") else { return Ok((text, None)) };
    let at = before.iter().rposition(|byte| *byte == b'<').ok_or("a duration does not begin")?;
    match time(&before[at + 1..]) {
        Some(took_us) => Ok((before[..at].trim_ascii_end(), Some(took_us))),
        // The end of a descriptor's path.
        None => Ok((text, None)),
    }
}

/// Splits at commas up to the parenthesis that closes the call; what follows it is the second.
fn arguments(text: &[u8]) -> Result<(Vec<&[u8]>, &[u8]), String> {
    let (mut found, mut begin, mut depth, mut at) = (Vec::new(), 0, 0_u32, 0);
    while at < text.len() {
        match text[at] {
            b'"' => at = end_of_string(text, at)?,
            // A descriptor's path; strace escapes '>' in it. '<' elsewhere is an operator of a constant.
            b'<' if at > begin && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
                at += until_close(&text[at + 1..])?.len() + 1;
            }
            b'/' if text[at..].starts_with(b"/*") => {
                at += find(&text[at..], b"*/").ok_or("a comment has no end")? + 1;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                let last = text[begin..at].trim_ascii();
                if !last.is_empty() || !found.is_empty() {
                    found.push(last);
                }
                return Ok((found, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1).ok_or("brackets do not match")?,
            b',' if depth == 0 => {
                found.push(text[begin..at].trim_ascii());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    Err("the call's arguments have no end".to_owned())
}

/// The index of a string's closing quote; `at` is the opening one.
fn end_of_string(text: &[u8], at: usize) -> Result<usize, String> {
    let mut end = at + 1;
    while end < text.len() {
        match text[end] {
            b'"' => return Ok(end),
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    Err("a string has no end".to_owned())
}

/// Up to the next '>'.
fn until_close(text: &[u8]) -> Result<&[u8], String> {
    let end = text.iter().position(|byte| *byte == b'>').ok_or("a descriptor's path has no end")?;
    Ok(&text[..end])
}

pub(super) fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// The bytes of a string in quotes. `None` if the text has no quotes, or was cut.
pub(super) fn string(word: &[u8]) -> Option<Vec<u8>> {
    let inner = word.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some(unescaped(inner))
}

/// `3</path>` or `AT_FDCWD</path>`: the descriptor, and its path if it is told.
pub(super) fn descriptor(word: &[u8]) -> Option<(i64, Option<Vec<u8>>)> {
    let end = word.iter().position(|byte| *byte == b'<').unwrap_or(word.len());
    let fd = match &word[..end] {
        b"AT_FDCWD" => -100,
        digits => number(digits)?,
    };
    let path = word[end..].strip_prefix(b"<").and_then(|rest| until_close(rest).ok());
    Some((fd, path.map(unescaped)))
}

/// Undoes `\"`, `\n` and its like, `\ooo` and `\xhh`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some(letter) = rest.first() else { break };
        if let b'0'..=b'7' = letter {
            let digits = rest.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let value = rest[..digits]
                .iter()
                .fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            rest = &rest[digits..];
            continue;
        }
        let hex = rest.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
        if let (b'x', Some(value)) =
            (letter, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()))
        {
            bytes.push(value);
            rest = &rest[3..];
            continue;
        }
        bytes.push(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            other => *other,
        });
        rest = &rest[1..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Call<'_> {
        match body(text).unwrap() {
            Line::Call(call) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heads_of_all_kinds() {
        for (line, process, at_us, rest) in [
            (
                &b"4833  1795844638.314263 close(3) = 0"[..],
                Some(4833),
                Some(1_795_844_638_314_263),
                &b"close(3) = 0"[..],
            ),
            (b"[pid   77] 1.000002 close(3) = 0", Some(77), Some(1_000_002), b"close(3) = 0"),
            (b"00:01:02.000003 close(3) = 0", None, Some(62_000_003), b"close(3) = 0"),
            (b"close(3) = 0", None, None, b"close(3) = 0"),
        ] {
            assert_eq!(head(line).unwrap(), (Head { process, at_us }, rest));
        }
        assert!(head(b"12 13 close(3)").is_err());
    }

    #[test]
    fn calls_with_paths_comments_and_quotes() {
        let call = parsed(b"openat(AT_FDCWD</a b>, \"x,\\\"(\\303\\274\", O_RDWR|O_CREAT, 0777) = 3</a b/x\\76> <0.000042>");
        assert_eq!(call.name, b"openat");
        assert_eq!(call.arguments.len(), 4);
        assert_eq!(descriptor(call.arguments[0]), Some((-100, Some(b"/a b".to_vec()))));
        assert_eq!(string(call.arguments[1]).unwrap(), "x,\"(ü".as_bytes());
        assert_eq!((call.result, call.took_us), (Some(3), Some(42)));
        assert_eq!(call.result_path.unwrap(), b"/a b/x>");
        let call = parsed(b"execve(\"/usr/bin/sh\", [...], 0x7ff /* 35 vars, and ) */) = -1 ENOENT (No such file) <0.000012>");
        assert_eq!((call.arguments.len(), call.result), (3, Some(-1)));
        assert_eq!(parsed(b"exit_group(0)   = ?").result, None);
        assert_eq!(
            parsed(b"mmap(NULL, 1, 2, 3, 3</x>(deleted), 0) = 0x7fdd6c8fa000 <0.000026>").result,
            Some(0x7fdd_6c8f_a000)
        );
        assert_eq!(parsed(b"sync() = 0").arguments.len(), 0);
        assert_eq!(parsed(b"open(\"a\", O_RDONLY) = 3</x>").result_path.unwrap(), b"/x");
    }

    #[test]
    fn broken_lines_are_errors() {
        for text in [
            &b"close(3"[..],
            b"close(3)",
            b"close(3) = x",
            b"open(\"a",
            b"= 3",
            b"a b(3) = 0",
            b"f(]) = 0",
            b"f(3</x) = 0",
            b"<... close re",
            b"f(/* ) = 0",
        ] {
            assert!(body(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn calls_that_others_interrupt() {
        assert_eq!(
            body(b"pread64(3</x>,  <unfinished ...>").unwrap(),
            Line::Unfinished { text: b"pread64(3</x>," }
        );
        assert_eq!(
            body(b"<... pread64 resumed>\"\"..., 3, 4) = 3 <0.1>").unwrap(),
            Line::Resumed { name: b"pread64", text: b"\"\"..., 3, 4) = 3 <0.1>" }
        );
        assert_eq!(body(b"+++ killed by SIGKILL +++").unwrap(), Line::Ended);
        assert_eq!(body(b"--- SIGCHLD {si_signo=SIGCHLD} ---").unwrap(), Line::Other);
    }
}
