//! What all pages share.

/// Text made safe for HTML, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

/// The beginning of a drawing.
pub(crate) fn svg(width: f64, height: f64, label: &str) -> String {
    let label = escape(label);
    format!("<svg viewBox='0 0 {width} {height}' role=img aria-label='{label}'>")
}
