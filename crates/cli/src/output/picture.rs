//! Drawings as PNG.
//!
//! Start at [`png`].

#[cfg(feature = "png")]
use superstep_session::error::ErrorKind;
use superstep_session::error::SessionError;

/// The number of pixels for a unit of length of the SVG, for screens of high density.
#[cfg(feature = "png")]
const SCALE: f32 = 2.0;

/// Maximum number of pixels: a larger picture is scaled down.
#[cfg(feature = "png")]
const MAX_PIXELS: f32 = 5e7;

/// Converts an SVG drawing to PNG, in its light colours.
///
/// # Errors
/// Without the feature `png`, and on a machine without fonts.
#[cfg(feature = "png")]
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, SessionError> {
    use std::sync::Arc;

    use resvg::{
        tiny_skia::{Pixmap, Transform},
        usvg::{Options, Tree, fontdb::Database},
    };

    let failed = |what: &dyn std::fmt::Display| {
        SessionError::new(ErrorKind::Failed, format!("cannot draw a PNG picture: {what}"))
    };
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    let font = fonts.faces().find(|face| face.monospaced).or_else(|| fonts.faces().next());
    let Some((name, _)) = font.and_then(|face| face.families.first().cloned()) else {
        return Err(failed(
            &"this machine has no fonts; install one, such as DejaVu Sans Mono, or use `--format svg`",
        ));
    };
    fonts.set_monospace_family(name);
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(&error))?;
    let (width, height) = (tree.size().width(), tree.size().height());
    let scale = SCALE.min((MAX_PIXELS / (width * height)).sqrt());
    // The casts saturate; the limit is far below.
    let pixels = |length: f32| (length * scale).ceil() as u32;
    let mut picture = Pixmap::new(pixels(width), pixels(height)).ok_or_else(|| failed(&"it has no size"))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut picture.as_mut());
    picture.encode_png().map_err(|error| failed(&error))
}

#[cfg(not(feature = "png"))]
pub(crate) fn png(_svg: &str) -> Result<Vec<u8>, SessionError> {
    Err(SessionError::missing_feature("a picture as PNG, unlike one with `--format svg`,", "png"))
}
