//! [`Traced`]: sends the requests of the client library, and notes what became of each.
//!
//! The library's errors don't tell an answer to our request from one to its request for credentials, nor
//! whether anything was sent. A [`Trace`] in the extensions of our request does.

use super::super::errors::Answer;
use crate::drivers::http_connection::never_connected;
use async_trait::async_trait;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What became of one request, as far as this side knows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Fate {
    /// Nothing was sent, and nothing will be.
    #[default]
    NotSent,
    /// It may have reached the server.
    Sent,
    /// The server answered.
    Answered(Answer),
}

/// The fate of one request. Shared by the call and the transport.
#[derive(Clone, Default, Debug)]
pub(super) struct Trace(Arc<Mutex<Fate>>);

impl Trace {
    pub(super) fn fate(&self) -> Fate {
        self.lock().clone()
    }

    /// Each change is one assignment, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Fate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes clients that trace requests, and send them by this one, which follows no redirect: a 303 would turn
/// a PUT into a GET, whose answer would count as that of the PUT.
#[derive(Debug)]
pub(super) struct TracedConnector(pub(super) reqwest::Client);

impl HttpConnector for TracedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let credentials = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Traced { objects: HttpClient::new(self.0.clone()), credentials }))
    }
}

#[derive(Debug)]
struct Traced {
    objects: HttpClient,
    /// The client of the library, with its options: metadata of a machine are read in clear text.
    credentials: HttpClient,
}

#[async_trait]
impl HttpService for Traced {
    /// # Cancel safety
    /// Dropped, the fate is [`Fate::Sent`] unless there was an answer.
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(trace) = request.extensions().get::<Trace>().cloned() else {
            // A request for credentials.
            return self.credentials.execute(request).await;
        };
        {
            let mut fate = trace.lock();
            // (I7) A second copy would be refused because of the first, which then seems not applied.
            if *fate != Fate::NotSent {
                let repeated = io::Error::other("the client library would send a request twice");
                return Err(HttpError::new(HttpErrorKind::Unknown, repeated));
            }
            *fate = Fate::Sent;
        }
        match self.objects.execute(request).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let (status, headers) = (parts.status, parts.headers.clone());
                if status.is_success() {
                    *trace.lock() = Fate::Answered(Answer::of(status.as_u16(), headers, &[]));
                    return Ok(HttpResponse::from_parts(parts, body));
                }
                // The status counts even if the rest of the answer is lost.
                let body = body.bytes().await.unwrap_or_default();
                *trace.lock() = Fate::Answered(Answer::of(status.as_u16(), headers, &body));
                Ok(HttpResponse::from_parts(parts, body.into()))
            }
            Err(error) => {
                if never_connected(&error) {
                    *trace.lock() = Fate::NotSent;
                }
                Err(error)
            }
        }
    }
}
