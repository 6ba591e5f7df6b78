//! Messages as everything here passes them on: a head, whose [`Fields`] stay in the bytes in which
//! they came, and a body.

use http::{Extensions, Method, StatusCode, Uri, Version};

use crate::fields::Fields;

/// A request. Its head stays where it is as the request is handed on.
#[derive(Clone, Debug)]
pub struct Request<B> {
    head: Box<request::Parts>,
    body: B,
}

/// A response. Its head stays where it is as the response is handed on.
#[derive(Clone, Debug)]
pub struct Response<B> {
    head: Box<response::Parts>,
    body: B,
}

/// Parts of requests.
pub mod request {
    use super::{Extensions, Fields, Method, Uri, Version};

    /// The head of a request.
    #[derive(Clone, Debug, Default)]
    pub struct Parts {
        /// What is to be done.
        pub method: Method,
        /// With what.
        pub uri: Uri,
        /// In which version it came.
        pub version: Version,
        /// Its fields.
        pub headers: Fields,
        /// What else is known of it.
        pub extensions: Extensions,
    }
}

/// Parts of responses.
pub mod response {
    use super::{Extensions, Fields, StatusCode, Version};

    /// The head of a response.
    #[derive(Clone, Debug, Default)]
    pub struct Parts {
        /// What came of it.
        pub status: StatusCode,
        /// In which version it came.
        pub version: Version,
        /// Its fields.
        pub headers: Fields,
        /// What else is known of it.
        pub extensions: Extensions,
    }
}

/// What requests and responses have alike.
macro_rules! message {
    ($name:ident, $parts:path) => {
        impl<B> $name<B> {
            /// One with an empty head.
            pub fn new(body: B) -> Self {
                Self { head: Default::default(), body }
            }

            /// One of these parts.
            pub fn from_parts(head: impl Into<Box<$parts>>, body: B) -> Self {
                Self { head: head.into(), body }
            }

            /// Its parts.
            pub fn into_parts(self) -> (Box<$parts>, B) {
                (self.head, self.body)
            }

            /// All of its head.
            pub fn head(&self) -> &$parts {
                &self.head
            }

            /// The version in which it came.
            pub fn version(&self) -> Version {
                self.head.version
            }

            /// The same, to be changed.
            pub fn version_mut(&mut self) -> &mut Version {
                &mut self.head.version
            }

            /// Its fields.
            pub fn headers(&self) -> &Fields {
                &self.head.headers
            }

            /// The same, to be changed.
            pub fn headers_mut(&mut self) -> &mut Fields {
                &mut self.head.headers
            }

            /// What else is known of it.
            pub fn extensions(&self) -> &Extensions {
                &self.head.extensions
            }

            /// The same, to be changed.
            pub fn extensions_mut(&mut self) -> &mut Extensions {
                &mut self.head.extensions
            }

            /// Its body.
            pub fn body(&self) -> &B {
                &self.body
            }

            /// The same, to be changed.
            pub fn body_mut(&mut self) -> &mut B {
                &mut self.body
            }

            /// Its body, without its head.
            pub fn into_body(self) -> B {
                self.body
            }

            /// The same head before another body.
            pub fn map<C>(self, change: impl FnOnce(B) -> C) -> $name<C> {
                $name { head: self.head, body: change(self.body) }
            }
        }
    };
}

message!(Request, request::Parts);
message!(Response, response::Parts);

impl<B> Request<B> {
    /// What is to be done.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The same, to be changed.
    pub fn method_mut(&mut self) -> &mut Method {
        &mut self.head.method
    }

    /// With what.
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The same, to be changed.
    pub fn uri_mut(&mut self) -> &mut Uri {
        &mut self.head.uri
    }
}

impl<B> Response<B> {
    /// What came of the request.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The same, to be changed.
    pub fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.head.status
    }
}

impl From<http::request::Parts> for request::Parts {
    fn from(parts: http::request::Parts) -> Self {
        let http::request::Parts { method, uri, version, headers, extensions, .. } = parts;
        Self { method, uri, version, headers: Fields::from(&headers), extensions }
    }
}

impl From<http::response::Parts> for response::Parts {
    fn from(parts: http::response::Parts) -> Self {
        let http::response::Parts { status, version, headers, extensions, .. } = parts;
        Self { status, version, headers: Fields::from(&headers), extensions }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        Self { head: Box::new(parts.into()), body }
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        Self { head: Box::new(parts.into()), body }
    }
}

impl<B> From<Request<B>> for http::Request<B> {
    fn from(request: Request<B>) -> Self {
        let request::Parts { method, uri, version, headers, extensions } = *request.head;
        let mut same = Self::new(request.body);
        *same.method_mut() = method;
        *same.uri_mut() = uri;
        *same.version_mut() = version;
        *same.headers_mut() = headers.to_map();
        *same.extensions_mut() = extensions;
        same
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> Self {
        let response::Parts { status, version, headers, extensions } = *response.head;
        let mut same = Self::new(response.body);
        *same.status_mut() = status;
        *same.version_mut() = version;
        *same.headers_mut() = headers.to_map();
        *same.extensions_mut() = extensions;
        same
    }
}
