//! Files: what a path beneath a root is, and the answer to a request for it.

pub(crate) mod anew;
mod answer;
mod coded;
mod load;
mod open;
mod render;
mod resolve;
mod roots;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};

pub(crate) use answer::{answer_hit, has_changed, plain_coding};
pub(crate) use open::open_path;
pub(crate) use render::apply_edits;
pub(crate) use resolve::{Failure, Mode};
pub(crate) use roots::{Root, Roots};

use self::resolve::{Found, Wanted};
use crate::cache::front::Hit;
use crate::cache::{Key, Resource};
use crate::config::{Settings, Site};
use crate::event_loop::Loop;
use crate::gate::{Asker, Client, Pass, Verdict};
use crate::handler::{directory, redirect};
use crate::response::{Body, Piece, Response};
use crate::route::{self, Job, Prepared, Reply, Subject, error_response};

/// Answers a GET or HEAD for `subject` that the loop's own cache does not know.
pub(crate) fn answer(ctx: &Rc<Loop>, request: &Request<'_>, subject: &Subject<'_>) -> Reply {
    let settings = subject.settings;
    let mut previous = None;
    if settings.cache.enabled {
        let key = Key { site: subject.site.serial, path: subject.path.into() };
        previous = ctx.shared.store.get(&key);
        let fresh = |resource: &&Arc<Resource>| {
            resource.version.is_fresh(ctx.clock.now()) && !ctx.is_worth_a_copy(resource)
        };
        if let Some(resource) = previous.as_ref().filter(fresh) {
            ctx.count_hit();
            let hit = keep_in_front(ctx, subject, Arc::clone(resource));
            return answer_guarded(ctx, request, subject, &hit, "hit");
        }
    }
    ctx.count_miss();
    if !settings.cache.enabled
        && let Some(reply) = anew::answer(ctx, request, subject)
    {
        return reply;
    }
    let wanted = Wanted {
        shared: &ctx.shared,
        site: subject.site.serial,
        settings,
        path: subject.path,
        copy: previous.as_ref().is_some_and(|resource| ctx.is_worth_a_copy(resource)),
        previous,
        now: ctx.clock.now(),
    };
    match resolve::resolve(&wanted, Mode::Inline) {
        Err(Failure::WouldBlock) => {
            let Wanted { previous, copy, .. } = wanted;
            later(ctx, request, subject, previous, copy)
        }
        result => conclude(ctx, request, subject, result),
    }
}

/// Answers with what was found, or with the error that says why nothing was.
fn conclude(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    result: Result<Found, Failure>,
) -> Reply {
    let none = FieldLines::default;
    match result {
        Ok(Found::Resource(resource)) => {
            let cached = subject.settings.cache.enabled;
            let hit = if cached {
                keep_in_front(ctx, subject, resource)
            } else {
                anew::learn(ctx, request, subject, &resource);
                Rc::new(hit(subject, resource))
            };
            answer_guarded(ctx, request, subject, &hit, if cached { "miss" } else { "off" })
        }
        Ok(Found::Directory) => redirect::to_slash(request, subject).into(),
        Ok(Found::Listing(directory)) => Reply::Job(list(request, subject, directory)),
        Ok(Found::Status(status)) => error_reply(ctx, request, subject, status, none()),
        Err(Failure::Missing) => error_reply(ctx, request, subject, 404, none()),
        Err(Failure::Forbidden) => error_reply(ctx, request, subject, 403, none()),
        Err(Failure::Exhausted) => error_reply(ctx, request, subject, 503, none()),
        Err(Failure::WouldBlock | Failure::Broken) => {
            error_reply(ctx, request, subject, 500, none())
        }
    }
}

fn keep_in_front(ctx: &Loop, subject: &Subject<'_>, resource: Arc<Resource>) -> Rc<Hit> {
    let (store, hit) = (&ctx.shared.store, hit(subject, resource));
    if subject.settings.internal {
        return Rc::new(hit);
    }
    ctx.front.borrow_mut().insert(store, hit)
}

fn hit(subject: &Subject<'_>, resource: Arc<Resource>) -> Hit {
    let own = [b"/", &*resource.file].concat();
    let gates = match subject.path == own {
        true => None,
        false => subject.site.route(&own).gates.clone(),
    };
    Hit::new((subject.site.serial, subject.raw_path), resource, gates)
}

/// Answers with a resource that may be used now, once the gates of its own path were asked as far as
/// they ask for who comes.
fn answer_guarded(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    hit: &Rc<Hit>,
    cache: &'static str,
) -> Reply {
    let Some(gates) = &hit.gates else {
        return answer_hit(ctx, request, subject, hit, cache);
    };
    let pass = subject.pass.map_or_else(|| Rc::new(Pass::new(subject.client)), Rc::clone);
    match gates.ask_who(&Asker { ctx, request, pass: &pass, now: pass.asked, at_once: None }) {
        Verdict::Pass => answer_hit(ctx, request, subject, hit, cache),
        Verdict::Refuse(refused) => route::refuse(ctx, request, subject, refused),
        Verdict::Wait(waiting) => {
            let (ctx, hit) = (Rc::clone(ctx), Rc::clone(hit));
            let (request, subject) = (request.to_owned(), subject.to_owned());
            Reply::Job(Box::pin(async move {
                let result = waiting.await;
                let (request, subject) = (request.as_request(), subject.borrow());
                let reply = match result {
                    Ok(()) => answer_hit(&ctx, &request, &subject, &hit, cache),
                    Err(refused) => route::refuse(&ctx, &request, &subject, refused),
                };
                Box::pin(into_response(&request, reply)).await
            }))
        }
    }
}

/// The same question again, asked where waiting for a disk holds up nobody.
fn later(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    previous: Option<Arc<Resource>>,
    copy: bool,
) -> Reply {
    let (ctx, request, subject) = (Rc::clone(ctx), request.to_owned(), subject.to_owned());
    Reply::Job(Box::pin(async move {
        let (shared, now) = (Arc::clone(&ctx.shared), ctx.clock.now());
        let (site, settings) = (subject.site.serial, Arc::clone(&subject.settings));
        let path = subject.path.clone();
        let result = tokio::task::spawn_blocking(move || {
            let wanted = Wanted {
                shared: &shared,
                site,
                settings: &settings,
                path: &path,
                copy,
                previous,
                now,
            };
            resolve::resolve(&wanted, Mode::Blocking)
        });
        let result = result.await.unwrap_or(Err(Failure::Broken));
        let request = request.as_request();
        let reply = conclude(&ctx, &request, &subject.borrow(), result);
        into_response(&request, reply).await
    }))
}

/// Waits for whatever a reply still needs.
pub(crate) async fn into_response(request: &Request<'_>, reply: Reply) -> Response {
    match reply {
        Reply::Response(response) => *response,
        Reply::Job(job) => job.await,
        Reply::Prepared(prepared) => from_prepared(request, &prepared),
        // Only a route's own handler begins an exchange, and this is none of a script's.
        Reply::Exchange(_) => error_response(500, true),
    }
}

/// The same reply in a form to which fields can be added.
pub(crate) fn unprepared(request: &Request<'_>, reply: Reply) -> Reply {
    match reply {
        Reply::Prepared(prepared) => from_prepared(request, &prepared).into(),
        reply => reply,
    }
}

fn from_prepared(request: &Request<'_>, prepared: &Prepared) -> Response {
    let resource = &prepared.hit.resource;
    let form = match resource.representation(prepared.coding) {
        Some(Some(form)) => form,
        _ => &resource.identity,
    };
    let mut response = match prepared.not_modified {
        true => answer::not_modified(form),
        false => answer::whole(form, prepared.body(form)),
    };
    response.cache = prepared.cache;
    if request.method() == Method::Head { response.without_body() } else { response }
}

fn list(request: &Request<'_>, subject: &Subject<'_>, directory: std::fs::File) -> Job {
    let (request, subject) = (request.to_owned(), subject.to_owned());
    Box::pin(async move {
        let made = tokio::task::spawn_blocking(move || {
            directory::respond(&request.as_request(), &subject.borrow(), directory)
        });
        made.await.unwrap_or_else(|_| error_response(500, true))
    })
}

/// An error of that status: the page that the route names for it, or the plain one. It has `extra`
/// besides.
pub(crate) fn error_reply(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    status: u16,
    extra: FieldLines,
) -> Reply {
    let Some(page) = subject.settings.error_pages.get(&status) else {
        return finish_error(error_response(status, true), request, &extra).into();
    };
    let (ctx, page) = (Rc::clone(ctx), page.clone().into_bytes());
    let (request, site) = (request.to_owned(), Arc::clone(subject.site));
    Reply::Job(Box::pin(async move {
        let settings = Arc::clone(site.route(&page));
        let (shared, now) = (Arc::clone(&ctx.shared), ctx.clock.now());
        let found = tokio::task::spawn_blocking(move || {
            let key = Key { site: site.serial, path: page.as_slice().into() };
            let previous = shared.store.get(&key);
            if let Some(resource) = previous.as_ref().filter(|r| r.version.is_fresh(now)) {
                return Ok(Found::Resource(Arc::clone(resource)));
            }
            let wanted = Wanted {
                shared: &shared,
                site: site.serial,
                settings: &settings,
                path: &page,
                copy: false,
                previous,
                now,
            };
            resolve::resolve(&wanted, Mode::Blocking)
        });
        let request = request.as_request();
        let response = match found.await {
            Ok(Ok(Found::Resource(resource))) => error_from(status, &resource),
            _ => {
                tracing::warn!(status, "the error page is not there");
                error_response(status, true)
            }
        };
        finish_error(response, &request, &extra)
    }))
}

/// The content of an error page under the error's own status.
fn error_from(status: u16, resource: &Resource) -> Response {
    let mut response = Response::new(status);
    let form = &resource.identity;
    response.fields.push("Content-Type", &*resource.media_type);
    let mut body = Body::default();
    body.push(Piece::of(&form.body, 0..form.length));
    response.body = body;
    response
}

fn finish_error(mut response: Response, request: &Request<'_>, extra: &FieldLines) -> Response {
    response.fields.extend(extra);
    if response.status == 503 && extra.get("Retry-After").is_none() {
        response.fields.push("Retry-After", "1");
    }
    if request.method() == Method::Head { response.without_body() } else { response }
}

/// A [`Subject`] for work that outlives the request's buffers and may be done by another thread: it is
/// without the pass.
pub(crate) struct OwnedSubject {
    pub(crate) site: Arc<Site>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) raw_path: Box<[u8]>,
    pub(crate) path: Box<[u8]>,
    pub(crate) query: Option<Box<[u8]>>,
    pub(crate) client: Client,
}

impl Subject<'_> {
    pub(crate) fn to_owned(&self) -> OwnedSubject {
        OwnedSubject {
            site: Arc::clone(self.site),
            settings: Arc::clone(self.settings),
            raw_path: self.raw_path.into(),
            path: self.path.into(),
            query: self.query.map(Into::into),
            client: self.client,
        }
    }
}

impl OwnedSubject {
    pub(crate) fn borrow(&self) -> Subject<'_> {
        Subject {
            site: &self.site,
            settings: &self.settings,
            raw_path: &self.raw_path,
            path: &self.path,
            query: self.query.as_deref(),
            client: self.client,
            pass: None,
        }
    }
}
