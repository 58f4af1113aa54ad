//! Article C on async-std: a task for each connection. The file is read by the blocking `std::fs` inside the task, as in
//! the listing, so a worker of the runtime waits for it. The sleep is the runtime's.
//!
//! Deviations from the listing: none but those of the crate. `--workers` is ignored: the runtime has a thread per core.

use std::io;
use std::time::Duration;

use async_std::net::{TcpListener, TcpStream};
use async_std::prelude::*;
use async_std::task;
use polyserve_twins::page::{PageFlags, answer};
use polyserve_twins::{announce, answered};

#[async_std::main]
async fn main() -> io::Result<()> {
    let (args, page) = PageFlags::read()?;
    let listener = TcpListener::bind(args.listen).await?;
    announce(&mut io::stdout(), listener.local_addr()?)?;
    let mut count = 0;
    loop {
        let (stream, _) = listener.accept().await?;
        count += 1;
        let wait = page.wait(count);
        task::spawn(async move {
            let _ = serve(stream, wait, page).await; // the client has disconnected
        });
    }
}

async fn serve(mut stream: TcpStream, wait: Option<Duration>, page: &PageFlags) -> io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    if let Some(wait) = wait {
        task::sleep(wait).await;
    }
    let content = std::fs::read_to_string(&page.file)?; // blocking, as published
    stream.write_all(&answer(&request[..length], content.as_bytes())).await?;
    stream.flush().await?;
    answered();
    Ok(())
}
