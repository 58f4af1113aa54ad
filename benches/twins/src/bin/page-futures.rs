//! Article C on the thread pool of the `futures` crate. Each connection is a future, which blocks its
//! thread, because the crate has neither timers nor sockets.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::{fs, thread};

use futures_executor::ThreadPool;
use polyserve_twins::page::{PageFlags, answer};
use polyserve_twins::{announce, answered};

fn main() -> io::Result<()> {
    let (args, page) = PageFlags::read()?;
    let listener = TcpListener::bind(args.listen)?;
    let pool = ThreadPool::builder().pool_size(args.workers).create()?;
    announce(&mut io::stdout(), listener.local_addr()?)?;
    for (stream, nth) in listener.incoming().zip(1..) {
        let stream = stream?;
        pool.spawn_ok(async move {
            let _ = serve(stream, nth, page).await; // the client has disconnected
        });
    }
    Ok(())
}

async fn serve(mut stream: TcpStream, nth: u64, page: &PageFlags) -> io::Result<()> {
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
