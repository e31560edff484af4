//! Writes to a channel of an `Option`.

/// A value for a channel of type `Option<T>`: an `Option<T>` or a `T`, and for a `String` also a `&str`.
///
/// Unlike `Into<Option<T>>`, it lets the compiler infer that a literal is a `T`.
#[diagnostic::on_unimplemented(
    message = "a channel of type `Option<{T}>` cannot be written with `{Self}`",
    note = "pass a `{T}` or an `Option<{T}>`"
)]
pub trait IntoOption<T> {
    /// Returns the value to write.
    fn into_option(self) -> Option<T>;
}

impl<T> IntoOption<T> for T {
    fn into_option(self) -> Option<T> {
        Some(self)
    }
}

impl<T> IntoOption<T> for Option<T> {
    fn into_option(self) -> Option<T> {
        self
    }
}

impl IntoOption<String> for &str {
    fn into_option(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl IntoOption<String> for &String {
    fn into_option(self) -> Option<String> {
        Some(self.clone())
    }
}
