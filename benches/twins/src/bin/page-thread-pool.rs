//! Article C on a thread pool: the main thread accepts and counts connections, and each is a job. A worker sleeps, reads
//! the file and writes the answer, all with blocking calls.
//!
//! The pool is that of article A, without lines. What the listing's pool has beyond that is not known.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use polyserve_twins::page::{PageFlags, answer};
use polyserve_twins::pool::ThreadPool;
use polyserve_twins::{announce, answered};

fn main() -> io::Result<()> {
    let (args, page) = PageFlags::read()?;
    let listener = TcpListener::bind(args.listen)?;
    let pool = ThreadPool::new(args.workers, false);
    announce(&mut io::stdout(), listener.local_addr()?)?;
    for (stream, nth) in listener.incoming().zip(1..) {
        let stream = stream?;
        pool.execute(move || {
            let _ = serve(stream, nth, page); // the client has disconnected
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream, nth: u64, page: &PageFlags) -> io::Result<()> {
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
