//! What most properties use: a server under test, its clients, their requests, and services.

pub(super) use std::net::{SocketAddr, TcpStream};
pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use std::thread;
pub(super) use std::time::{Duration, Instant};

pub(super) use polyserve_core::http::StatusCode;
pub(super) use polyserve_core::{
    Answer, Echo, Entity, EntityRepo, EntityService, Reply, Request, ServerConfig, Service, Shape,
};
pub(super) use polyserve_serving::EVICTION_GRACE;

pub(super) use super::keep_alive::echo;
pub(super) use super::live::*;
pub(super) use super::loops::*;
pub(super) use super::services::*;
pub(super) use super::status_table::{ONE, entities};
pub(super) use super::subject::ServerSubject;
pub(super) use super::wire::*;
pub(super) use crate::NamedEntity;
pub(super) use crate::client::{Client, Ending, Response};
pub(super) use crate::property::{ChildSide, Outcome, attempts, in_child, needs, with_serving_child, within};
pub(super) use crate::repo::{LaterReference, Reference};
