//! Files in the storage. Each has the number of the lock under which it was written in its first line, so that a server whose lock has
//! passed to another one cannot overwrite what that one has written.

use bytes::Bytes;

use crate::lock::Locks;
use crate::objects::{Condition, Objects};

/// The first word of the first line.
const MAGIC: &[u8] = b"dunlin ";
/// Attempts to write an object that others write at the same moment.
const ATTEMPTS: usize = 5;

/// Reads the file `name`.
pub(crate) async fn read(objects: &Objects, name: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(found) = objects.read(&object(name)).await? else { return Ok(None) };
    let (_, content) = decode(name, &found.content)?;
    Ok(Some(content.to_vec()))
}

/// Writes the file `name`. Returns `false` if the lock `fence` has been lost.
pub(crate) async fn write(
    objects: &Objects,
    locks: &Locks,
    name: &str,
    content: &[u8],
    fence: u64,
) -> Result<bool, String> {
    for _ in 0..ATTEMPTS {
        if !locks.is_held(objects, name, fence).await? {
            return Ok(false);
        }
        let found = objects.read(&object(name)).await?;
        let condition = match found {
            None => Condition::Absent,
            Some(found) => {
                if decode(name, &found.content)?.0 > fence {
                    return Ok(false);
                }
                Condition::Unchanged(found.version)
            }
        };
        if objects.write(&object(name), encode(content, fence), condition).await? {
            return Ok(true);
        }
    }
    Err(format!("{}: others write it at the same time", object(name)))
}

fn object(name: &str) -> String {
    format!("content/{name}")
}

fn encode(content: &[u8], fence: u64) -> Vec<u8> {
    [MAGIC, fence.to_string().as_bytes(), b"\n", content].concat()
}

/// Returns the number of the lock, and the content.
fn decode(name: &str, object: &Bytes) -> Result<(u64, Bytes), String> {
    let parts = || {
        let end = object.iter().position(|&byte| byte == b'\n')?;
        let number = object.get(..end)?.strip_prefix(MAGIC)?;
        Some((str::from_utf8(number).ok()?.parse().ok()?, object.slice(end + 1..)))
    };
    parts().ok_or_else(|| format!("content/{name} was not written by Dunlin; remove it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_its_number_in_front() {
        for content in [&b""[..], b"a\nb", b"dunlin 3\n"] {
            let object = Bytes::from(encode(content, 17));
            assert_eq!(decode("x", &object).unwrap(), (17, Bytes::copy_from_slice(content)));
        }
        for wrong in ["", "dunlin", "dunlin 1", "dunlin x\n", "other 1\n", "dunlin -1\na"] {
            assert!(decode("x", &Bytes::from(wrong)).is_err(), "{wrong:?}");
        }
    }
}
