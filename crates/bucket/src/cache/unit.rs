//! The format of a unit's file, and its name. Without I/O.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`], with the format's version |
//! | 4 | the CRC-32C of all that follows |
//! | 4 | the length of the identity |
//! | | the identity: the unit's number (8 bytes), the store and the key, each after its length (4 bytes), the ETag |
//! | | the unit's bytes |
//!
//! Numbers are little-endian. The whole identity is compared, so that a name need not be unique: two units of one name
//! displace each other.

const MAGIC: &[u8; 8] = b"weirunt1";
/// What comes before the identity.
const FIXED: usize = 16;
/// Where the part begins that the checksum is of.
const CHECKED: usize = 12;

/// More than any unit's file has: another version of the last unit may be longer than the one that is looked for.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// What a unit is a piece of.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The bucket.
    pub store: &'a str,
    /// The object's whole key.
    pub key: &'a str,
    /// The object's ETag.
    pub etag: &'a str,
    /// Which unit of the object.
    pub unit: u64,
}

/// The name of a unit's file: the same for all versions of an object, so that a new one takes the place of the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    object: u64,
    unit: u64,
}

/// How many directories there are.
pub const SLOTS: u64 = 256;

impl Name {
    /// The directory that has the file: units of one object are in all of them.
    pub fn slot(self) -> u64 {
        (self.object ^ self.unit) % SLOTS
    }

    /// Its path below the prefix's directory.
    pub fn path(self) -> String {
        format!("{:02x}/{}", self.slot(), self.file())
    }

    fn file(self) -> String {
        format!("{:016x}-{:x}", self.object, self.unit)
    }

    /// The unit whose file has this name in that directory.
    pub fn parse(slot: u64, file: &str) -> Option<Name> {
        let (object, unit) = file.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let name = Name { object: hexadecimal(object)?, unit: hexadecimal(unit)? };
        (name.slot() == slot && name.file() == file).then_some(name)
    }
}

/// FNV-1a of two texts, which stays the same in every build.
pub fn hash(one: &str, other: &str) -> u64 {
    let bytes = one.bytes().chain([0]).chain(other.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Identity<'_> {
    /// The name of its file.
    pub fn name(&self) -> Name {
        Name { object: hash(self.store, self.key), unit: self.unit }
    }

    /// All but the ETag.
    fn place(&self) -> Vec<u8> {
        let mut bytes = self.unit.to_le_bytes().to_vec();
        for text in [self.store, self.key] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.place();
        bytes.extend_from_slice(self.etag.as_bytes());
        bytes
    }
}

/// The length of the file of a unit of that length.
pub fn file_bytes(identity: &Identity, length: usize) -> usize {
    FIXED + identity.bytes().len() + length
}

/// What is before the unit's bytes in its file.
pub fn head(identity: &Identity, content: &[u8]) -> Vec<u8> {
    let identity = identity.bytes();
    let mut head = Vec::with_capacity(FIXED + identity.len());
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&(identity.len() as u32).to_le_bytes());
    head.extend_from_slice(&identity);
    let check = crc32c::crc32c_append(crc32c::crc32c(&head[CHECKED..]), content);
    head[CHECKED - 4..CHECKED].copy_from_slice(&check.to_le_bytes());
    head
}

/// Why a file does not have the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has the same unit of the object as it was under another ETag.
    OtherEtag,
    /// It is damaged, cut off, or another unit's.
    Damaged,
}

/// The `length` bytes of a unit in its file.
pub fn content<'a>(file: &'a [u8], identity: &Identity, length: usize) -> Result<&'a [u8], Fault> {
    let (magic, check, rest) = match file.len() >= FIXED {
        true => (&file[..8], &file[8..CHECKED], &file[CHECKED..]),
        false => return Err(Fault::Damaged),
    };
    if magic != MAGIC || check != crc32c::crc32c(rest).to_le_bytes() {
        return Err(Fault::Damaged);
    }
    let (size, rest) = rest.split_at(4);
    let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
    let Some((own, content)) = rest.split_at_checked(size) else { return Err(Fault::Damaged) };
    if own == identity.bytes() && content.len() == length {
        Ok(content)
    } else if own != identity.bytes() && own.starts_with(&identity.place()) {
        Err(Fault::OtherEtag)
    } else {
        Err(Fault::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: Identity<'_> = Identity { store: "store", key: "a/b", etag: "\"e\"", unit: 7 };

    fn file(identity: &Identity, content: &[u8]) -> Vec<u8> {
        let mut file = head(identity, content);
        file.extend_from_slice(content);
        assert_eq!(file.len(), file_bytes(identity, content.len()));
        file
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let good = file(&OWN, b"some bytes");
        assert_eq!(content(&good, &OWN, 10), Ok(&b"some bytes"[..]));
        for at in 0..good.len() {
            for change in 1..=255 {
                let mut bad = good.clone();
                bad[at] ^= change;
                assert_eq!(content(&bad, &OWN, 10), Err(Fault::Damaged), "byte {at} ^ {change}");
            }
            assert_eq!(content(&good[..at], &OWN, 10), Err(Fault::Damaged), "cut off at {at}");
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(content(&longer, &OWN, 10), Err(Fault::Damaged));
        assert_eq!(content(&longer, &OWN, 11), Err(Fault::Damaged));
    }

    #[test]
    fn another_units_file_is_told_from_another_version() {
        let is = |other: Identity| content(&file(&other, b"some bytes"), &OWN, 10).map(|_| ());
        assert_eq!(is(OWN), Ok(()));
        assert_eq!(is(Identity { etag: "\"f\"", ..OWN }), Err(Fault::OtherEtag));
        assert_eq!(is(Identity { etag: "\"ef\"", ..OWN }), Err(Fault::OtherEtag));
        assert_eq!(is(Identity { etag: "", ..OWN }), Err(Fault::OtherEtag));
        for other in [
            Identity { unit: 8, ..OWN },
            Identity { key: "a/c", ..OWN },
            Identity { key: "a/b\"e\"", etag: "", ..OWN },
            Identity { store: "stor", key: "ea/b", ..OWN },
        ] {
            assert_eq!(is(other), Err(Fault::Damaged), "{other:?}");
        }
        assert_eq!(content(&file(&OWN, b"some bytes"), &OWN, 9), Err(Fault::Damaged));
    }

    proptest! {
        #[test]
        fn anything_is_a_unit_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), good in any::<bool>()) {
            let mut bytes = bytes;
            if good && bytes.len() >= FIXED {
                bytes[..8].copy_from_slice(MAGIC);
                let check = crc32c::crc32c(&bytes[CHECKED..]);
                bytes[8..CHECKED].copy_from_slice(&check.to_le_bytes());
            }
            prop_assert!(content(&bytes, &OWN, 10).is_err());
        }

        #[test]
        fn names_are_read_back(object in any::<u64>(), unit in 0u64..1 << 40) {
            let name = Name { object, unit };
            let path = name.path();
            let (slot, file) = path.split_once('/').unwrap();
            let slot = u64::from_str_radix(slot, 16).unwrap();
            prop_assert_eq!(Name::parse(slot, file), Some(name));
            prop_assert_eq!(Name::parse((slot + 1) % SLOTS, file), None);
        }
    }

    #[test]
    fn other_files_are_no_units() {
        for file in [
            "",
            "-",
            "new",
            "0-0",
            "0000000000000000-",
            "0000000000000000-00",
            "+000000000000000-0",
        ] {
            assert_eq!(Name::parse(0, file), None, "{file}");
        }
        assert!(Name::parse(0, "0000000000000000-0").is_some());
    }
}
