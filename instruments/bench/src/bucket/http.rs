//! Counts the requests of a connection: HTTP/1.1, as much of it as tells where one ends (RFC 9112).

/// What comes next.
enum Next {
    /// The head of a request, of which this has come.
    Head(Vec<u8>),
    /// This many bytes of a body.
    Body(u64),
    /// The line with a chunk's size, of which this has come.
    ChunkSize(Vec<u8>),
    /// This many bytes of a chunk and the end of its line.
    Chunk(u64),
    /// A line after the last chunk, of which this has come.
    Trailer(Vec<u8>),
}

/// The longest head or line; more is no HTTP.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// One connection's requests.
pub struct Requests(Next);

impl Requests {
    /// None so far.
    pub fn new() -> Requests {
        Requests(Next::Head(Vec::new()))
    }

    /// Takes what a client sent next: how many heads of requests end in it.
    pub fn take(&mut self, mut bytes: &[u8]) -> u64 {
        let mut heads = 0;
        while !bytes.is_empty() {
            match &mut self.0 {
                Next::Head(head) => {
                    if line_end(head, &mut bytes, b"\r\n\r\n") {
                        heads += 1;
                        self.0 = body(head);
                    }
                }
                Next::Body(left) => {
                    if !skip(left, &mut bytes) {
                        self.0 = Next::Head(Vec::new());
                    }
                }
                Next::ChunkSize(line) => {
                    if line_end(line, &mut bytes, b"\r\n") {
                        let digits = line.split(|byte| !byte.is_ascii_hexdigit()).next();
                        let digits = std::str::from_utf8(digits.unwrap_or_default());
                        let size = u64::from_str_radix(digits.unwrap_or_default(), 16);
                        self.0 = match size.unwrap_or(0) {
                            0 => Next::Trailer(Vec::new()),
                            size => Next::Chunk(size + 2),
                        };
                    }
                }
                Next::Chunk(left) => {
                    if !skip(left, &mut bytes) {
                        self.0 = Next::ChunkSize(Vec::new());
                    }
                }
                Next::Trailer(line) => {
                    if line_end(line, &mut bytes, b"\r\n") {
                        self.0 = match line.as_slice() {
                            b"\r\n" => Next::Head(Vec::new()),
                            _ => Next::Trailer(Vec::new()),
                        };
                    }
                }
            }
        }
        heads
    }
}

/// Moves bytes up to this end from `bytes` to `text`; whether it has come.
fn line_end(text: &mut Vec<u8>, bytes: &mut &[u8], end: &[u8]) -> bool {
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        if text.len() < HEAD_BYTES_MAX {
            text.push(*byte);
        }
        if text.ends_with(end) {
            return true;
        }
    }
    false
}

/// Leaves out what is to be skipped; whether there is more of it.
fn skip(left: &mut u64, bytes: &mut &[u8]) -> bool {
    let here = (bytes.len() as u64).min(*left);
    *bytes = &bytes[here as usize..];
    *left -= here;
    *left > 0
}

/// What follows a head.
fn body(head: &[u8]) -> Next {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    if field("transfer-encoding").is_some_and(|coding| coding.ends_with("chunked")) {
        return Next::ChunkSize(Vec::new());
    }
    match field("content-length").and_then(|length| length.parse().ok()) {
        None | Some(0) => Next::Head(Vec::new()),
        Some(length) => Next::Body(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &[u8] = b"GET /b/k HTTP/1.1\r\nHost: a\r\n\r\n\
        PUT /b/k HTTP/1.1\r\nContent-Length: 20\r\n\r\nGET / HTTP/1.1\r\n\r\n..\
        PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\n\r\n\r\n\r\n0\r\na: b\r\n\r\n\
        HEAD /b/k HTTP/1.1\r\ncontent-length: 0\r\n\r\n";

    #[test]
    fn requests_are_counted_wherever_they_are_cut() {
        for piece in [1, 3, 7, SENT.len()] {
            let mut requests = Requests::new();
            let counted: u64 = SENT.chunks(piece).map(|bytes| requests.take(bytes)).sum();
            assert_eq!(counted, 4, "pieces of {piece}");
        }
    }
}
