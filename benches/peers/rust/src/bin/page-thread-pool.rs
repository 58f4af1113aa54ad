//! The published page server on a thread pool. The main thread accepts and counts connections. A worker sleeps, reads
//! the file and writes the answer, all with blocking calls.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::{fs, thread};

use polyserve_peers::announce;
use polyserve_peers::page::{Page, answer, answered};

fn main() -> io::Result<()> {
    let (args, page) = Page::read()?;
    let listener = TcpListener::bind(args.listen)?;
    let (connections, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..args.workers {
        let receiver: Arc<Mutex<mpsc::Receiver<(TcpStream, u64)>>> = Arc::clone(&receiver);
        let next = move || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        thread::spawn(move || {
            while let Ok((stream, nth)) = next() {
                let _ = serve(stream, nth, page); // the client has disconnected
            }
        });
    }
    announce(listener.local_addr()?)?;
    for (stream, nth) in listener.incoming().zip(1..) {
        connections.send((stream?, nth)).map_err(io::Error::other)?;
    }
    Ok(())
}

fn serve(mut stream: TcpStream, nth: u64, page: &Page) -> io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request)?;
    if let Some(wait) = page.wait(nth) {
        thread::sleep(wait);
    }
    let content = fs::read(&page.file)?;
    stream.write_all(&answer(&request[..length], &content))?;
    answered();
    Ok(())
}
