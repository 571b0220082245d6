//! `weir documents`: man pages and shell completions, from the command line's own definition. Not shown in the help: packages are
//! built with it.
//!
//! Invariant: the same program writes the same bytes, wherever and whenever it runs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::aot::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{Cli, DocumentsArguments, mount_helper};
use crate::failure::Failure;

/// What the pages are a manual of.
const MANUAL: &str = "Weir Manual";

/// Writes them.
pub fn run(arguments: &DocumentsArguments) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    write_all(directory).map_err(|error| {
        let directory = directory.display();
        Failure::Refused(format!(
            "cannot write man pages and completions below {directory}: {error}"
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write_all(directory: &Path) -> io::Result<()> {
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let mut command = shown();
    command.build();
    write_page(&man, &command, "1", &see_also(&command, "weir"))?;
    for subcommand in command.get_subcommands() {
        let name = format!("weir-{}", subcommand.get_name());
        write_page(&man, subcommand, "1", &see_also(&command, &name))?;
    }
    let mut helper = mount_helper();
    helper.build();
    write_page(&man, &helper, "8", "weir(1), weir-mount(1), mount(8), fstab(5)")?;
    for (shell, name) in
        [(Shell::Bash, "weir.bash"), (Shell::Zsh, "_weir"), (Shell::Fish, "weir.fish")]
    {
        generate(shell, &mut shown(), "weir", &mut File::create(completions.join(name))?);
    }
    Ok(())
}

/// The command line without what help does not show.
fn shown() -> Command {
    let command = Cli::command();
    let mut bare = Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        bare = bare.long_about(about.clone());
    }
    if let Some(after) = command.get_after_long_help() {
        bare = bare.after_long_help(after.clone());
    }
    bare.subcommands(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned())
}

fn see_also(command: &Command, own: &str) -> String {
    let pages = command.get_subcommands().map(|one| format!("weir-{}", one.get_name()));
    let mut pages: Vec<String> =
        std::iter::once("weir".to_owned()).chain(pages).filter(|page| page != own).collect();
    pages.sort();
    let pages: Vec<String> = pages.iter().map(|page| format!("{page}(1)")).collect();
    format!("{}, mount.fuse.weir(8), mount.fuse3(8)", pages.join(", "))
}

fn write_page(directory: &Path, command: &Command, section: &str, see: &str) -> io::Result<()> {
    let page = Man::new(command.clone())
        .section(section)
        // No date, and not no argument.
        .date("\\&")
        .source(format!("Weir {}", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut file = File::create(directory.join(page.get_filename()))?;
    page.render_title(&mut file)?;
    page.render_name_section(&mut file)?;
    page.render_synopsis_section(&mut file)?;
    page.render_description_section(&mut file)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        page.render_options_section(&mut file)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut file)?;
    }
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut more = sections(&after);
    more.control("SH", ["SEE ALSO"]);
    more.text([roman(see)]);
    more.to_writer(&mut file)?;
    file.flush()
}

/// The text after the options: a line `HEADING:` begins a section, and the lines below it stay as they are.
fn sections(text: &str) -> Roff {
    let mut page = Roff::new();
    let mut is_open = false;
    for line in text.lines() {
        match line.strip_suffix(':').filter(|heading| is_heading(heading)) {
            Some(heading) => {
                if is_open {
                    page.control("EE", []);
                }
                page.control("SH", [heading]);
                page.control("EX", []);
                is_open = true;
            }
            None => {
                page.text([roman(line)]);
            }
        }
    }
    if is_open {
        page.control("EE", []);
    }
    page
}

fn is_heading(line: &str) -> bool {
    let words = line.split_once(" (").map_or(line, |(words, _)| words);
    words.starts_with(|letter: char| letter.is_ascii_uppercase())
        && !words.contains(|letter: char| letter.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options_and_sections() {
        let directory = std::env::temp_dir().join(format!("weir-documents-{}", std::process::id()));
        write_all(&directory).unwrap();
        let page = |name: &str| fs::read_to_string(directory.join("man").join(name)).unwrap();
        for command in shown().get_subcommands() {
            let name = format!("weir-{}.1", command.get_name());
            assert!(page(&name).contains(".SH \"EXIT STATUS\""), "{name}");
        }
        let mount = page("weir-mount.1");
        assert!(
            mount.contains("\\-\\-dirty\\-expire") && mount.contains(".SH \"CONFIGURATION FILES\"")
        );
        assert!(!page("weir.1").contains("documents"), "it is not for people");
        let helper = page("mount.fuse.weir.8");
        assert!(helper.contains(".SH \"MOUNT OPTIONS (-o)\"") && !helper.contains("CONFIGURATION"));
        for name in ["weir.bash", "_weir", "weir.fish"] {
            let text = fs::read_to_string(directory.join("completions").join(name)).unwrap();
            assert!(text.contains("dirty-expire") && !text.contains("documents"), "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn headings_are_lines_of_capitals() {
        assert!(is_heading("MOUNT(8) AND FSTAB(5)") && is_heading("MOUNT OPTIONS (-o)"));
        assert!(!is_heading("  EXAMPLES") && !is_heading("If so") && !is_heading(""));
    }
}
