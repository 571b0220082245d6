//! What is done to a file's content: by programs, and at home.

/// One change.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
    Zero { from: usize, to: usize },
}

impl Edit {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Edit::Write { offset, bytes } => {
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(bytes);
            }
            Edit::Size(size) => content.resize(*size, 0),
            Edit::Zero { from, to } => {
                let to = (*to).min(content.len());
                content[(*from).min(to)..to].fill(0);
            }
        }
    }
}
