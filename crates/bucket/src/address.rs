//! `s3://BUCKET/PREFIX`.

/// A bucket and what keys in it begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The bucket.
    pub bucket: String,
    /// Empty, or ending in a slash.
    pub prefix: String,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let rest = text
            .strip_prefix("s3://")
            .ok_or_else(|| format!("'{text}' is no address of a bucket: it is written s3://BUCKET or s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("'{text}' names no bucket"));
        }
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Address { bucket: bucket.to_owned(), prefix })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, into: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(into, "s3://{}/{}", self.bucket, self.prefix.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, bucket, prefix) in [
            ("s3://b", "b", ""),
            ("s3://b/", "b", ""),
            ("s3://b/a/c", "b", "a/c/"),
            ("s3://b/a/", "b", "a/"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.bucket.as_str(), address.prefix.as_str()), (bucket, prefix));
        }
        assert!("b/a".parse::<Address>().is_err() && "s3:///a".parse::<Address>().is_err());
    }
}
