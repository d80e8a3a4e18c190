//! A TCP proxy in front of a broker that passes bytes on, or swallows them: connections stay open and nothing arrives, as
//! behind a firewall that forgot them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a read waits before it looks whether to go on.
const LOOK: Duration = Duration::from_millis(50);

pub struct Proxy {
    pub address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_swallowing: AtomicBool,
    is_over: AtomicBool,
}

impl Proxy {
    /// In front of the broker at this address, on a port of its own.
    pub fn before(broker: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        listener.set_nonblocking(true).expect("a socket may");
        let state = Arc::new(State::default());
        let (shared, broker) = (Arc::clone(&state), broker.to_owned());
        std::thread::spawn(move || {
            // SeqCst throughout: a handful of orders, none of which may be early.
            while !shared.is_over.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((client, _)) => serve(client, &broker, &shared),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Proxy { address, state }
    }

    /// From now on nothing arrives, or everything does on connections that lost nothing. Those that did are closed.
    pub fn swallow(&self, is_set: bool) {
        self.state.is_swallowing.store(is_set, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}

fn serve(client: TcpStream, broker: &str, state: &Arc<State>) {
    // A broker that is away: the client sees a closed connection.
    let Ok(server) = TcpStream::connect(broker) else { return };
    for stream in [&client, &server] {
        stream.set_nonblocking(false).expect("a socket may");
        stream.set_nodelay(true).expect("a socket may");
        stream.set_read_timeout(Some(LOOK)).expect("a socket may");
    }
    let pairs = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
    for (from, to) in pairs {
        let (from, to, state) = (from.expect("a second handle"), to.expect("a second handle"), Arc::clone(state));
        std::thread::spawn(move || pass_on(from, to, &state));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut bytes = [0; 16_384];
    let mut has_lost = false;
    while !state.is_over.load(Ordering::SeqCst) {
        let is_swallowing = state.is_swallowing.load(Ordering::SeqCst);
        if has_lost && !is_swallowing {
            break;
        }
        match from.read(&mut bytes) {
            // While it swallows, a goodbye does not arrive either.
            Ok(0) if is_swallowing => {
                has_lost = true;
                std::thread::sleep(LOOK);
            }
            Ok(0) => break,
            Ok(_) if is_swallowing => has_lost = true,
            Ok(count) => {
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    // Either side may be gone already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
