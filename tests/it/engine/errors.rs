//! The words of every error that can be provoked.
