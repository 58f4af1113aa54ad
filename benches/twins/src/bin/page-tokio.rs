//! Article C on tokio. Each connection is a task. It uses tokio's timer, and tokio's file API, which
//! reads on a separate thread pool.

use std::io;

use polyserve_twins::page::{PageFlags, answer};
use polyserve_twins::{announce, answered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

fn main() -> io::Result<()> {
    let (args, page) = PageFlags::read()?;
    let runtime = Builder::new_multi_thread().worker_threads(args.workers).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(args.listen).await?;
        announce(&mut io::stdout(), listener.local_addr()?)?;
        let mut count = 0;
        loop {
            let (stream, _) = listener.accept().await?;
            count += 1;
            let nth = count;
            tokio::spawn(async move {
                let _ = serve(stream, nth, page).await; // the client has disconnected
            });
        }
    })
}

async fn serve(mut stream: TcpStream, nth: u64, page: &PageFlags) -> io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    if let Some(wait) = page.wait(nth) {
        tokio::time::sleep(wait).await;
    }
    let content = tokio::fs::read(&page.file).await?;
    stream.write_all(&answer(&request[..length], &content)).await?;
    answered();
    Ok(())
}
