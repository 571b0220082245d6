//! What is asked of a bucket. [`S3`] asks a real one, [`Memory`] is one for tests, with failures; [`Metered`] stands
//! before either: it counts, keeps to a rate, and lets nothing be changed when the lease is lost.
//!
//! Calls wait for their answers. Keys are whole. What the caller must do decides the kind of a [`StoreError`].

mod fence;
mod memory;
mod metered;
mod s3;

use std::ops::Range;

pub use fence::Fence;
pub use memory::{Failure, Memory};
pub use metered::{Counts, Metered};
pub use s3::{Connection, S3};

use crate::metadata::{Properties, Time};

/// Why the bucket did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("there is no object {0}")]
    NotFound(String),
    /// The object is not as the request requires: somebody changed it.
    #[error("object {0} was changed by somebody else")]
    Changed(String),
    /// Asking again does not help until somebody does what the text says.
    #[error("{0}")]
    Refused(String),
    /// Asking again may help: no answer, or an error of the server. It may have been done.
    #[error("{0}")]
    Failed(String),
    /// The prefix belongs to somebody else now.
    #[error(
        "the lease on the prefix is lost: nothing is changed any more. Unmount and mount again"
    )]
    Fenced,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, StoreError>;

/// What an object must be for a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Anything, or not there.
    None,
    /// Not there.
    Absent,
    /// There, with this ETag.
    Etag(String),
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its size, bytes.
    pub size: u64,
    /// Its ETag, with the quotes.
    pub etag: String,
    /// When it was written.
    pub modified: Time,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Objects.
    pub objects: Vec<Listed>,
    /// Prefixes up to and including the next slash, where they were asked for.
    pub prefixes: Vec<String>,
    /// How to ask for the next page.
    pub next: Option<String>,
}

/// An object without its content.
#[derive(Clone, Debug)]
pub struct Head {
    /// Its size, bytes.
    pub size: u64,
    /// Its ETag.
    pub etag: String,
    /// When it was written.
    pub modified: Time,
    /// Its metadata.
    pub properties: Properties,
}

/// A multipart upload that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its identity.
    pub upload: String,
    /// No answer was lost before this one: it is the only upload that was begun.
    pub is_alone: bool,
}

/// An object that was made of the parts of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its ETag.
    pub etag: String,
    /// This was the answer to the first attempt. To a later one some stores answer so while the first is under way yet, which may
    /// fail: the object tells.
    pub is_first: bool,
}

/// A multipart upload that is neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The key.
    pub key: String,
    /// Its identity.
    pub upload: String,
}

/// Is given bytes as they come.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]);

/// A bucket.
pub trait Store: Send + Sync {
    /// A page of the keys that begin with `prefix`. `shallow`: keys are cut after the next slash.
    fn list(&self, prefix: &str, shallow: bool, page: Option<&str>) -> Result<Page>;
    /// An object without its content.
    fn head(&self, key: &str) -> Result<Head>;
    /// Reads bytes of an object that has this ETag, exactly that many: `take` is given them in order, as they come. What it was given
    /// before an error is right.
    fn read(&self, key: &str, range: Range<u64>, etag: &str, take: Take<'_>) -> Result<()>;
    /// The same, all at once.
    fn get(&self, key: &str, range: Range<u64>, etag: &str) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        self.read(key, range, etag, &mut |bytes| all.extend_from_slice(bytes))?;
        Ok(all)
    }
    /// Writes an object; its ETag.
    fn put(
        &self,
        key: &str,
        body: Vec<u8>,
        properties: &Properties,
        condition: &Condition,
    ) -> Result<String>;
    /// Copies an object of up to 5 GiB that has this ETag, with its metadata or other; the copy's ETag.
    fn copy(
        &self,
        from: &str,
        etag: &str,
        to: &str,
        properties: Option<&Properties>,
    ) -> Result<String>;
    /// Removes an object; none there is no error.
    fn delete(&self, key: &str) -> Result<()>;
    /// Removes up to 1,000 objects.
    fn delete_many(&self, keys: &[String]) -> Result<()>;
    /// Begins a multipart upload. If this fails, one may have been begun.
    fn begin(&self, key: &str, properties: &Properties) -> Result<Begun>;
    /// Multipart uploads of keys that begin with `prefix`.
    fn unfinished(&self, prefix: &str) -> Result<Vec<Unfinished>>;
    /// Uploads a part, numbered from 1; its ETag.
    fn upload_part(&self, key: &str, upload: &str, number: i32, body: Vec<u8>) -> Result<String>;
    /// Copies a range of an object that has this ETag as a part; the part's ETag.
    fn copy_part(
        &self,
        key: &str,
        upload: &str,
        number: i32,
        from: &str,
        etag: &str,
        range: Range<u64>,
    ) -> Result<String>;
    /// Makes the object of its parts.
    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(i32, String)],
        condition: &Condition,
    ) -> Result<Completed>;
    /// Gives a multipart upload up; none there is no error.
    fn abort(&self, key: &str, upload: &str) -> Result<()>;
}

/// All pages of a listing.
pub fn list_all(store: &dyn Store, prefix: &str, shallow: bool) -> Result<Page> {
    let mut all = Page::default();
    loop {
        let page = store.list(prefix, shallow, all.next.as_deref())?;
        all.objects.extend(page.objects);
        all.prefixes.extend(page.prefixes);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}
