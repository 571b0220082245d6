//! A bucket of an S3-compatible store, asked by the AWS SDK.
//!
//! Owns the client and the runtime on which the SDK's futures run: this is the one file that knows of either. Does not
//! own what the answers mean. The SDK signs, finds credentials, retries with back-off, and keeps to timeouts.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_s3::config::{
    ConfigBag, Intercept, RequestChecksumCalculation, ResponseChecksumValidation,
    RuntimeComponents, StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::{BoxError, DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{
    CompletedMultipartUpload, CompletedPart, Delete, EncodingType, MetadataDirective,
    ObjectIdentifier,
};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::runtime::Runtime;

use super::{
    Begun, Completed, Condition, Fence, Head, Listed, Page, Result, Store, StoreError, Take,
    Unfinished,
};
use crate::metadata::{Header, Properties, Time};

/// Which store, and as whom.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The bucket.
    pub bucket: String,
    /// The store's address, if it is not that of AWS.
    pub endpoint: Option<String>,
    /// The region, if it is not the one that AWS tools are configured for.
    pub region: Option<String>,
    /// The profile of the AWS configuration files.
    pub profile: Option<String>,
    /// The bucket is named in the path of requests, not in the host's name.
    pub path_style: bool,
}

/// How often a request is made, and the pauses between.
const ATTEMPTS: u32 = 6;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// How many answers may break off while something is read, and in a row before a byte of them has come.
const BODIES_MAX: u32 = 32;
const BODIES_VAIN_MAX: u32 = 4;
/// How long an answer may take; that of a request for which the store copies an object, before it answers.
const ANSWER: Duration = Duration::from_secs(60);
const ANSWER_OF_COPY: Duration = Duration::from_secs(600);
/// A connection is given up when no byte has moved on it for this time.
const STALLED: Duration = Duration::from_secs(30);
/// A network is not too slow if it takes this many bytes a second of each of the requests that are under way.
const BYTES_A_SECOND_MIN: u64 = 8 << 10;

/// A bucket.
pub struct S3 {
    client: Client,
    bucket: String,
    identity: String,
    runtime: Runtime,
    fence: Arc<Fence>,
}

/// What a copy's source may have unescaped.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl S3 {
    /// Prepares to ask; nothing is asked yet. While the fence is closed, no change is asked for again.
    pub fn connect(connection: &Connection, fence: Arc<Fence>) -> std::io::Result<S3> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3")
            .enable_all()
            .build()?;
        let http = Builder::new().build_with_connector_fn(|settings, components| {
            let mut builder = Connector::builder().proxy_config(ProxyConfig::from_env());
            builder.set_connector_settings(settings.cloned());
            if let Some(components) = components {
                builder.set_sleep_impl(components.sleep_impl());
            }
            builder.tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build()
        });
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(ANSWER)
            .build();
        let stalled = StalledStreamProtectionConfig::enabled().grace_period(STALLED).build();
        let retries = RetryConfig::standard()
            .with_max_attempts(ATTEMPTS)
            .with_initial_backoff(RETRY_FIRST)
            .with_max_backoff(RETRY_LAST);
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .timeout_config(timeouts)
            .stalled_stream_protection(stalled)
            .retry_config(retries);
        if let Some(profile) = &connection.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(region) = &connection.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &connection.endpoint {
            // Other stores than AWS's may not know its newer checksums.
            loader = loader
                .endpoint_url(endpoint)
                .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        }
        let shared = runtime.block_on(loader.load());
        let mut config =
            aws_sdk_s3::config::Builder::from(&shared).force_path_style(connection.path_style);
        if shared.region().is_none() {
            config = config.region(Region::new("us-east-1"));
        }
        let client = Client::from_conf(config.build());
        let identity = identity(connection, &shared);
        Ok(S3 { client, bucket: connection.bucket.clone(), identity, runtime, fence })
    }

    /// What tells the bucket from all others: where requests go, as whom, and its name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    fn held(&self) -> Held {
        Held(Arc::clone(&self.fence))
    }

    fn source(&self, key: &str) -> String {
        format!("{}/{}", self.bucket, utf8_percent_encode(key, KEPT))
    }

    /// What an error means, for a request about a key.
    fn error<E>(&self, key: &str, doing: &str, error: SdkError<E>) -> StoreError
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        let code = error.code().unwrap_or_default().to_owned();
        let said = match error.message() {
            Some(message) => format!("{code}: {message}"),
            None => DisplayErrorContext(&error).to_string(),
        };
        explain(&self.bucket, key, doing, status, &code, &said)
    }
}

/// How an answer is not what was asked for: there are stores that do not keep to ranges, for some objects.
fn other_than(answer: &GetObjectOutput, range: &Range<u64>) -> Option<String> {
    let want = range.end - range.start;
    if let Some(length) = answer.content_length().filter(|&of| u64::try_from(of) != Ok(want)) {
        return Some(format!("{length} bytes come instead of {want}"));
    }
    let fits = match answer.content_range() {
        Some(of) => of.starts_with(&format!("bytes {}-{}/", range.start, range.end - 1)),
        // All of an object that has as many bytes.
        None => range.start == 0 && answer.content_length().is_some(),
    };
    (!fits).then(|| format!("not bytes {} to {} come", range.start, range.end - 1))
}

/// Passes an answer's bytes on, which are those from `at` to `end`, and moves `at`. If it has a checksum, only when all of it was
/// checked.
async fn pass_on(
    answer: GetObjectOutput,
    end: u64,
    at: &mut u64,
    take: Take<'_>,
) -> std::result::Result<(), String> {
    let checksums = [
        answer.checksum_crc32(),
        answer.checksum_crc32_c(),
        answer.checksum_crc64_nvme(),
        answer.checksum_sha1(),
        answer.checksum_sha256(),
        answer.checksum_sha512(),
        answer.checksum_md5(),
        answer.checksum_xxhash64(),
        answer.checksum_xxhash3(),
        answer.checksum_xxhash128(),
    ];
    let is_checked = checksums.iter().any(Option::is_some);
    let mut body = answer.body;
    let mut held = Vec::new();
    loop {
        let lacks = end - *at - held.len() as u64;
        match body.try_next().await.map_err(|error| error.to_string())? {
            Some(bytes) if bytes.len() as u64 > lacks => return Err("too much came".into()),
            Some(bytes) if is_checked => held.extend_from_slice(&bytes),
            Some(bytes) => {
                take(&bytes);
                *at += bytes.len() as u64;
            }
            None if lacks > 0 => return Err(format!("{lacks} bytes did not come")),
            None => break,
        }
    }
    take(&held);
    *at += held.len() as u64;
    Ok(())
}

/// Has the SDK look, before each attempt of a request, whether the lease is held; otherwise the attempt is not made. For requests that no
/// condition guards: they would change an object whoever wrote it.
#[derive(Debug)]
struct Held(Arc<Fence>);

impl Held {
    fn look(&self) -> std::result::Result<(), BoxError> {
        if self.0.is_closed() { Err("the lease is not held any more".into()) } else { Ok(()) }
    }
}

impl Intercept for Held {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _settings: &mut ConfigBag,
    ) -> std::result::Result<(), BoxError> {
        self.look()
    }
}

/// Makes a request of which it matters how often it was made, which the SDK does not tell: the answer, and whether it is that to the first
/// attempt. `once` makes one. Without the lease it is not made again.
fn attempted<T>(fence: &Fence, once: impl Fn() -> Result<T>) -> Result<(T, bool)> {
    let mut pause = RETRY_FIRST;
    let mut attempts = 1;
    loop {
        match once() {
            Err(StoreError::Failed(failure)) if attempts < ATTEMPTS => {
                std::thread::sleep(pause);
                if fence.is_closed() {
                    // It may have been done.
                    return Err(StoreError::Failed(failure));
                }
                pause = (2 * pause).min(RETRY_LAST);
                attempts += 1;
            }
            answer => return answer.map(|answer| (answer, attempts == 1)),
        }
    }
}

/// Gives a request this time.
fn within(time: Duration) -> aws_sdk_s3::config::Builder {
    let times = TimeoutConfig::builder().read_timeout(time).build();
    aws_sdk_s3::config::Builder::new().timeout_config(times)
}

/// The time of a request with a body: the SDK counts from before the body is sent. There are few different times, since each has its
/// own connections.
fn time_of_body(body: &[u8]) -> Duration {
    let bytes = if body.len() < 1 << 20 { 0 } else { body.len().next_power_of_two() as u64 };
    ANSWER + Duration::from_secs(bytes / BYTES_A_SECOND_MIN)
}

/// See [`S3::identity`]. A profile may name another store, and regions may be of another AWS.
fn identity(connection: &Connection, shared: &SdkConfig) -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let endpoint = connection.endpoint.clone();
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3"));
    let endpoint = endpoint.or_else(|| shared.endpoint_url().map(str::to_owned));
    let profile = connection.profile.clone().or_else(|| variable("AWS_PROFILE"));
    let region = shared.region().map(|region| region.as_ref().to_owned());
    let parts = [endpoint, profile, region, Some(connection.bucket.clone())];
    parts.map(|part| part.unwrap_or_else(|| "-".to_owned())).join(" ")
}

/// Decides what a failed request means from the status and the code of the answer, if there was one.
fn explain(
    bucket: &str,
    key: &str,
    doing: &str,
    status: Option<u16>,
    code: &str,
    said: &str,
) -> StoreError {
    let refused = |remedy: &str| {
        StoreError::Refused(format!("{doing} s3://{bucket}/{key}: {said}. {remedy}"))
    };
    let failed = || StoreError::Failed(format!("{doing} s3://{bucket}/{key}: {said}"));
    match (status, code) {
        (_, "NoSuchBucket") => {
            refused("There is no such bucket: create it, or correct its name or --endpoint")
        }
        (_, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired") => {
            refused("The credentials have expired: log in again, for example by 'aws sso login'")
        }
        (_, "RequestTimeTooSkewed") => refused(
            "This machine's clock differs from the store's by more than 15 minutes: set it, for example by NTP",
        ),
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken") => refused(
            "The store does not accept the credentials: check the access key, its secret and --profile",
        ),
        (Some(301 | 307), _)
        | (
            _,
            "PermanentRedirect"
            | "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException",
        ) => refused("The bucket is in another region: name it with --region"),
        (_, "SlowDown" | "RequestLimitExceeded" | "TooManyRequestsException") => failed(),
        (_, code) if code.starts_with("Throttl") || code.starts_with("RequestThrottled") => {
            failed()
        }
        (Some(401 | 403), _) => refused(
            "Access is denied. The user needs s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload, \
             s3:ListBucketMultipartUploads and s3:ListBucket on this prefix",
        ),
        (Some(409 | 412), _) => StoreError::Changed(key.into()),
        (Some(404), _) | (_, "NoSuchKey" | "NoSuchUpload") => StoreError::NotFound(key.into()),
        (Some(400..=499), _)
            if status != Some(429) && status != Some(408) && code != "RequestTimeout" =>
        {
            refused("")
        }
        (Some(501), _) => refused("The store does not know this request"),
        (None, _) if said.contains("redential") => refused(
            "No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a --profile, or run \
             'aws configure'",
        ),
        (None, _) => StoreError::Failed(format!(
            "{doing} s3://{bucket}/{key}: {said}. The store does not answer: check the network and --endpoint"
        )),
        _ => failed(),
    }
}

fn time(time: Option<&DateTime>) -> Time {
    time.map_or(Time::default(), |time| Time {
        seconds: time.secs(),
        nanoseconds: time.subsec_nanos(),
    })
}

fn decoded(key: &str) -> String {
    let spaced = key.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

fn header(properties: &Properties, header: Header) -> Option<String> {
    properties.headers.get(&header).cloned()
}

/// Gives a request the headers and metadata of an object: the builders have the same methods and no trait.
macro_rules! with_properties {
    ($request:expr, $properties:expr) => {
        $request
            .set_content_type(header($properties, Header::ContentType))
            .set_content_encoding(header($properties, Header::ContentEncoding))
            .set_content_language(header($properties, Header::ContentLanguage))
            .set_content_disposition(header($properties, Header::ContentDisposition))
            .set_cache_control(header($properties, Header::CacheControl))
            .set_metadata(Some($properties.user.clone().into_iter().collect()))
    };
}

/// Gives a request a condition.
macro_rules! with_condition {
    ($request:expr, $condition:expr) => {
        match $condition {
            Condition::None => $request,
            Condition::Absent => $request.if_none_match("*"),
            Condition::Etag(etag) => $request.if_match(etag),
        }
    };
}

/// An ETag with its quotes, which some stores leave out in some answers.
fn etag_of(etag: Option<&str>) -> String {
    match etag.unwrap_or_default() {
        bare if !bare.is_empty() && !bare.contains('"') => format!("\"{bare}\""),
        whole => whole.to_owned(),
    }
}

fn range_of(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end - 1)
}

impl Store for S3 {
    fn list(&self, prefix: &str, shallow: bool, page: Option<&str>) -> Result<Page> {
        let request = self
            .client
            .list_objects_v2()
            .bucket(&self.bucket)
            .prefix(prefix)
            .encoding_type(EncodingType::Url)
            .set_delimiter(shallow.then(|| "/".to_owned()))
            .set_continuation_token(page.map(str::to_owned));
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(prefix, "list", error))?;
        let objects = answer.contents().iter().map(|object| Listed {
            key: decoded(object.key().unwrap_or_default()),
            size: object.size().unwrap_or(0).max(0) as u64,
            etag: etag_of(object.e_tag()),
            modified: time(object.last_modified()),
        });
        let prefixes = answer.common_prefixes().iter().filter_map(|prefix| prefix.prefix());
        Ok(Page {
            objects: objects.collect(),
            prefixes: prefixes.map(decoded).collect(),
            next: answer.next_continuation_token().map(str::to_owned),
        })
    }

    fn head(&self, key: &str) -> Result<Head> {
        let request = self.client.head_object().bucket(&self.bucket).key(key);
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(key, "read", error))?;
        let mut properties = Properties::default();
        for (header, value) in [
            (Header::ContentType, answer.content_type()),
            (Header::ContentEncoding, answer.content_encoding()),
            (Header::ContentLanguage, answer.content_language()),
            (Header::ContentDisposition, answer.content_disposition()),
            (Header::CacheControl, answer.cache_control()),
        ] {
            if let Some(value) = value {
                properties.headers.insert(header, value.into());
            }
        }
        for (key, value) in answer.metadata().into_iter().flatten() {
            properties.user.insert(key.to_lowercase(), value.clone());
        }
        Ok(Head {
            size: answer.content_length().unwrap_or(0).max(0) as u64,
            etag: etag_of(answer.e_tag()),
            modified: time(answer.last_modified()),
            properties,
        })
    }

    fn read(&self, key: &str, range: Range<u64>, etag: &str, take: Take<'_>) -> Result<()> {
        let mut at = range.start;
        let (mut attempts, mut vain) = (0, 0);
        while at < range.end {
            let from = at;
            let request = self.client.get_object().bucket(&self.bucket).key(key);
            let request = request.range(range_of(&(from..range.end))).if_match(etag);
            let broken = self.runtime.block_on(async {
                let answer =
                    request.send().await.map_err(|error| self.error(key, "read", error))?;
                // Not every store looks at the condition.
                if answer.e_tag().is_some_and(|of| etag_of(Some(of)) != etag_of(Some(etag))) {
                    return Err(StoreError::Changed(key.into()));
                }
                let other = other_than(&answer, &(from..range.end));
                let came = match other {
                    None => pass_on(answer, range.end, &mut at, take).await,
                    Some(what) => Err(what),
                };
                Ok::<_, StoreError>(came.err())
            })?;
            let Some(failure) = broken else { return Ok(()) };
            // The SDK retries up to the answer's head; where a body breaks off the rest is asked for here.
            attempts += 1;
            vain = if at > from { 0 } else { vain + 1 };
            if at == range.end || vain == BODIES_VAIN_MAX || attempts == BODIES_MAX {
                let what = format!("read s3://{}/{key}: {failure}", self.bucket);
                return Err(StoreError::Failed(what));
            }
        }
        Ok(())
    }

    fn put(
        &self,
        key: &str,
        body: Vec<u8>,
        properties: &Properties,
        condition: &Condition,
    ) -> Result<String> {
        let request = self.client.put_object().bucket(&self.bucket).key(key);
        let request = with_condition!(with_properties!(request, properties), condition);
        let time = within(time_of_body(&body));
        let mut request = request.body(ByteStream::from(body)).customize().config_override(time);
        if *condition == Condition::None {
            request = request.interceptor(self.held());
        }
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(key, "write", error))?;
        Ok(etag_of(answer.e_tag()))
    }

    fn copy(
        &self,
        from: &str,
        etag: &str,
        to: &str,
        properties: Option<&Properties>,
    ) -> Result<String> {
        let mut request = self.client.copy_object().bucket(&self.bucket).key(to);
        request = request.copy_source(self.source(from)).copy_source_if_match(etag);
        if let Some(properties) = properties {
            request = with_properties!(request, properties)
                .metadata_directive(MetadataDirective::Replace);
        }
        let request = request.customize().config_override(within(ANSWER_OF_COPY));
        let answer = self.runtime.block_on(request.interceptor(self.held()).send());
        let answer = answer.map_err(|error| self.error(from, "copy", error))?;
        Ok(etag_of(answer.copy_object_result().and_then(|result| result.e_tag())))
    }

    fn delete(&self, key: &str) -> Result<()> {
        let request = self.client.delete_object().bucket(&self.bucket).key(key);
        let request = request.customize().interceptor(self.held());
        let answer = self.runtime.block_on(request.send());
        match answer.map_err(|error| self.error(key, "remove", error)) {
            Ok(_) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let mut list = Delete::builder().quiet(true);
        for key in keys {
            let object = ObjectIdentifier::builder().key(key).build().expect("it has a key");
            list = list.objects(object);
        }
        let list = list.build().expect("it has objects");
        let request = self.client.delete_objects().bucket(&self.bucket).delete(list);
        let request = request.customize().interceptor(self.held());
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(&keys[0], "remove", error))?;
        match answer.errors().first() {
            None => Ok(()),
            Some(error) => Err(explain(
                &self.bucket,
                error.key().unwrap_or_default(),
                "remove",
                None,
                error.code().unwrap_or_default(),
                error.message().unwrap_or_default(),
            )),
        }
    }

    fn begin(&self, key: &str, properties: &Properties) -> Result<Begun> {
        // Each attempt begins another upload.
        let (answer, is_alone) = attempted(&self.fence, || {
            let request = self.client.create_multipart_upload().bucket(&self.bucket).key(key);
            let once = aws_sdk_s3::config::Builder::new().retry_config(RetryConfig::disabled());
            let request = with_properties!(request, properties).customize().config_override(once);
            let answer = self.runtime.block_on(request.send());
            answer.map_err(|error| self.error(key, "begin the upload of", error))
        })?;
        Ok(Begun { upload: answer.upload_id().unwrap_or_default().to_owned(), is_alone })
    }

    fn unfinished(&self, prefix: &str) -> Result<Vec<Unfinished>> {
        let mut found = Vec::new();
        let mut after = (None, None);
        loop {
            let request = self.client.list_multipart_uploads().bucket(&self.bucket).prefix(prefix);
            let request = request.encoding_type(EncodingType::Url);
            let request =
                request.set_key_marker(after.0.clone()).set_upload_id_marker(after.1.clone());
            let answer = self.runtime.block_on(request.send());
            let answer = answer.map_err(|error| self.error(prefix, "list uploads of", error))?;
            found.extend(answer.uploads().iter().map(|upload| Unfinished {
                key: decoded(upload.key().unwrap_or_default()),
                upload: upload.upload_id().unwrap_or_default().to_owned(),
            }));
            if answer.is_truncated() != Some(true) {
                return Ok(found);
            }
            let next = answer.next_key_marker().map(decoded);
            let next = (next, answer.next_upload_id_marker().map(str::to_owned));
            if next == after {
                return Err(StoreError::Failed(format!(
                    "a listing of uploads of {prefix} has no end"
                )));
            }
            after = next;
        }
    }

    fn upload_part(&self, key: &str, upload: &str, number: i32, body: Vec<u8>) -> Result<String> {
        let request = self.client.upload_part().bucket(&self.bucket).key(key);
        let time = within(time_of_body(&body));
        let request = request.upload_id(upload).part_number(number).body(ByteStream::from(body));
        let request = request.customize().config_override(time);
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(key, "upload a part of", error))?;
        Ok(etag_of(answer.e_tag()))
    }

    fn copy_part(
        &self,
        key: &str,
        upload: &str,
        number: i32,
        from: &str,
        etag: &str,
        range: Range<u64>,
    ) -> Result<String> {
        let request = self.client.upload_part_copy().bucket(&self.bucket).key(key);
        let request = request
            .upload_id(upload)
            .part_number(number)
            .copy_source(self.source(from))
            .copy_source_range(range_of(&range))
            .copy_source_if_match(etag)
            .customize()
            .config_override(within(ANSWER_OF_COPY));
        let answer = self.runtime.block_on(request.send());
        let answer = answer.map_err(|error| self.error(key, "copy a part of", error))?;
        Ok(etag_of(answer.copy_part_result().and_then(|result| result.e_tag())))
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(i32, String)],
        condition: &Condition,
    ) -> Result<Completed> {
        let parts = parts.iter().map(|(number, etag)| {
            CompletedPart::builder().part_number(*number).e_tag(etag).build()
        });
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts.collect())).build();
        let (answer, is_first) = attempted(&self.fence, || {
            let request = self.client.complete_multipart_upload().bucket(&self.bucket).key(key);
            let request = request.upload_id(upload).multipart_upload(parts.clone());
            let once = within(ANSWER_OF_COPY).retry_config(RetryConfig::disabled());
            let request = with_condition!(request, condition).customize().config_override(once);
            let answer = self.runtime.block_on(request.send());
            answer.map_err(|error| self.error(key, "complete the upload of", error))
        })?;
        Ok(Completed { etag: etag_of(answer.e_tag()), is_first })
    }

    fn abort(&self, key: &str, upload: &str) -> Result<()> {
        let request = self.client.abort_multipart_upload().bucket(&self.bucket).key(key);
        let answer = self.runtime.block_on(request.upload_id(upload).send());
        match answer.map_err(|error| self.error(key, "give up the upload of", error)) {
            Ok(_) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_answer_counts_only_if_it_is_what_was_asked_for() {
        let refused = |range: Option<&str>, length: Option<i64>| {
            let answer = GetObjectOutput::builder().set_content_range(range.map(str::to_owned));
            let answer = answer.set_content_length(length).build();
            [10..20, 0..10].map(|range| other_than(&answer, &range).is_some())
        };
        assert_eq!(refused(Some("bytes 10-19/90"), Some(10)), [false, true]);
        assert_eq!(refused(Some("bytes 10-19/90"), None), [false, true]);
        assert_eq!(refused(Some("bytes 10-199/900"), Some(190)), [true, true]);
        // It does not keep to ranges: that is all of the object.
        assert_eq!(refused(None, Some(10)), [true, false]);
        assert_eq!(refused(None, Some(90)), [true, true]);
        assert_eq!(refused(None, None), [true, true]);
    }

    #[test]
    fn nothing_is_asked_for_again_without_the_lease() {
        for (is_lost, times) in [(false, 2), (true, 1)] {
            let (fence, asked) = (Fence::default(), Cell::new(0));
            let answer = attempted(&fence, || {
                asked.set(asked.get() + 1);
                if is_lost {
                    fence.lose();
                }
                match asked.get() {
                    1 => Err(StoreError::Failed("no answer".into())),
                    _ => Ok(()),
                }
            });
            assert_eq!((answer.is_err(), asked.get()), (is_lost, times));
            assert_eq!(Held(Arc::new(fence)).look().is_err(), is_lost);
        }
    }

    #[test]
    fn etags_have_quotes() {
        let etags = [Some("bare"), Some("\"own\""), Some("W/\"weak\""), None].map(etag_of);
        assert_eq!(etags, ["\"bare\"", "\"own\"", "W/\"weak\"", ""]);
    }

    #[test]
    fn bytes_are_passed_on_as_they_come_or_if_they_are_checked_at_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let passed = |is_checked: bool, end: u64| {
            let checksum = is_checked.then(|| "AAAAAA==".to_owned());
            let answer = GetObjectOutput::builder().set_checksum_crc32(checksum);
            let answer = answer.body(ByteStream::from_static(b"0123456789")).build();
            let (mut at, mut taken) = (5, Vec::new());
            let mut take = |bytes: &[u8]| taken.extend_from_slice(bytes);
            let ended = runtime.block_on(pass_on(answer, end, &mut at, &mut take));
            (ended.is_ok(), at, taken.len())
        };
        assert_eq!([false, true].map(|checked| passed(checked, 15)), [(true, 15, 10); 2]);
        assert_eq!([false, true].map(|checked| passed(checked, 12)), [(false, 5, 0); 2]);
        // It breaks off.
        assert_eq!(passed(false, 20), (false, 15, 10));
        assert_eq!(passed(true, 20), (false, 5, 0));
    }

    #[test]
    fn an_error_says_what_to_do() {
        for (status, code, words) in [
            (Some(404), "NoSuchBucket", "create it"),
            (Some(403), "AccessDenied", "s3:ListBucket"),
            (Some(400), "ExpiredToken", "log in again"),
            (Some(301), "PermanentRedirect", "--region"),
            (Some(403), "RequestTimeTooSkewed", "clock"),
            (None, "", "--endpoint"),
        ] {
            let error = explain("b", "k", "read", status, code, "it says").to_string();
            assert!(error.contains(words) && error.contains("s3://b/k"), "{error}");
        }
        assert_eq!(explain("b", "k", "write", Some(412), "", ""), StoreError::Changed("k".into()));
        assert_eq!(explain("b", "k", "read", Some(404), "", ""), StoreError::NotFound("k".into()));
        assert!(matches!(
            explain("b", "k", "read", Some(503), "SlowDown", ""),
            StoreError::Failed(_)
        ));
        for code in ["ThrottlingException", "RequestLimitExceeded"] {
            let error = explain("b", "k", "read", Some(400), code, "");
            assert!(matches!(error, StoreError::Failed(_)), "{error}");
        }
        assert_eq!(decoded("a%2Bb+c%00"), "a+b c\0");
    }
}
