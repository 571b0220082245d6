//! Directory listings in the form FUSE takes them.

use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::convert::{to_attr, to_kind};
use crate::attr::Attributes;
use crate::ops::directories::{Listed, Listing};

/// A listing without attributes.
pub(super) struct Names<'a>(pub(super) &'a mut ReplyDirectory);

impl Listing for Names<'_> {
    const WITH_ATTRIBUTES: bool = false;

    fn add(&mut self, entry: &Listed<'_>) -> bool {
        !self.0.add(INodeNo(entry.node.0), entry.next, to_kind(entry.kind), entry.name)
    }

    fn add_with(&mut self, entry: &Listed<'_>, _attributes: &Attributes) -> bool {
        self.add(entry)
    }
}

/// A listing with attributes.
pub(super) struct NamesAndAttributes<'a> {
    pub(super) reply: &'a mut ReplyDirectoryPlus,
    /// How long the kernel may rely on an entry.
    pub(super) timeout: Duration,
}

impl NamesAndAttributes<'_> {
    fn push(&mut self, entry: &Listed<'_>, timeout: Duration, attributes: &Attributes) -> bool {
        let full = self.reply.add(
            INodeNo(entry.node.0),
            entry.next,
            entry.name,
            &timeout,
            &to_attr(attributes),
            Generation(attributes.generation),
        );
        !full
    }
}

impl Listing for NamesAndAttributes<'_> {
    const WITH_ATTRIBUTES: bool = true;

    fn add(&mut self, entry: &Listed<'_>) -> bool {
        // The form of the answer has no room for "not looked up": valid for no time at all, so that
        // the kernel looks the name up when a program uses it.
        self.push(entry, Duration::ZERO, &Attributes::unknown(entry.node, entry.kind))
    }

    fn add_with(&mut self, entry: &Listed<'_>, attributes: &Attributes) -> bool {
        // The form of the answer has one timeout for both.
        let timeout = if attributes.volatile { Duration::ZERO } else { self.timeout };
        self.push(entry, timeout, attributes)
    }
}
