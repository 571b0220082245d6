//! Attributes of files in the user metadata of objects, as s3fs and rclone write and read them.
//!
//! `mode` (the whole st_mode), `uid` and `gid` are decimal numbers, which s3fs writes and rclone keeps. `mtime` is
//! written as seconds with nine decimals, which rclone and newer versions of s3fs write, too. Read are also whole
//! seconds, and RFC 3339. A symbolic link is an object whose mode says so and whose content is the target, as s3fs has
//! it; a directory is an object whose key ends in a slash.

use std::collections::BTreeMap;

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use serde::{Deserialize, Serialize};

/// The content type that s3fs gives directories.
pub const DIRECTORY_TYPE: &str = "application/x-directory";
/// The identity of the write that made the object: who, which file, and how many of its changes. It tells an own object,
/// whose answer was lost, from somebody else's.
pub const WRITE_ID: &str = "weir-write";

/// The identity of the write that made an object, if the object has one.
pub fn identity(properties: &Properties) -> Option<&str> {
    properties.user.get(WRITE_ID).map(String::as_str)
}

/// What an object has beside its bytes. Headers that nobody changes here are kept when it is written anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Content-Type, and others by their names.
    pub headers: BTreeMap<Header, String>,
    /// User metadata, keys in lower case and without `x-amz-meta-`.
    pub user: BTreeMap<String, String>,
}

/// Headers that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it.
pub enum Header {
    ContentType,
    ContentEncoding,
    ContentLanguage,
    ContentDisposition,
    CacheControl,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Whole seconds, also before 1970.
    pub seconds: i64,
    /// Below a second.
    pub nanoseconds: u32,
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permissions and the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last modification.
    pub mtime: Time,
}

/// Of objects that say nothing.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Defaults {
    /// The attributes of an object, or a directory without one, that has no metadata.
    pub fn attributes(&self, kind: Kind, mtime: Time) -> Attributes {
        let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
        Attributes { kind, mode, uid: self.uid, gid: self.gid, mtime }
    }

    /// What an object's metadata says. `directory`: its key ends in a slash.
    pub fn read(
        &self,
        properties: &Properties,
        directory: bool,
        last_modified: Time,
    ) -> Attributes {
        let number = |key: &str| properties.user.get(key)?.trim().parse::<u32>().ok();
        let mode = number("mode");
        let kind = match mode.map(|mode| mode & libc::S_IFMT) {
            _ if directory => Kind::Directory,
            Some(libc::S_IFLNK) => Kind::Symlink,
            _ => Kind::File,
        };
        let mut attributes = self.attributes(kind, last_modified);
        if let Some(mode) = mode {
            attributes.mode = mode & 0o7777;
        }
        attributes.uid = number("uid").unwrap_or(self.uid);
        attributes.gid = number("gid").unwrap_or(self.gid);
        if let Some(time) = properties.user.get("mtime").and_then(|text| time_of(text)) {
            attributes.mtime = time;
        }
        attributes
    }
}

/// Puts attributes into an object's metadata; all else there stays.
pub fn write(attributes: &Attributes, properties: &mut Properties) {
    let file_type = match attributes.kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
    };
    let Time { seconds, nanoseconds } = attributes.mtime;
    let user = &mut properties.user;
    user.insert("mode".into(), (file_type | attributes.mode).to_string());
    user.insert("uid".into(), attributes.uid.to_string());
    user.insert("gid".into(), attributes.gid.to_string());
    user.insert("mtime".into(), format!("{seconds}.{nanoseconds:09}"));
    if attributes.kind == Kind::Directory {
        properties.headers.insert(Header::ContentType, DIRECTORY_TYPE.into());
    }
}

/// Where tools note a hash of an object's bytes: rclone's of what it uploads in parts, and others.
const HASHES: [&str; 6] = ["md5chksum", "md5", "content-md5", "sha1", "sha256", "sha512"];
/// Where s3cmd notes attributes, `name:value` between slashes; `md5` is among them.
const S3CMD: &str = "s3cmd-attrs";

/// Takes hashes that tools noted out of an object's metadata: its bytes change, and who checks would take them for damaged.
pub fn forget_hashes(properties: &mut Properties) {
    for name in HASHES {
        properties.user.remove(name);
    }
    if let Some(noted) = properties.user.get_mut(S3CMD) {
        let kept: Vec<&str> = noted.split('/').filter(|part| !part.starts_with("md5:")).collect();
        *noted = kept.join("/");
    }
}

/// Reads a time: `1700000000`, `1700000000.25` or `2023-11-14T22:13:20.25Z`.
fn time_of(text: &str) -> Option<Time> {
    let text = text.trim();
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if let Ok(seconds) = whole.parse::<i64>() {
        if !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let nine: String = decimals.chars().chain("000000000".chars()).take(9).collect();
        let nanoseconds = nine.parse().ok()?;
        return Some(Time { seconds, nanoseconds });
    }
    let time = DateTime::from_str(text, DateTimeFormat::DateTimeWithOffset).ok()?;
    Some(Time { seconds: time.secs(), nanoseconds: time.subsec_nanos() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULTS: Defaults = Defaults { uid: 7, gid: 8 };

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        Properties {
            user: pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect(),
            ..Properties::default()
        }
    }

    #[test]
    fn what_other_tools_wrote_is_read() {
        let modified = Time { seconds: 5, nanoseconds: 0 };
        let plain = DEFAULTS.read(&properties(&[]), false, modified);
        assert_eq!(plain, DEFAULTS.attributes(Kind::File, modified));
        let s3fs =
            properties(&[("mode", "41471"), ("uid", "1"), ("gid", "2"), ("mtime", "1700000000")]);
        let link = DEFAULTS.read(&s3fs, false, modified);
        assert_eq!((link.kind, link.mode, link.uid, link.gid), (Kind::Symlink, 0o777, 1, 2));
        assert_eq!(link.mtime, Time { seconds: 1_700_000_000, nanoseconds: 0 });
        for (text, nanoseconds) in [
            ("1700000000.25", 250_000_000),
            ("2023-11-14T22:13:20.25Z", 250_000_000),
            ("2023-11-14T23:13:20+01:00", 0),
        ] {
            assert_eq!(time_of(text), Some(Time { seconds: 1_700_000_000, nanoseconds }), "{text}");
        }
        for text in ["", "x", "1.x", "yesterday"] {
            assert_eq!(time_of(text), None, "{text}");
        }
        assert_eq!(DEFAULTS.read(&properties(&[("mode", "x")]), true, modified).mode, 0o755);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(mode in 0u32..0o10000, uid: u32, gid: u32, seconds in 0i64..1 << 40, nanoseconds in 0u32..1_000_000_000, which in 0usize..3) {
            let kind = [Kind::File, Kind::Directory, Kind::Symlink][which];
            let attributes = Attributes { kind, mode, uid, gid, mtime: Time { seconds, nanoseconds } };
            let mut properties = properties(&[("other", "stays")]);
            write(&attributes, &mut properties);
            prop_assert_eq!(DEFAULTS.read(&properties, kind == Kind::Directory, Time::default()), attributes);
            prop_assert_eq!(&properties.user["other"], "stays");
        }
    }
}
