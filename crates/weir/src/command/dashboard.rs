//! `weir dashboard`: all mounts on one web page, which this command serves.
//!
//! `page.html`, `page.css` and `page.js` are the page, as they are; it asks for `/api/mounts` each second. `watch` asks the
//! daemons.
//!
//! Invariants: nothing that is served comes from elsewhere, and the page is told to run nothing but its own script; what
//! daemons say is data, never HTML. On a loopback address only this user and root are answered, as on a daemon's control
//! socket.

mod watch;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use crate::cli::dashboard::DashboardArguments;
use crate::failure::Failure;
use crate::http::{Hosts, Listener, Request, Response, client, is_local};

use watch::Watch;

const HTML: &str = include_str!("dashboard/page.html");
const CSS: &str = include_str!("dashboard/page.css");
const JS: &str = include_str!("dashboard/page.js");

/// What the browser may do with the page.
const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
];

/// Shown in the tab of a browser.
const ICON: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3' \
                    fill='#0b5c8a'/><path d='M2 5c2-2 4 2 6 0s4 2 6 0M2 9c2-2 4 2 6 0s4 2 6 0' fill='none' stroke='#fff' \
                    stroke-width='1.6'/></svg>";

/// Serves the page until the command is interrupted.
pub fn run(arguments: &DashboardArguments) -> Result<ExitCode, Failure> {
    let listener = Listener::bind(arguments.listen)?;
    let address = listener.address();
    let watch = Watch::start()
        .map_err(|error| Failure::Refused(format!("cannot start a thread: {error}")))?;
    let said = writeln!(io::stdout(), "http://{address}/");
    if let Err(error) = said
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(Failure::Refused(format!("cannot write to standard output: {error}")));
    }
    listener.serve(None, Hosts::AddressesOnly, move |request| answer(request, address, &watch));
    Ok(ExitCode::SUCCESS)
}

fn answer(request: &Request<'_>, server: SocketAddr, watch: &Watch) -> Response {
    if is_local(server) && !is_admitted(client::user(request.client, server)) {
        let why = "this page is shown to the user who runs 'weir dashboard', and to root\n";
        return Response::refusal(403, why);
    }
    let response = match request.path {
        "/" => Response::new(200, "text/html; charset=utf-8", HTML),
        "/page.css" => Response::new(200, "text/css; charset=utf-8", CSS),
        "/page.js" => Response::new(200, "text/javascript; charset=utf-8", JS),
        "/icon.svg" => Response::new(200, "image/svg+xml", ICON),
        "/api/mounts" => Response::new(200, "application/json", watch.shown()),
        _ => Response::not_found(),
    };
    response.with(HEADERS)
}

/// Whether a client's user may see what this user sees.
fn is_admitted(user: Option<u32>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    user.is_some_and(|user| user == 0 || user == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for text in [HTML, CSS, JS] {
            for foreign in ["http://", "https://", "//cdn", "@import", "url("] {
                let found = text.replace("http://www.w3.org/2000/svg", "").contains(foreign);
                assert!(!found, "{foreign}");
            }
        }
        // Text becomes HTML in no way.
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!JS.contains(way), "{way}");
        }
        for way in ["<style", " style=", "onclick", "onload", "onerror", "javascript:"] {
            assert!(!HTML.contains(way), "{way}");
        }
    }

    #[test]
    fn other_users_are_refused() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_admitted(Some(own)) && is_admitted(Some(0)));
        assert!(!is_admitted(Some(own + 1)) && !is_admitted(None));
    }
}
