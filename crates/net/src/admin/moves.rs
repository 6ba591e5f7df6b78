//! `/api/v1/duplicates/NAME/moves`: shards that move, duplicates and partitions that come and go.
//!
//! `GET` says how that stands, `POST` gives an order ([`Order`]): 202 when it is under way, 409
//! when another one is, 422 with why it cannot be done. What keeps web pages away is that of
//! [`switch`](super::switch).

use http::StatusCode;

use crate::duplicates::Control;
use crate::duplicates::orders::{NotTaken, Order};

/// The name of the service in a path of this kind.
pub(super) fn service_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(super::DUPLICATES)?.strip_prefix('/')?.strip_suffix("/moves")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Gives an order; status and JSON, or words.
///
/// # Errors
/// The status and words of the refusal.
pub(super) async fn order(control: &Control, body: &[u8]) -> Result<String, (StatusCode, String)> {
    let order = Order::read(body).map_err(|why| (StatusCode::UNPROCESSABLE_ENTITY, why + "\n"))?;
    let answered = control.order(order).await.map_err(|refused| match refused {
        NotTaken::Busy(what) => {
            (StatusCode::CONFLICT, format!("another order is under way: {what}\n"))
        }
        NotTaken::Impossible(why) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")),
    })?;
    Ok(serde_json::to_string(&answered).expect("numbers and words are JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_one_service() {
        for (path, name) in [
            ("/api/v1/duplicates/cart/moves", Some("cart")),
            ("/api/v1/duplicates//moves", None),
            ("/api/v1/duplicates/a/b/moves", None),
            ("/api/v1/duplicates/moves", None),
            ("/api/v1/duplicatescart/moves", None),
        ] {
            assert_eq!(service_of(path), name, "{path}");
        }
    }
}
