//! The peers of a unix socket or of a TCP port: a thread and an ingress for each, so that none waits for another.

use super::connection::{self, Stream};
use super::pump::{Deadline, Pump, Tally};
use super::{Ended, Outcome, Setup, format_of};
use crate::cli::CliError;
use crate::source::{Feed, Position, Trail};
use serde_json::json;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Between two looks for new peers and signals.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes read at once from a peer.
const BLOCK_BYTES: usize = 64 * 1_024;
/// The socket's name before it has its place.
const SOCKET_ASIDE: &str = "s";
/// Directories left by others that are passed by.
const ASIDE_MAX: u32 = 100;
/// How long one that was turned away may read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many of those are remembered; the oldest goes first.
const FAREWELLS_MAX: usize = 64;

/// Where peers arrive.
pub(super) enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener, SocketAddr),
}

/// A unix socket's file, removed when the listener goes, if it is still ours.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|about| about.ino() == self.inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{} stays behind: {error}", self.path.display());
        }
    }
}

impl Listener {
    /// The socket is bound in a directory that only this user can enter, gets its mode there, and is then moved to its
    /// place: at no moment can anyone else reach it. What lies at that place already is replaced if it is a socket that
    /// nobody listens on.
    pub(super) fn unix(path: &Path) -> Result<Listener, CliError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(CliError::Unavailable(format!("route.path = {}: {error}", path.display()))),
            Ok(about) if !about.file_type().is_socket() => {
                let path = path.display();
                return Err(CliError::Usage(format!(
                    "route.path = {path} is there and is no socket; remove it, or give another path"
                )));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Ok(_) => {
                    let path = path.display();
                    return Err(CliError::Unavailable(format!(
                        "route.path = {path}: another process listens there; stop it, or give another path"
                    )));
                }
                // Whether somebody listens cannot be told: it is not ours to replace.
                Err(error) => {
                    let path = path.display();
                    return Err(CliError::Unavailable(format!("route.path = {path} is a socket in use: {error}")));
                }
            },
        }
        Listener::bind_unix(path)
            .map_err(|error| CliError::Unavailable(format!("route.path = {}: {error}", path.display())))
    }

    fn bind_unix(path: &Path) -> io::Result<Listener> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let aside = make_aside(parent)?;
        let made = Listener::bind_aside(&aside, path);
        let removed = fs::remove_dir_all(&aside);
        let (listener, inode) = made?;
        removed?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, SocketFile { path: path.to_path_buf(), inode }))
    }

    fn bind_aside(aside: &Path, path: &Path) -> io::Result<(UnixListener, u64)> {
        let socket = aside.join(SOCKET_ASIDE);
        // The system bounds the path that is bound, and that of the directory aside is longer than the socket's own: it is
        // named by its descriptor.
        let directory = fs::File::open(aside)?;
        let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let short = if by_descriptor.is_dir() { by_descriptor.join(SOCKET_ASIDE) } else { socket.clone() };
        let listener = UnixListener::bind(short)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(&socket)?.ino();
        fs::rename(&socket, path)?;
        Ok((listener, inode))
    }

    pub(super) fn tcp(address: SocketAddr) -> Result<Listener, CliError> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Listener::Tcp(listener, address))
        };
        bind().map_err(|error: io::Error| {
            CliError::Unavailable(format!("route.listen = \"{address}\": {error}; give a free port of this host"))
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Listener::Unix(_, file) => format!("unix socket {}", file.path.display()),
            Listener::Tcp(_, address) => format!("tcp {address}"),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Stream::Unix(stream))
            }
            Listener::Tcp(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                // Answers are short and wanted at once.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

/// A directory of this user's own beside the socket. One that a killed process left there, whose number was the same, is
/// not touched: in another container that process may be alive.
fn make_aside(parent: &Path) -> io::Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let aside = parent.join(format!(".fencepost-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&aside) {
            Ok(()) => return Ok(aside),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < ASIDE_MAX => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Serves peers until a signal comes, then waits for those that are there to drain.
pub(super) fn route(listener: Listener, setup: &Setup<'_>) -> Outcome {
    std::thread::scope(|scope| {
        let mut open: Vec<ScopedJoinHandle<'_, ()>> = Vec::new();
        let mut farewells = Farewells::default();
        let mut numbers = 1u64..;
        let ended = loop {
            if setup.signals.asked_to_stop() {
                break Ended::BySignal;
            }
            if !setup.router.is_healthy() {
                break Ended::Broken("the router failed; see its log".into());
            }
            setup.reload_if_asked();
            reap(&mut open);
            farewells.look_after();
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(LOOK_INTERVAL);
                    continue;
                }
                // A peer that is gone already, or no descriptor is free just now: the others go on.
                Err(error) => {
                    log::warn!("a connection was not taken: {error}");
                    std::thread::sleep(LOOK_INTERVAL);
                    continue;
                }
            };
            let most = setup.config.route.connections_max;
            let ingress = if open.len() < most { setup.router.ingress() } else { None };
            let Some(ingress) = ingress else {
                Tally::add(&setup.tally.turned_away, 1);
                farewells.turn_away(stream, most);
                continue;
            };
            Tally::add(&setup.tally.connections, 1);
            let number = numbers.next().unwrap_or(0);
            let trail = Trail::new(Position::default(), setup.config.settle.window);
            let pump = Pump::new(setup, ingress, trail);
            let feed = Feed::new(format_of(setup.config), setup.config.route.line_bytes_max, BLOCK_BYTES);
            let thread = std::thread::Builder::new().name(format!("fencepost-peer-{number}"));
            match thread.spawn_scoped(scope, move || connection::serve(number, stream, feed, pump, setup)) {
                Ok(thread) => open.push(thread),
                Err(error) => log::error!("no thread for connection {number}, it is closed: {error}"),
            }
        };
        // Nobody new finds the door; those inside drain within the limit.
        drop(listener);
        let mut deadline = Deadline::new(setup.shutdown_limit);
        deadline.left();
        while !open.is_empty() {
            reap(&mut open);
            std::thread::sleep(LOOK_INTERVAL);
        }
        Outcome { ended, deadline, resumed_after: None }
    })
}

/// Joins the threads that have ended.
fn reap(open: &mut Vec<ScopedJoinHandle<'_, ()>>) {
    for at in (0..open.len()).rev() {
        if open[at].is_finished() && open.swap_remove(at).join().is_err() {
            log::error!("a connection's thread panicked; its triggers are still delivered");
        }
    }
}

/// Peers that were turned away, kept for a moment: closing at once would take the answer from one that is still sending.
#[derive(Default)]
struct Farewells(VecDeque<(Stream, Instant)>);

impl Farewells {
    fn turn_away(&mut self, mut stream: Stream, most: usize) {
        let answer = json!({
            "error": "too_many_connections",
            "message": format!("{most} connections are open (route.connections_max); try again later"),
        });
        // A fresh connection's buffer takes a line; one that does not is closed all the same.
        let said = stream.set_nonblocking(true).and_then(|()| writeln!(stream, "{answer}"));
        if said.and_then(|()| stream.end_answers()).is_ok() {
            if self.0.len() == FAREWELLS_MAX {
                self.0.pop_front();
            }
            self.0.push_back((stream, Instant::now()));
        }
    }

    fn look_after(&mut self) {
        let mut bin = [0; 4_096];
        self.0.retain_mut(|(stream, since)| {
            let is_there = match stream.read(&mut bin) {
                Ok(count) => count > 0,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
            is_there && since.elapsed() < FAREWELL
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory whose socket has a path of so many bytes.
    fn place(bytes: usize) -> (PathBuf, PathBuf) {
        let base = std::env::temp_dir().join(format!("fp-listen-{}-{bytes}", std::process::id()));
        let dir = base.join("d".repeat(bytes - base.as_os_str().len() - 1 - "/in".len()));
        fs::create_dir_all(&dir).unwrap();
        (base, dir)
    }

    #[test]
    fn a_socket_whose_path_is_as_long_as_may_be_is_bound_and_nothing_stays_beside_it() {
        let (base, dir) = place(crate::config::SOCKET_PATH_BYTES_MAX);
        // A killed process of the same number was here.
        let left = dir.join(format!(".fencepost-{}-0", std::process::id()));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(SOCKET_ASIDE), "").unwrap();
        let path = dir.join("in");
        let listener = Listener::unix(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "the socket, and what was there");
        drop(listener);
        assert!(!path.exists());
        fs::remove_dir_all(base).unwrap();
    }
}
