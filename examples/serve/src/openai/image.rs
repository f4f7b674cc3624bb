//! Decodes images of requests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use inkstone::Image;

use crate::{error::ApiError, limits};

/// Returns the image of a data URL. No other URL is fetched.
///
/// # Errors
/// [`ApiError`] with `field` for another URL, or an image that cannot be decoded.
pub fn from_url(url: &str, field: &str) -> Result<Image, ApiError> {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let Some((_, data)) = data else {
        let what = "must be a data URL, `data:image/png;base64,..`: the server fetches nothing from the network";
        return Err(ApiError::field(field, what));
    };
    from_base64(data, field)
}

/// Returns the image of a file in base64.
///
/// # Errors
/// [`ApiError`] with `field` for an image that cannot be decoded.
pub fn from_base64(data: &str, field: &str) -> Result<Image, ApiError> {
    let bytes = STANDARD.decode(data).map_err(|error| ApiError::field(field, &format!("base64: {error}")))?;
    let image = Image::options().max_pixels(limits::IMAGE_PIXELS).decode(&bytes);
    image.map_err(|error| ApiError::field(field, &error.to_string()))
}

/// Refuses too many images.
///
/// # Errors
/// [`ApiError`] with the field `messages`.
pub fn check_count(count: usize) -> Result<(), ApiError> {
    if count <= limits::IMAGES {
        return Ok(());
    }
    Err(ApiError::field("messages", &format!("have {count} images, but at most {} are allowed", limits::IMAGES)))
}
