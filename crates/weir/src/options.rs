//! `-o opt,opt=value`: the options of FUSE and mount(8), and Weir's own in that form.
//! Every option is known or refused; none is passed on unchecked. An option that FUSE users may expect and
//! Weir does not have is refused with the reason, never silently ignored.

use std::path::PathBuf;

use weir_engine::{ConfigError, FetchPolicy, Order, WriteBackPolicy};

use crate::http::AddressError;
use crate::lane_users::LaneUsersError;
use crate::quantity::{self, QuantityError};
use crate::settings::Layer;

/// Why an `-o` list is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The option is unknown.
    #[error("unknown mount option '{0}'; 'weir mount --help' lists those there are")]
    Unknown(String),
    /// FUSE file systems have it, Weir does not.
    #[error("mount option '{name}' is not supported: {reason}")]
    Unsupported {
        /// The option's name.
        name: String,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// `name` without `=value`.
    #[error("mount option '{0}' needs a value: {0}=VALUE")]
    NoValue(String),
    /// `name=value` for an option without a value.
    #[error("mount option '{0}' takes no value")]
    UnexpectedValue(String),
    /// The value of a switch is neither `on` nor `off`.
    #[error("mount option '{0}' is on or off: {0}=on or {0}=off")]
    NotOnOrOff(String),
    /// The value is no size or duration.
    #[error("mount option '{name}': {error}")]
    Quantity {
        /// The option's name.
        name: String,
        /// What is wrong.
        error: QuantityError,
    },
    /// The value of an option of buckets.
    #[error("mount option '{name}': {error}")]
    Bucket {
        /// The option's name.
        name: String,
        /// What is wrong.
        error: String,
    },
    /// The value of `log` names no place.
    #[error("mount option 'log': {0}")]
    Log(String),
    /// The value of `record` is a relative path; mount(8) may have been run in any directory.
    #[error("mount option 'record': give an absolute path, not '{0}'")]
    Record(String),
    /// The value of `metrics` is no address.
    #[error("mount option 'metrics': {0}")]
    Metrics(AddressError),
    /// The value of `transport` is unknown.
    #[error("mount option 'transport': {0}")]
    Transport(&'static str),
    /// The value of `names` is unknown.
    #[error("mount option 'names': {0}")]
    Names(&'static str),
    /// The value of `order` is unknown.
    #[error("mount option 'order': {0}")]
    Order(ConfigError),
    /// The value of `fetch` is unknown.
    #[error("mount option 'fetch': {0}")]
    Fetch(ConfigError),
    /// The value of `lane_users` names an unknown user.
    #[error("mount option 'lane_users': {0}")]
    LaneUsers(LaneUsersError),
    /// The value of `write_back` is unknown.
    #[error("mount option 'write_back': {0}")]
    WriteBack(ConfigError),
}

/// How unknown options are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// An error.
    Refuse,
    /// Ignored, as mount(8) asked with `-s`.
    Ignore,
}

/// Accepted without effect: options for mount(8) and fstab(5), and options that describe what Weir does
/// anyway.
const NO_EFFECT: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "_rnetdev",
    "silent",
    "loud",
    "async",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "diratime",
    "nodiratime",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "default_permissions",
    "kernel_cache",
    "auto_cache",
    "big_writes",
    "use_ino",
    "readdir_ino",
    "hard_remove",
    "async_read",
];

const OWNERS_KEPT: &str = "files keep the owners and modes they have in SOURCE";
const ALWAYS_UNMOUNTED: &str = "stop the daemon with 'weir umount' or SIGTERM";

/// Known to FUSE users, and refused with a reason.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("uid", OWNERS_KEPT),
    ("gid", OWNERS_KEPT),
    ("umask", OWNERS_KEPT),
    ("fmask", OWNERS_KEPT),
    ("dmask", OWNERS_KEPT),
    ("allow_root", "use allow_other; permissions are checked as in SOURCE"),
    ("nonempty", "mount on an empty directory"),
    ("auto_unmount", ALWAYS_UNMOUNTED),
    ("sync", "programs get synchronous writes with O_SYNC or fsync"),
    ("dirsync", "programs get durable directories with fsync"),
    ("remount", "it changes an existing mount: 'mount -o remount,ro MOUNTPOINT'"),
    ("bind", "use mount --bind on the mounted directory"),
    ("loop", "SOURCE is a directory, not an image"),
    ("blkdev", "SOURCE is a directory, not a device"),
    ("fd", "weir opens /dev/fuse itself"),
    ("rootmode", "weir sets it itself"),
    ("user_id", "weir sets it itself"),
    ("group_id", "weir sets it itself"),
    ("max_read", "weir chooses the size of requests itself"),
    ("max_write", "weir chooses the size of requests itself"),
    ("max_background", "weir chooses the number of requests itself"),
    ("writeback_cache", "Weir is the write-back cache"),
    ("setuid", "start weir as the user that is to own the daemon"),
];

/// Reads an `-o` argument into a layer of settings; the last of contradicting options counts.
///
/// A comma inside a value is written `\,` and a backslash `\\`, as libfuse has it.
pub fn parse(list: &str, unknown: Unknown, into: &mut Layer) -> Result<(), OptionError> {
    for option in split(list) {
        if option.is_empty() {
            continue;
        }
        match parse_one(&option, into) {
            Err(OptionError::Unknown(_)) if unknown == Unknown::Ignore => {}
            result => result?,
        }
    }
    Ok(())
}

/// Whether the options include `remount`.
pub fn asks_for_remount(list: &str) -> bool {
    split(list).iter().any(|option| option == "remount")
}

/// As [`parse`], for a remount: ignores `remount` itself and the options that the kernel shows for every
/// FUSE mount, which mount(8) repeats.
pub fn parse_for_remount(
    list: &str,
    unknown: Unknown,
    into: &mut Layer,
) -> Result<(), OptionError> {
    const SHOWN: [&str; 6] = ["remount", "user_id", "group_id", "rootmode", "max_read", "blksize"];
    for option in split(list) {
        let name = option.split('=').next().unwrap_or_default();
        if option.is_empty() || SHOWN.contains(&name) {
            continue;
        }
        match parse_one(&option, into) {
            Err(OptionError::Unknown(_)) if unknown == Unknown::Ignore => {}
            result => result?,
        }
    }
    Ok(())
}

fn parse_one(option: &str, into: &mut Layer) -> Result<(), OptionError> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    if is_comment(name) {
        return Ok(());
    }
    if let Some((_, reason)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
        return Err(OptionError::Unsupported { name: name.to_owned(), reason });
    }
    if parse_switch(name, value, into)? {
        return Ok(());
    }
    let needed = || value.filter(|text| !text.is_empty()).ok_or(OptionError::NoValue(name.into()));
    let quantity = |error| OptionError::Quantity { name: name.to_owned(), error };
    match name {
        "fsname" => into.fsname = Some(needed()?.to_owned()),
        // mount.fuse passes the type on; it is always the same.
        "subtype" => drop(needed()?),
        "entry_timeout" | "negative_timeout" | "ac_attr_timeout" | "attr_timeout" => {
            let timeout = quantity::parse_timeout(needed()?).map_err(quantity)?;
            match name {
                "entry_timeout" => into.entry_timeout = Some(timeout),
                "negative_timeout" => into.negative_timeout = Some(timeout),
                "attr_timeout" => into.attr_timeout = Some(timeout),
                _ => {}
            }
        }
        "fetch" => {
            into.fetch = Some(needed()?.parse::<FetchPolicy>().map_err(OptionError::Fetch)?);
        }
        "memory" => into.memory = Some(needed()?.parse().map_err(quantity)?),
        "patch_memory" | "patch-memory" => {
            into.patch_memory = Some(needed()?.parse().map_err(quantity)?);
        }
        "transport" => {
            into.transport = Some(needed()?.parse().map_err(OptionError::Transport)?);
        }
        "names" => into.names = Some(needed()?.parse().map_err(OptionError::Names)?),
        "order" => into.order = Some(needed()?.parse::<Order>().map_err(OptionError::Order)?),
        "commit" => {
            into.commit = Some(quantity::parse_commit(needed()?).map_err(quantity)?);
        }
        "log" => into.log = Some(needed()?.parse().map_err(OptionError::Log)?),
        "record" => into.record = Some(absolute(needed()?)?),
        "metrics" => into.metrics = Some(needed()?.parse().map_err(OptionError::Metrics)?),
        "log_size" | "log-size" => into.log_size = Some(needed()?.parse().map_err(quantity)?),
        "dirty_expire" | "dirty-expire" => {
            let age = quantity::parse_dirty_expire(needed()?).map_err(quantity)?;
            into.dirty_expire = Some(age);
        }
        "lane_users" | "lane-users" => {
            into.lane_users = Some(needed()?.parse().map_err(OptionError::LaneUsers)?);
        }
        "write_back" | "write-back" => {
            let policy = needed()?.parse::<WriteBackPolicy>().map_err(OptionError::WriteBack)?;
            into.write_back = Some(policy);
        }
        "write_back_interval" | "write-back-interval" => {
            let interval = quantity::parse_write_back_interval(needed()?).map_err(quantity)?;
            into.write_back_interval = Some(interval);
        }
        "dirty_max" | "dirty-max" => {
            into.dirty_max = Some(quantity::parse_dirty_max(needed()?).map_err(quantity)?);
        }
        "dirty_background" | "dirty-background" => {
            let percent = quantity::parse_dirty_background(needed()?).map_err(quantity)?;
            into.dirty_background = Some(percent);
        }
        _ => match into.bucket.set(name, value) {
            Ok(true) => {}
            Ok(false) => return Err(OptionError::Unknown(name.to_owned())),
            Err(error) => return Err(OptionError::Bucket { name: name.to_owned(), error }),
        },
    }
    Ok(())
}

fn absolute(path: &str) -> Result<PathBuf, OptionError> {
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(OptionError::Record(path.to_owned())),
    }
}

/// Options without a value. False if `name` is none of them.
fn parse_switch(name: &str, value: Option<&str>, into: &mut Layer) -> Result<bool, OptionError> {
    match (name, value) {
        // mount(8) does not pass on these words without a value.
        ("dev", Some(value)) => {
            into.dev = Some(on_or_off(name, value)?);
            return Ok(true);
        }
        ("suid", Some(value)) => {
            into.suid = Some(on_or_off(name, value)?);
            return Ok(true);
        }
        _ => {}
    }
    match name {
        "ro" => into.read_only = Some(true),
        "rw" => into.read_only = Some(false),
        "norecovery" | "noload" => into.no_recovery = Some(true),
        "allow_other" => into.allow_other = Some(true),
        "direct_io" => into.direct_io = Some(true),
        "lane" => into.lane = Some(true),
        "nolane" => into.lane = Some(false),
        "dev" => into.dev = Some(true),
        "nodev" => into.dev = Some(false),
        "suid" => into.suid = Some(true),
        "nosuid" => into.suid = Some(false),
        "exec" => into.exec = Some(true),
        "noexec" => into.exec = Some(false),
        "atime" => into.atime = Some(true),
        "noatime" => into.atime = Some(false),
        _ if NO_EFFECT.contains(&name) => {}
        _ => return Ok(false),
    }
    match value {
        Some(_) => Err(OptionError::UnexpectedValue(name.to_owned())),
        None => Ok(true),
    }
}

fn on_or_off(name: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(OptionError::NotOnOrOff(name.to_owned())),
    }
}

/// mount(8): comments of other programs, which a helper must not look at.
fn is_comment(name: &str) -> bool {
    name == "comment"
        || name.starts_with("x-")
        || name.starts_with("X-")
        || name.starts_with("uhelper")
        || name.starts_with("helper")
}

/// Cuts at commas that are not escaped and removes the escapes.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut escaped = false;
    for letter in list.chars() {
        if escaped || (letter != ',' && letter != '\\') {
            options.last_mut().expect("starts with one and only grows").push(letter);
            escaped = false;
        } else if letter == '\\' {
            escaped = true;
        } else {
            options.push(String::new());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_fuse::Transport;

    use super::*;
    use crate::quantity::Size;
    use crate::settings::TransportChoice;

    fn layer(list: &str) -> Result<Layer, OptionError> {
        let mut layer = Layer::default();
        parse(list, Unknown::Refuse, &mut layer).map(|()| layer)
    }

    #[test]
    fn fuse_options_are_accepted() {
        let layer =
            layer("ro,allow_other,direct_io,nodev,suid,noexec,noatime,fsname=a\\,b").unwrap();
        assert_eq!(layer.read_only, Some(true));
        assert_eq!(layer.allow_other, Some(true));
        assert_eq!(layer.direct_io, Some(true));
        assert_eq!((layer.dev, layer.suid), (Some(false), Some(true)));
        assert_eq!((layer.exec, layer.atime), (Some(false), Some(false)));
        assert_eq!(layer.fsname.as_deref(), Some("a,b"));
    }

    #[test]
    fn weirs_own_options_take_values() {
        let layer =
            layer("fetch=async-bg,memory=1G,patch_memory=8M,dirty_expire=5s,entry_timeout=1.5")
                .unwrap();
        assert_eq!(layer.fetch, Some(FetchPolicy::AsyncBackground));
        assert_eq!(layer.memory, Some(Size(1 << 30)));
        assert_eq!(layer.patch_memory, Some(Size(8 << 20)));
        assert_eq!(layer.dirty_expire, Some(Duration::from_secs(5)));
        assert_eq!(layer.entry_timeout, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn write_back_can_be_chosen() {
        let chosen =
            layer("write_back=adaptive,write_back_interval=500ms,dirty_max=30,record=/r").unwrap();
        assert_eq!(chosen.record, Some("/r".into()));
        assert!(layer("metrics=[::1]:9338").unwrap().metrics.is_some());
        assert!(matches!(layer("metrics=nowhere"), Err(OptionError::Metrics(_))));
        assert_eq!(layer("dirty_background=5").unwrap().dirty_background, Some(5));
        assert_eq!(chosen.write_back, Some(WriteBackPolicy::Adaptive));
        assert_eq!(chosen.write_back_interval, Some(Duration::from_millis(500)));
        assert_eq!(chosen.dirty_max, Some(30));
    }

    #[test]
    fn the_order_can_be_chosen() {
        let chosen = layer("order=all,commit=2s").unwrap();
        assert_eq!((chosen.order, chosen.commit), (Some(Order::All), Some(Duration::from_secs(2))));
        assert_eq!(layer("order=sync").unwrap().order, Some(Order::Sync));
        assert!(matches!(layer("order=some"), Err(OptionError::Order(_))));
        assert!(matches!(layer("commit=5"), Err(OptionError::Quantity { .. })));
    }

    #[test]
    fn the_transport_can_be_chosen() {
        for (text, transport) in [
            ("auto", None),
            ("device", Some(Transport::Device)),
            ("io-uring", Some(Transport::IoUring)),
        ] {
            let chosen = layer(&format!("transport={text}")).unwrap().transport;
            assert_eq!(chosen, Some(TransportChoice(transport)));
        }
    }

    #[test]
    fn dev_and_suid_have_a_form_that_mount_8_passes_on() {
        let asked = layer("rw,dev=on,suid=on").unwrap();
        assert_eq!((asked.dev, asked.suid), (Some(true), Some(true)));
        let asked = layer("dev,dev=off,suid=on,nosuid").unwrap();
        assert_eq!((asked.dev, asked.suid), (Some(false), Some(false)));
    }

    #[test]
    fn options_that_mount_8_repeats_are_accepted_by_a_remount() {
        let list = "ro,nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions";
        assert!(asks_for_remount(list) && !asks_for_remount("ro,x-remount,fsname=remount"));
        let mut wanted = Layer::default();
        parse_for_remount(list, Unknown::Refuse, &mut wanted).unwrap();
        assert_eq!((wanted.read_only, wanted.dev), (Some(true), Some(false)));
        assert!(parse_for_remount("remount,nonsense", Unknown::Refuse, &mut wanted).is_err());
    }

    #[test]
    fn the_last_one_counts() {
        assert_eq!(layer("ro,rw").unwrap().read_only, Some(false));
        assert_eq!(layer("memory=1G,memory=2G").unwrap().memory, Some(Size(2 << 30)));
    }

    #[test]
    fn options_for_fstab_have_no_effect() {
        let noise = "defaults,noauto,user,nofail,_netdev,x-systemd.automount,X-a=b,comment=x y,,";
        assert_eq!(layer(noise).unwrap(), Layer::default());
        assert_eq!(layer("").unwrap(), Layer::default());
    }

    #[test]
    fn other_options_are_refused_by_name() {
        assert_eq!(layer("rw,nonsense"), Err(OptionError::Unknown("nonsense".into())));
        assert_eq!(layer("nonsense=1"), Err(OptionError::Unknown("nonsense".into())));
        assert_eq!(layer("ro=1"), Err(OptionError::UnexpectedValue("ro".into())));
        assert_eq!(layer("memory"), Err(OptionError::NoValue("memory".into())));
        assert!(matches!(layer("transport=pigeon"), Err(OptionError::Transport(_))));
        assert_eq!(layer("dev=yes"), Err(OptionError::NotOnOrOff("dev".into())));
        assert_eq!(layer("memory="), Err(OptionError::NoValue("memory".into())));
        assert!(matches!(layer("memory=many"), Err(OptionError::Quantity { .. })));
        assert!(matches!(layer("fetch=never"), Err(OptionError::Fetch(_))));
        assert!(matches!(layer("write_back=eager"), Err(OptionError::WriteBack(_))));
        assert!(matches!(layer("write_back_interval=1h"), Err(OptionError::Quantity { .. })));
        assert!(matches!(layer("dirty_max=51"), Err(OptionError::Quantity { .. })));
        assert!(matches!(layer("dirty_background=50"), Err(OptionError::Quantity { .. })));
        assert_eq!(layer("record=r"), Err(OptionError::Record("r".into())));
        assert!(matches!(layer("dirty_expire=5"), Err(OptionError::Quantity { .. })));
        for (name, reason) in UNSUPPORTED {
            let error = layer(&format!("{name}=1")).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn sloppy_ignores_only_unknown_options() {
        let mut layer = Layer::default();
        assert!(parse("nonsense,ro", Unknown::Ignore, &mut layer).is_ok());
        assert_eq!(layer.read_only, Some(true));
        assert!(parse("memory=many", Unknown::Ignore, &mut layer).is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(list in "[a-z_=,\\\\.0-9 é-]{0,60}") {
            for unknown in [Unknown::Refuse, Unknown::Ignore] {
                let _ = parse(&list, unknown, &mut Layer::default());
            }
        }
    }
}
