//! actix-web: a single-threaded runtime per worker, and one thread that accepts connections.

use std::io;

use actix_web::web::{Bytes, Data, Path, resource};
use actix_web::{App, HttpResponse, HttpServer, web};
use polyserve_peers::{Args, Entities, Put, announce};

#[actix_web::main]
async fn main() -> io::Result<()> {
    let Args { workers, listen, .. } = Args::without_tls()?;
    let entities = Data::new(Entities::shared());
    let app = move || {
        App::new()
            .app_data(Data::clone(&entities))
            .service(resource("/").route(web::put().to(put)))
            .service(resource("/{id}").route(web::get().to(get)).route(web::head().to(get)))
    };
    let server = HttpServer::new(app).workers(workers).tcp_nodelay(true).disable_signals().bind(listen)?;
    let addrs = server.addrs();
    let server = server.run();
    addrs.into_iter().try_for_each(announce)?;
    server.await
}

async fn get(entities: Data<&'static Entities>, id: Path<i64>) -> HttpResponse {
    match entities.get(*id) {
        Some(json) => HttpResponse::Ok().content_type("application/json").body(json),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn put(entities: Data<&'static Entities>, body: Bytes) -> HttpResponse {
    match entities.put(&body) {
        Ok(Put::Created(path)) => HttpResponse::Created().insert_header(("Location", path)).finish(),
        Ok(Put::Replaced) => HttpResponse::Ok().finish(),
        Err(_) => HttpResponse::BadRequest().finish(),
    }
}
