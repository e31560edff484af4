//! Pages of the web as text.
//!
//! Start at [`fetch_url`].

mod fetch;
mod html;
mod reach;

pub use self::fetch::{fetch_url, fetch_url_with};
