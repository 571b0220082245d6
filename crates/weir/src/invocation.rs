//! The forms in which the command is started: by people, by mount(8) through mount.fuse3(8), and
//! by mount(8) as its helper `mount.weir`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, HelperRequest};
use crate::failure::Failure;
use crate::options::Unknown;

/// What to do instead of a command.
#[derive(Debug)]
pub enum Refusal {
    /// Print the requested text, and exit 0.
    Show(clap::Error),
    /// The command line makes no sense.
    Failure(Failure),
}

impl Refusal {
    /// Prints the text and returns the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Refusal::Show(help) => {
                // It is no failure if the reader closes the pipe early.
                let _ = help.print();
                ExitCode::SUCCESS
            }
            Refusal::Failure(failure) => failure.report(),
        }
    }
}

/// Reads a command line, the program's name first.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Refusal> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_else(|| "weir".into());
    let rest: Vec<OsString> = arguments.collect();
    let (arguments, helper) = if is_mount_helper(&program) {
        from_mount(&rest)?
    } else if is_bare_mount(&rest) {
        (prefixed("mount", &without_defaults(&rest)), HelperRequest::default())
    } else {
        (rest, HelperRequest::default())
    };
    let command = arguments.first().filter(|word| is_command(word)).cloned();
    let mut cli = Cli::try_parse_from([OsString::from("weir")].into_iter().chain(arguments))
        .map_err(|error| explain(error, command.as_deref()))?;
    if let Command::Mount(mount) = &mut cli.command {
        mount.helper = helper;
    }
    Ok(cli)
}

/// Whether mount(8) started us: by a link such as /sbin/mount.weir or /sbin/mount.fuse.weir.
fn is_mount_helper(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name.as_bytes().starts_with(b"mount."))
}

/// `weir SOURCE MOUNTPOINT [-o ...]`, which is what mount.fuse3(8) runs.
fn is_bare_mount(rest: &[OsString]) -> bool {
    let [first, _, more @ ..] = rest else { return false };
    // A misspelt command must not be taken for a directory.
    let is_source = first.as_bytes().contains(&b'/') || more.iter().any(|word| word == "-o");
    is_source && !first.as_bytes().starts_with(b"-") && !is_command(first)
}

/// mount.fuse3(8) appends `dev` and `suid` to the options unless `nodev` and `nosuid` are given:
/// the user did not ask for them.
fn without_defaults(rest: &[OsString]) -> Vec<OsString> {
    let mut rest = rest.to_vec();
    let lists = rest.iter_mut().skip_while(|word| *word != "-o").skip(1);
    for list in lists.take(1) {
        let Some(mut options) = list.to_str() else { continue };
        for word in ["suid", "dev"] {
            match options.strip_suffix(word) {
                Some("") => options = "",
                Some(before) => options = before.strip_suffix(',').unwrap_or(options),
                None => {}
            }
        }
        *list = options.into();
    }
    rest
}

fn is_command(word: &OsStr) -> bool {
    Cli::command()
        .get_subcommands()
        .any(|known| known.get_name_and_visible_aliases().iter().any(|name| word == *name))
}

fn prefixed(command: &str, rest: &[OsString]) -> Vec<OsString> {
    [OsString::from(command)].into_iter().chain(rest.iter().cloned()).collect()
}

/// `mount.weir SOURCE MOUNTPOINT [-sfnvrw] [-N ns] [-t type] [-o options]`, mount(8), section
/// EXTERNAL HELPERS.
fn from_mount(rest: &[OsString]) -> Result<(Vec<OsString>, HelperRequest), Refusal> {
    let mut helper = HelperRequest::default();
    let mut arguments = vec![OsString::from("mount")];
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let Some(flags) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
            arguments.push(word.clone());
            continue;
        };
        match flags {
            "o" => {
                arguments.push("-o".into());
                arguments.extend(words.next().cloned());
            }
            // The type is always the same.
            "t" => drop(words.next()),
            "N" => {
                let message = "mounting in another mount namespace is not supported: run weir \
                               there with 'nsenter'";
                return Err(Refusal::Failure(Failure::Usage(message.into())));
            }
            "h" | "-help" | "V" | "-version" => arguments.push(word.clone()),
            _ => {
                for flag in flags.chars() {
                    match flag {
                        's' => helper.unknown = Unknown::Ignore,
                        'f' => helper.fake = true,
                        'r' => arguments.push("--read-only".into()),
                        'n' | 'v' | 'w' => {}
                        _ => {
                            let message =
                                format!("unknown option '{}' of a mount helper", word.display());
                            return Err(Refusal::Failure(Failure::Usage(message)));
                        }
                    }
                }
            }
        }
    }
    Ok((arguments, helper))
}

/// Turns clap's paragraphs about a `command` into one line.
fn explain(error: clap::Error, command: Option<&OsStr>) -> Refusal {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Refusal::Show(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let message = "no command given: use mount, umount, sync, status or run; \
                           'weir --help' explains them";
            return Refusal::Failure(Failure::Usage(message.into()));
        }
        _ => {}
    }
    let text = error.render().to_string();
    let mut message = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        if !message.is_empty() {
            message.push_str(if line.starts_with("tip:") { "; " } else { " " });
        }
        message.push_str(line);
    }
    let help = match command {
        Some(command) => format!("weir {} --help", command.display()),
        None => "weir --help".to_owned(),
    };
    Refusal::Failure(Failure::Usage(format!("{message}; see '{help}'")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cli::MountArguments;

    fn parsed(words: &[&str]) -> Result<Cli, String> {
        parse(words.iter().map(OsString::from)).map_err(|refusal| match refusal {
            Refusal::Failure(failure) => {
                assert_eq!(failure.exit_status(), 2);
                failure.to_string()
            }
            Refusal::Show(error) => format!("shown: {error}"),
        })
    }

    fn mount(words: &[&str]) -> MountArguments {
        match parsed(words).unwrap().command {
            Command::Mount(mount) => *mount,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_form_for_people_is_understood() {
        let mount =
            mount(&["weir", "mount", "/a", "/b", "--memory", "1G", "-o", "ro", "-o", "dev"]);
        assert_eq!((mount.source, mount.mountpoint), (Some("/a".into()), PathBuf::from("/b")));
        assert_eq!(mount.options, ["ro", "dev"]);
        assert_eq!(mount.helper, HelperRequest::default());
    }

    #[test]
    fn the_form_of_mount_fuse3_is_understood() {
        let mount = mount(&["weir", "/a", "/b", "-o", "rw,dev,suid"]);
        assert_eq!((mount.source, mount.mountpoint), (Some("/a".into()), PathBuf::from("/b")));
        assert_eq!(mount.options, ["rw"]);
    }

    #[test]
    fn the_defaults_of_mount_fuse3_are_ignored() {
        for (given, asked) in [
            ("rw,dev,suid", "rw"),
            ("dev,suid", ""),
            ("rw,nodev,suid", "rw,nodev"),
            ("rw,nosuid,dev", "rw,nosuid"),
            ("rw,dev=on,dev,suid", "rw,dev=on"),
            // Since 2.39 util-linux passes on options that the user gave.
            ("rw,dev,dev,suid", "rw,dev"),
            ("rw,nosuid,nodev", "rw,nosuid,nodev"),
            ("fsname=nosuid,dev,suid", "fsname=nosuid"),
        ] {
            assert_eq!(mount(&["weir", "/a", "/b", "-o", given]).options, [asked], "{given}");
        }
    }

    #[test]
    fn mount_8_has_flags_of_its_own() {
        for program in ["/sbin/mount.weir", "mount.fuse.weir"] {
            let mount = mount(&[program, "/a", "/b", "-sn", "-f", "-t", "fuse.weir", "-o", "ro,x"]);
            assert_eq!(mount.helper, HelperRequest { unknown: Unknown::Ignore, fake: true });
            assert_eq!(mount.options, ["ro,x"]);
            assert!(mount.layer().is_ok());
        }
        assert!(mount(&["mount.weir", "/a", "/b", "-r"]).read_only);
        assert!(parsed(&["mount.weir", "/a", "/b", "-q"]).unwrap_err().contains("'-q'"));
        assert!(parsed(&["mount.weir", "/a", "/b", "-N", "/x"]).unwrap_err().contains("nsenter"));
    }

    #[test]
    fn source_may_be_left_to_the_configuration() {
        let bare = mount(&["weir", "mount", "--foreground", "--", "/mnt/data"]);
        assert_eq!((bare.source, bare.mountpoint), (None, PathBuf::from("/mnt/data")));
    }

    #[test]
    fn flags_count_over_options() {
        let mount = mount(&["weir", "mount", "/a", "/b", "--memory", "1G", "-o", "memory=2G,rw"]);
        let layer = mount.layer().unwrap();
        assert_eq!(layer.memory, Some(crate::quantity::Size(1 << 30)));
        assert_eq!(layer.read_only, Some(false));
    }

    #[test]
    fn mistakes_are_one_line_naming_the_thing() {
        for (words, expected) in [
            (&["weir"][..], "no command given"),
            (&["weir", "mount"], "<MOUNTPOINT>"),
            (&["weir", "mount", "/a", "/b", "/c"], "'/c'"),
            (&["weir", "mount", "/a", "/b", "--nonsense"], "'--nonsense'"),
            (&["weir", "mount", "/a", "/b", "--memory", "lots"], "'lots'"),
            (&["weir", "mount", "/a", "/b", "--memory"], "--memory"),
            (&["weir", "mount", "/a", "/b", "--fetch", "never"], "blocking, async-fg"),
            (&["weir", "mount", "/a", "/b", "--dirty-expire", "5"], "has no unit"),
            (&["weir", "mount", "/a", "/b", "--write-back", "eager"], "static or adaptive"),
            (&["weir", "mount", "/a", "/b", "--write-back-interval", "1h"], "from 10ms to 60s"),
            (&["weir", "mount", "/a", "/b", "--dirty-max", "51"], "from 1 to 50"),
            (&["weir", "mount", "/a", "/b", "--dirty-background", "50"], "from 1 to 49"),
            (&["weir", "mount", "/a", "/b", "--log-level", "loud"], "'loud'"),
            (&["weir", "mount", "/a", "/b", "--memory", "1G", "--memory", "2G"], "--memory"),
            (&["weir", "dance"], "'dance'"),
            (&["weir", "umont", "/a"], "'umount'"),
            (&["weir", "umount"], "<MOUNTPOINT>"),
            (&["weir", "run"], "<CMD>"),
            (&["weir", "run", "--nonsense", "ls"], "'--nonsense'"),
            (&["weir", "--nonsense"], "'--nonsense'"),
        ] {
            let message = parsed(words).unwrap_err();
            assert!(message.contains(expected), "{words:?}: {message}");
            assert!(!message.contains('\n') && message.contains("--help'"), "{message}");
        }
    }

    #[test]
    fn arguments_after_the_program_belong_to_it() {
        for (words, command, report) in [
            (&["weir", "run", "ls", "-l", "--report"][..], &["ls", "-l", "--report"][..], None),
            (&["weir", "run", "--", "-x", "--"], &["-x", "--"], None),
            (&["weir", "run", "--report", "ls"], &["ls"], Some(None)),
            (&["weir", "run", "--report=f", "--", "ls"], &["ls"], Some(Some(PathBuf::from("f")))),
        ] {
            let Command::Run(run) = parsed(words).unwrap().command else { panic!("{words:?}") };
            assert_eq!(
                (run.command, run.report),
                (command.iter().map(OsString::from).collect(), report)
            );
        }
    }

    #[test]
    fn help_and_version_are_shown() {
        for words in [&["weir", "--help"][..], &["weir", "mount", "--help"], &["weir", "-V"]] {
            assert!(parsed(words).unwrap_err().starts_with("shown: "), "{words:?}");
        }
    }
}
