//! The axum extractor.

use std::convert::Infallible;

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use crate::Brownout;

impl<S: Sync> FromRequestParts<S> for Brownout {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}
