//! The configuration file: TOML, keys named like the long options, one optional table for each
//! mount point.
//!
//! ```toml
//! memory = "1G"
//! options = "noatime,nodev"
//!
//! [mount."/mnt/data"]
//! source = "/srv/data"
//! fetch = "lazy"
//! ```
//! Only the table of a mount point has a `source`, for `weir mount MOUNTPOINT` and `weir@.service`. Anything that is not understood is an error that names file and line: a misspelt bound must not silently
//! become the default.

use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
pub use weir_control::place::absolute_variable;

use crate::bucket;
use crate::http::ListenAddress;
use crate::options::{self, Unknown};
use crate::quantity::{self, QuantityError, Size};
use crate::settings::Layer;

/// Where the machine's configuration is.
const SYSTEM_FILE: &str = "/etc/weir.toml";

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its contents are invalid.
    #[error("{}:{line}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

/// Reads the configuration for a mount at `mountpoint` (canonical): the file named on the command
/// line, or the user's over the machine's if there are any.
///
/// Within a file the mount point's table overrides the top level; the user's file as a whole overrides
/// the machine's.
pub fn load(named: Option<&Path>, mountpoint: &Path) -> Result<Layer, ConfigFileError> {
    if let Some(path) = named {
        return read(path)
            .map_err(|error| ConfigFileError::Unreadable { path: path.to_owned(), error })
            .and_then(|text| parse(path, &text, mountpoint));
    }
    let mut merged = Layer::default();
    for path in [Some(PathBuf::from(SYSTEM_FILE)), user_file()].into_iter().flatten() {
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(ConfigFileError::Unreadable { path, error }),
        };
        merged = parse(&path, &text, mountpoint)?.over(merged);
    }
    Ok(merged)
}

/// A file's text. More than a megabyte is an error: such a file is a device or an image.
fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// `$XDG_CONFIG_HOME/weir/config.toml`, by default in `~/.config`.
fn user_file() -> Option<PathBuf> {
    let directory = absolute_variable("XDG_CONFIG_HOME")
        .or_else(|| absolute_variable("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("weir/config.toml"))
}

/// Reads a configuration file's text.
fn parse(path: &Path, text: &str, mountpoint: &Path) -> Result<Layer, ConfigFileError> {
    let invalid = |at: Range<usize>, message: String| ConfigFileError::Invalid {
        path: path.to_owned(),
        line: line_of(text, at.start),
        message,
    };
    let table = DeTable::parse(text).map_err(|error| {
        invalid(error.span().unwrap_or(0..0), error.message().replace('\n', ", "))
    })?;
    let mut top = Layer::default();
    let mut here = Layer::default();
    for (key, value) in table.get_ref() {
        if key.get_ref() == "mount" {
            read_mounts(value, mountpoint, &mut here).map_err(|(at, text)| invalid(at, text))?;
        } else {
            read_key(key.get_ref(), key.span(), value, &mut top)
                .map_err(|(at, text)| invalid(at, text))?;
        }
    }
    Ok(here.over(top))
}

/// A message and the bytes of the file it is about.
type Fault = (Range<usize>, String);

/// `[mount."/mnt/a"]` tables. All are checked, so that a mistake shows before its mount is used.
fn read_mounts(
    value: &Spanned<DeValue<'_>>,
    mountpoint: &Path,
    into: &mut Layer,
) -> Result<(), Fault> {
    let DeValue::Table(mounts) = value.get_ref() else {
        return Err((value.span(), "'mount' must be tables: [mount.\"/mnt/data\"]".to_owned()));
    };
    for (name, value) in mounts {
        let DeValue::Table(keys) = value.get_ref() else {
            let message = format!("'mount.{}' must be a table", name.get_ref());
            return Err((value.span(), message));
        };
        let path = Path::new(name.get_ref().as_ref());
        if !path.is_absolute() {
            let message = format!("'{}' must be an absolute mount point", name.get_ref());
            return Err((name.span(), message));
        }
        let mut layer = Layer::default();
        for (key, value) in keys {
            match key.get_ref().as_ref() {
                "source" => layer.source = Some(source(value)?),
                name => read_key(name, key.span(), value, &mut layer)?,
            }
        }
        if path.components().eq(mountpoint.components()) {
            *into = layer;
        }
    }
    Ok(())
}

fn read_key(
    key: &str,
    at: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    into: &mut Layer,
) -> Result<(), Fault> {
    match key {
        "fetch" => into.fetch = Some(from_text(key, value)?),
        "memory" => into.memory = Some(size(key, value)?),
        "patch-memory" => into.patch_memory = Some(size(key, value)?),
        "transport" => into.transport = Some(from_text(key, value)?),
        "names" => into.names = Some(from_text(key, value)?),
        "order" => into.order = Some(from_text(key, value)?),
        "commit" => into.commit = Some(quantity(key, value, quantity::parse_commit)?),
        "log" => into.log = Some(from_text(key, value)?),
        "log-size" => into.log_size = Some(size(key, value)?),
        "dirty-expire" => {
            into.dirty_expire = Some(quantity(key, value, quantity::parse_dirty_expire)?);
        }
        "write-back" => into.write_back = Some(from_text(key, value)?),
        "lane" => into.lane = Some(boolean(key, value)?),
        "lane-users" => into.lane_users = Some(from_text(key, value)?),
        "write-back-interval" => {
            let interval = quantity(key, value, quantity::parse_write_back_interval)?;
            into.write_back_interval = Some(interval);
        }
        "dirty-max" => into.dirty_max = Some(percent(key, value, quantity::parse_dirty_max)?),
        "dirty-background" => {
            let background = percent(key, value, quantity::parse_dirty_background)?;
            into.dirty_background = Some(background);
        }
        "allow-other" => into.allow_other = Some(boolean(key, value)?),
        "read-only" => into.read_only = Some(boolean(key, value)?),
        "log-level" => into.log_level = Some(from_text(key, value)?),
        "log-file" => into.log_file = Some(absolute_path(key, value)?),
        "record" => into.record = Some(absolute_path(key, value)?),
        "metrics" => into.metrics = Some(address(key, value)?),
        "options" => {
            let mut layer = Layer::default();
            options::parse(text(key, value)?, Unknown::Refuse, &mut layer)
                .map_err(|error| (value.span(), error.to_string()))?;
            *into = std::mem::take(into).over(layer);
        }
        "source" => {
            let message =
                "'source' belongs into the table of a mount point: [mount.\"/path\"]".to_owned();
            return Err((at, message));
        }
        _ if bucket_option(key, value, into)? => {}
        _ => {
            let known = "fetch, memory, patch-memory, dirty-expire, write-back, lane, lane-users, \
                         write-back-interval, dirty-max, dirty-background, transport, names, order, commit, log, log-size, \
                         allow-other, read-only, options, log-level, log-file, record, metrics, \
                         endpoint, region, profile, path-style, unfenced, part-size, requests-per-second, durable, listing-ttl, cache, cache-size and [mount.\"/path\"] tables";
            return Err((at, format!("unknown key '{key}': there are {known}")));
        }
    }
    Ok(())
}

fn text<'a>(key: &str, value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err((value.span(), format!("'{key}' must be a string in quotes"))),
    }
}

fn boolean(key: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Fault> {
    match value.get_ref() {
        DeValue::Boolean(boolean) => Ok(*boolean),
        _ => Err((value.span(), format!("'{key}' must be true or false"))),
    }
}

fn from_text<T: FromStr>(key: &str, value: &Spanned<DeValue<'_>>) -> Result<T, Fault>
where
    T::Err: Display,
{
    text(key, value)?.parse().map_err(|error| (value.span(), format!("'{key}': {error}")))
}

/// A size: a string with a unit, or plain bytes.
fn size(key: &str, value: &Spanned<DeValue<'_>>) -> Result<Size, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().parse().map_err(|error| (value.span(), format!("'{key}': {error}")))
        }
        _ => from_text(key, value),
    }
}

fn quantity<T>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    parse: impl Fn(&str) -> Result<T, QuantityError>,
) -> Result<T, Fault> {
    parse(text(key, value)?).map_err(|error| (value.span(), format!("'{key}': {error}")))
}

/// A percentage: a string, or a plain number.
fn percent(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    parse: impl Fn(&str) -> Result<u8, QuantityError>,
) -> Result<u8, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => {
            parse(number.as_str()).map_err(|error| (value.span(), format!("'{key}': {error}")))
        }
        _ => quantity(key, value, parse),
    }
}

/// An address to listen at: a string, or a port as a plain number.
fn address(key: &str, value: &Spanned<DeValue<'_>>) -> Result<ListenAddress, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().parse().map_err(|error| (value.span(), format!("'{key}': {error}")))
        }
        _ => from_text(key, value),
    }
}

/// An option of buckets. False if it is none.
fn bucket_option(key: &str, value: &Spanned<DeValue<'_>>, into: &mut Layer) -> Result<bool, Fault> {
    let text = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
        DeValue::String(text) => Some(text.as_ref()),
        DeValue::Boolean(true) => Some("true"),
        DeValue::Boolean(false) => Some("false"),
        _ => None,
    };
    into.bucket.set(key, text).map_err(|error| (value.span(), format!("'{key}': {error}")))
}

/// The path of a directory, or the address of a bucket.
fn source(value: &Spanned<DeValue<'_>>) -> Result<PathBuf, Fault> {
    let named = text("source", value)?;
    match bucket::is_address(named) {
        true => Ok(named.into()),
        false => absolute_path("source", value),
    }
}

/// Relative paths would depend on where the command was run.
fn absolute_path(key: &str, value: &Spanned<DeValue<'_>>) -> Result<PathBuf, Fault> {
    let path = PathBuf::from(text(key, value)?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err((value.span(), format!("'{key}' must be an absolute path")))
    }
}

/// The line, from 1, that a byte is in.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::Level;
    use weir_engine::{FetchPolicy, WriteBackPolicy};

    use super::*;

    fn parsed(text: &str) -> Result<Layer, String> {
        parse(Path::new("/etc/weir.toml"), text, Path::new("/mnt/data"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_mount_point_has_a_source() {
        let text = "[mount.\"/mnt/data\"]\nsource = \"/srv/data\"\n[mount.\"/mnt/b\"]\nsource = \"/srv/b\"\n";
        assert_eq!(parsed(text).unwrap().source, Some("/srv/data".into()));
        assert!(parsed("source = \"/srv\"\n").unwrap_err().contains("belongs into the table"));
        let relative = parsed("[mount.\"/mnt/data\"]\nsource = \"srv\"\n").unwrap_err();
        assert!(relative.contains("absolute"), "{relative}");
    }

    #[test]
    fn keys_are_the_long_options() {
        let layer = parsed(
            "fetch = \"lazy\"\nmemory = \"1G\"\npatch-memory = 8388608\ndirty-expire = \"5s\"\n\
             allow-other = true\nread-only = false\noptions = \"noatime,ro\"\n\
             log-level = \"debug\"\nlog-file = \"/var/log/w.log\"\nwrite-back = \"adaptive\"\n\
             record = \"/var/tmp/w.jsonl\"\n\
             write-back-interval = \"2s\"\ndirty-max = 30\n",
        )
        .unwrap();
        assert_eq!(layer.fetch, Some(FetchPolicy::Lazy));
        assert_eq!(layer.memory, Some(Size(1 << 30)));
        assert_eq!(layer.patch_memory, Some(Size(8 << 20)));
        assert_eq!(layer.dirty_expire, Some(Duration::from_secs(5)));
        assert_eq!(layer.write_back, Some(WriteBackPolicy::Adaptive));
        assert_eq!(layer.write_back_interval, Some(Duration::from_secs(2)));
        assert_eq!(layer.dirty_max, Some(30));
        assert_eq!(parsed("dirty-max = \"30%\"").unwrap().dirty_max, Some(30));
        for text in ["metrics = 9338", "metrics = \"127.0.0.1:9338\""] {
            assert_eq!(parsed(text).unwrap().metrics, Some(ListenAddress::local(9338)));
        }
        assert_eq!(parsed("dirty-background = 5").unwrap().dirty_background, Some(5));
        assert_eq!(layer.allow_other, Some(true));
        assert_eq!(layer.read_only, Some(false), "a key counts over 'options'");
        assert_eq!(layer.atime, Some(false));
        assert_eq!(layer.log_level, Some(Level::DEBUG));
        assert_eq!(layer.log_file, Some("/var/log/w.log".into()));
        assert_eq!(layer.record, Some("/var/tmp/w.jsonl".into()));
    }

    #[test]
    fn a_mount_points_table_counts_over_the_top() {
        let text = "memory = \"1G\"\nfetch = \"lazy\"\n[mount.\"/mnt/data/\"]\nmemory = \"2G\"\n\
                    [mount.\"/mnt/other\"]\nmemory = \"4G\"\n";
        let layer = parsed(text).unwrap();
        assert_eq!(layer.memory, Some(Size(2 << 30)));
        assert_eq!(layer.fetch, Some(FetchPolicy::Lazy));
    }

    #[test]
    fn mistakes_are_named_by_file_and_line() {
        for (text, expected) in [
            ("\n\nmemmory = \"1G\"\n", "/etc/weir.toml:3: unknown key 'memmory'"),
            ("memory = \"1GB\"\n", "/etc/weir.toml:1: 'memory': '1GB' has the unknown unit"),
            ("memory = true\n", "/etc/weir.toml:1: 'memory' must be a string"),
            ("memory = -1\n", "/etc/weir.toml:1: 'memory': "),
            ("memory = 0x10\n", "/etc/weir.toml:1: 'memory' must be a string"),
            ("\nallow-other = \"yes\"\n", "/etc/weir.toml:2: 'allow-other' must be true or false"),
            ("fetch = \"never\"\n", "/etc/weir.toml:1: 'fetch': unknown fetch policy 'never'"),
            ("options = \"ro,nonsense\"\n", "/etc/weir.toml:1: unknown mount option 'nonsense'"),
            ("log-level = \"loud\"\n", "/etc/weir.toml:1: 'log-level': "),
            ("log-file = \"weir.log\"\n", "/etc/weir.toml:1: 'log-file' must be an absolute path"),
            ("metrics = -1\n", "/etc/weir.toml:1: 'metrics': '-1' is no address"),
            ("record = \"w.jsonl\"\n", "/etc/weir.toml:1: 'record' must be an absolute path"),
            ("dirty-expire = \"5\"\n", "/etc/weir.toml:1: 'dirty-expire': '5' has no unit"),
            ("write-back = 1\n", "/etc/weir.toml:1: 'write-back' must be a string"),
            (
                "write-back = \"eager\"\n",
                "/etc/weir.toml:1: 'write-back': unknown write-back policy",
            ),
            (
                "write-back-interval = \"1h\"\n",
                "/etc/weir.toml:1: 'write-back-interval': '1h' is out",
            ),
            (
                "dirty-max = 51\n",
                "/etc/weir.toml:1: 'dirty-max': '51' is out of range: from 1 to 50",
            ),
            ("dirty-max = 0.3\n", "/etc/weir.toml:1: 'dirty-max' must be a string"),
            ("mount = 1\n", "/etc/weir.toml:1: 'mount' must be tables"),
            ("[mount]\na = 1\n", "/etc/weir.toml:2: 'mount.a' must be a table"),
            ("[mount.data]\n", "/etc/weir.toml:1: 'data' must be an absolute mount point"),
            ("[mount.\"/x\"]\n\nfoo = 1\n", "/etc/weir.toml:3: unknown key 'foo'"),
            ("\nmemory = \n", "/etc/weir.toml:2: "),
            ("memory = 1\nmemory = 2\n", "/etc/weir.toml:2: "),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.starts_with(expected), "{text:?}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_named_file_must_be_there() {
        let error = load(Some(Path::new("/nonexistent/weir.toml")), Path::new("/mnt")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the configuration file /nonexistent"));
        assert!(read(Path::new("/dev/zero")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "([a-z]{1,7}|[\\[\\]\"=. \n#1-]|memory|mount|options|é){0,30}") {
            if let Err(message) = parsed(&text) {
                proptest::prop_assert!(message.starts_with("/etc/weir.toml:"));
            }
        }
    }
}
