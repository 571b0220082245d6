//! Asks one thing of a path, and prints the answer or the error with its kind: `ask state|sync|sync-mount|status|promise|promise-later PATH`. It is the
//! program by which tests/e2e/client.sh sees what calls do with strange paths, with dead daemons, and for other users.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().collect::<Vec<_>>();
    let [_, question, path] = &arguments[..] else {
        eprintln!("usage: ask state|sync|sync-mount|status|promise|promise-later PATH");
        return ExitCode::from(2);
    };
    match ask(&question.to_string_lossy(), Path::new(path)) {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}: {error}", kind(&error));
            ExitCode::FAILURE
        }
    }
}

fn ask(question: &str, path: &Path) -> Result<String, weir::Error> {
    match question {
        "state" => Ok(format!("{:?}", weir::state(path)?)),
        "sync" => weir::sync(path).map(|()| "synced".to_owned()),
        "sync-mount" => weir::Mount::of(path)?.sync().map(|()| "synced".to_owned()),
        "status" => Ok(weir::Mount::of(path)?.status()?.message().to_string()),
        _ => {
            let file =
                File::open(path).map_err(|error| weir::Error::Path { path: path.into(), error })?;
            let promise = weir::promise(&file)?;
            if question == "promise-later" {
                println!("taken");
                // What happens to the mount meanwhile is what the test is about.
                let _ = std::io::stdin().read_line(&mut String::new());
            }
            promise.wait().map(|()| "kept".to_owned())
        }
    }
}

/// What a program decides by.
fn kind(error: &weir::Error) -> &'static str {
    match error {
        weir::Error::Path { .. } => "Path",
        weir::Error::NotMounted { .. } => "NotMounted",
        weir::Error::Denied { .. } => "Denied",
        weir::Error::Unordered { .. } => "Unordered",
        weir::Error::Ended { .. } => "Ended",
        weir::Error::Unreachable { .. } => "Unreachable",
        weir::Error::NotUnderstood { .. } => "NotUnderstood",
        weir::Error::Failed { .. } => "Failed",
        _ => "other",
    }
}
