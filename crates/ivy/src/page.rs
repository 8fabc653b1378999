//! Pages for people: `/` with status, charts and a playground, and `/docs` with every field.
//!
//! Plain files of `static/`, embedded in the binary. They ask this server only, by relative paths,
//! so that the page also works below a prefix of some proxy; and they hold no data, so that they
//! need no key. What they show they ask for with the key that the visitor gives them.

use std::sync::LazyLock;

use axum::Extension;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::api::Arrival;
use crate::api::family::Family;
use crate::error::Error;

/// Everything from this host, nothing inline, nobody's frame.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

struct File {
    name: &'static str,
    content_type: &'static str,
    body: &'static str,
}

macro_rules! file {
    ($name:literal, $content_type:expr) => {
        File {
            name: $name,
            content_type: $content_type,
            body: include_str!(concat!("../static/", $name)),
        }
    };
}

const INDEX: File = file!("index.html", HTML);
const DOCS: File = file!("docs.html", HTML);

const FILES: [File; 17] = [
    file!("page.css", CSS),
    file!("charts.css", CSS),
    file!("playground.css", CSS),
    file!("page.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("docs.css", CSS),
    file!("docs.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("history.js", SCRIPT),
    file!("model.js", SCRIPT),
    file!("rerank.js", SCRIPT),
    file!("run.js", SCRIPT),
    file!("server.js", SCRIPT),
    file!("similarity.js", SCRIPT),
    file!("tabs.js", SCRIPT),
    file!("theme.js", SCRIPT),
    file!("icon.svg", SVG),
];

/// A file with the headers that it is answered with.
struct Ready {
    file: &'static File,
    etag: HeaderValue,
}

static READY: LazyLock<Vec<Ready>> = LazyLock::new(|| FILES.iter().map(ready).collect());
static READY_INDEX: LazyLock<Ready> = LazyLock::new(|| ready(&INDEX));
static READY_DOCS: LazyLock<Ready> = LazyLock::new(|| ready(&DOCS));

fn ready(file: &'static File) -> Ready {
    let hash = Sha256::digest(file.body.as_bytes());
    let hex: String = hash
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let etag = HeaderValue::from_str(&format!("\"{hex}\""));
    Ready {
        file,
        // Hexadecimal digits are fit for a header.
        etag: etag.unwrap_or(HeaderValue::from_static("\"\"")),
    }
}

/// `GET /`.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    READY_INDEX.answer(&headers)
}

/// `GET /docs`.
pub(crate) async fn docs(headers: HeaderMap) -> Response {
    READY_DOCS.answer(&headers)
}

/// `GET /static/{name}`.
pub(crate) async fn file(
    Path(name): Path<String>,
    headers: HeaderMap,
    arrival: Option<Extension<Arrival>>,
) -> Response {
    match READY.iter().find(|ready| ready.file.name == name) {
        Some(ready) => ready.answer(&headers),
        None => {
            let error = Error::UnknownRoute(format!("/static/{name}"));
            let request_id = arrival.as_ref().map_or("", |arrival| &arrival.request_id);
            Family::Tei.respond(&error, request_id)
        }
    }
}

impl Ready {
    /// The file, or that the browser has it already.
    fn answer(&self, headers: &HeaderMap) -> Response {
        let known = headers.get(header::IF_NONE_MATCH);
        let mut response = if known.is_some_and(|known| self.is_among(known)) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let content_type = HeaderValue::from_static(self.file.content_type);
            ([(header::CONTENT_TYPE, content_type)], self.file.body).into_response()
        };
        let fixed = HeaderValue::from_static;
        for (name, value) in [
            (header::ETAG, self.etag.clone()),
            // Kept, but asked for again: a new binary behind the same address is seen at once.
            (header::CACHE_CONTROL, fixed("no-cache")),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
            (header::X_FRAME_OPTIONS, fixed("DENY")),
            (header::REFERRER_POLICY, fixed("no-referrer")),
            (
                PERMISSIONS_POLICY,
                fixed("camera=(), geolocation=(), microphone=()"),
            ),
        ] {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Whether a list of `If-None-Match` names this file; proxies that compress make tags weak.
    fn is_among(&self, known: &HeaderValue) -> bool {
        let Ok(known) = known.to_str() else {
            return false;
        };
        let mut tags = known.split(',').map(str::trim);
        tags.any(|tag| {
            tag == "*" || tag.trim_start_matches("W/").as_bytes() == self.etag.as_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `src` and `href`, of `import … from`, and of `url(…)`.
    fn references(body: &str) -> Vec<&str> {
        let starts = ["src=\"", "href=\"", "from \"", " url(\"", " import(\""];
        let mut found = Vec::new();
        for start in starts {
            let after = body.split(start).skip(1);
            found.extend(after.filter_map(|rest| rest.split('"').next()));
        }
        found
    }

    #[test]
    fn files_refer_to_files_that_are_there_and_to_no_other_host() {
        let routes = [".", "docs", "openapi.json", "status"];
        for file in FILES.iter().chain([&INDEX, &DOCS]) {
            for reference in references(file.body) {
                let name = reference.strip_prefix("static/");
                let name = name.or(reference.strip_prefix("./")).unwrap_or(reference);
                let is_file = FILES.iter().any(|file| file.name == name);
                let is_place = reference.starts_with('#');
                assert!(
                    is_file || is_place || routes.contains(&reference),
                    "{} refers to {reference:?}",
                    file.name
                );
            }
        }
    }

    #[test]
    fn nothing_is_inline_that_the_policy_would_block() {
        let blocked = [
            "<style",
            " style=\"",
            " onclick=",
            " onload=",
            "javascript:",
        ];
        for page in [INDEX, DOCS] {
            for inline in blocked {
                assert!(!page.body.contains(inline), "{inline} in {}", page.name);
            }
            let scripts = page.body.matches("<script").count();
            let of_files = page.body.matches("<script type=\"module\" src=").count();
            assert_eq!((scripts, of_files), (1, 1), "{}", page.name);
        }
    }

    #[test]
    fn a_list_of_tags_matches_if_one_does() {
        let etag = READY_INDEX.etag.to_str().unwrap();
        for (known, expected) in [
            (etag.to_owned(), true),
            (format!("W/{etag}"), true),
            (format!("\"other\", {etag}"), true),
            ("*".to_owned(), true),
            ("\"other\"".to_owned(), false),
            (String::new(), false),
        ] {
            let value = HeaderValue::from_str(&known).unwrap();
            assert_eq!(READY_INDEX.is_among(&value), expected, "{known}");
        }
    }
}
