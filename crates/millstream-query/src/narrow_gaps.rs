//! A store whose readers take little of what they have not asked for.
//!
//! A scan asks a file for the bytes of some columns, in one call with many ranges. Ranges that are
//! near to each other become one request, and what is between them is read and thrown away. That
//! pays while it takes less time than another request. `object_store` does so for gaps of a
//! megabyte, which in files of some ten megabytes is most columns: a scan of five columns of
//! eighty read three times the bytes that it needed. Requests are made side by side, so that their
//! latency adds little, while bytes share one network card.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    coalesce_ranges,
};

/// Bytes between two ranges that are read rather than asked around: 3 ms of the network of a small
/// function, where a request waits 10 to 20 ms for its first byte but not behind the others.
const GAP_BYTES_MAX: u64 = 256 << 10;

/// `store`, with gaps of [`GAP_BYTES_MAX`] at most.
#[derive(Debug)]
pub struct NarrowGaps(pub Arc<dyn ObjectStore>);

#[async_trait]
impl ObjectStore for NarrowGaps {
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let get = |range| self.0.get_range(location, range);
        coalesce_ranges(ranges, get, GAP_BYTES_MAX).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

impl fmt::Display for NarrowGaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use parking_lot::Mutex;

    use super::*;

    /// Remembers the ranges that it was asked for.
    #[derive(Debug)]
    struct Remembering(InMemory, Mutex<Vec<Range<u64>>>);

    impl fmt::Display for Remembering {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    #[async_trait]
    impl ObjectStore for Remembering {
        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            let got = self.0.get_opts(location, options).await?;
            self.1.lock().push(got.range.clone());
            Ok(got)
        }

        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> Result<PutResult> {
            self.0.put_opts(location, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[tokio::test]
    async fn near_ranges_are_one_request_and_wide_gaps_are_not_read() {
        let remembering = Arc::new(Remembering(InMemory::new(), Mutex::default()));
        let path = Path::from("file");
        let content: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8).collect();
        remembering.put(&path, content.clone().into()).await.expect("written");
        let store = NarrowGaps(Arc::clone(&remembering) as _);
        let ranges = [0..1_000, 200_000..200_100, 900_000..900_010, 1_999_000..2_000_000];
        let got = store.get_ranges(&path, &ranges).await.expect("they are there");
        for (range, got) in ranges.iter().zip(&got) {
            assert_eq!(&got[..], &content[range.start as usize..range.end as usize]);
        }
        let mut asked = remembering.1.lock().clone();
        asked.sort_by_key(|range| range.start);
        assert_eq!(asked, [0..200_100, 900_000..900_010, 1_999_000..2_000_000]);
    }
}
