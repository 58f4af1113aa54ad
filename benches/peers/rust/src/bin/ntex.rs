//! ntex on tokio: a single-threaded runtime per worker, and one thread that accepts connections. ntex does not set
//! TCP_NODELAY. On Linux a connection inherits it from the listener.

use std::io;
use std::net::TcpListener;

use ntex::util::Bytes;
use ntex::web::types::{Path, State};
use ntex::web::{self, App, HttpResponse, HttpServer};
use polyserve_peers::{Args, Entities, Put, announce};
use socket2::SockRef;

#[ntex::main]
async fn main() -> io::Result<()> {
    let Args { workers, listen, .. } = Args::without_tls()?;
    let entities = Entities::shared();
    let listener = TcpListener::bind(listen)?;
    SockRef::from(&listener).set_tcp_nodelay(true)?;
    let addr = listener.local_addr()?;
    let app = async move || {
        App::new()
            .state(entities)
            .service(web::resource("/").route(web::put().to(put)))
            .service(web::resource("/{id}").route(web::get().to(get)).route(web::head().to(get)))
    };
    let server = HttpServer::new(app).workers(workers).disable_signals().listen(listener)?.run();
    announce(addr)?;
    server.await
}

async fn get(entities: State<&'static Entities>, id: Path<i64>) -> HttpResponse {
    match entities.get(*id) {
        Some(json) => HttpResponse::Ok().content_type("application/json").body(json),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn put(entities: State<&'static Entities>, body: Bytes) -> HttpResponse {
    match entities.put(&body) {
        Ok(Put::Created(path)) => HttpResponse::Created().header("Location", path).finish(),
        Ok(Put::Replaced) => HttpResponse::Ok().finish(),
        Err(_) => HttpResponse::BadRequest().finish(),
    }
}
