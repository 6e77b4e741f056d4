//! Pages of listings without the keys that are no paths. `object_store` has no name for such a key, and fails the whole page.

use object_store::path::Path;
use percent_encoding::percent_decode_str;
use quick_xml::events::Event;
use quick_xml::{DeError, Reader};
use serde::Deserialize;

/// An entry of a listing: of S3 and Google Cloud Storage, of Azure, and of WebDAV.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "Key", alias = "Prefix", alias = "Name", alias = "href")]
    name: String,
}

/// The elements that are entries.
const ENTRIES: [&[u8]; 5] = [b"Contents", b"CommonPrefixes", b"Blob", b"BlobPrefix", RESPONSE];
/// The entry of WebDAV, which has a URL in the place of a key.
const RESPONSE: &[u8] = b"response";

/// Returns the page without the entries whose keys are no paths; `None` if there is none, or if it is no page.
pub(crate) fn without_odd_keys(page: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(page).ok().filter(|text| text.trim_start().starts_with('<'))?;
    let mut reader = Reader::from_str(text);
    // What is copied of the page: up to here.
    let (mut kept, mut copied) = (Vec::new(), 0);
    loop {
        let start = reader.buffer_position() as usize;
        let tag = match reader.read_event() {
            Ok(Event::Start(tag)) if ENTRIES.contains(&tag.local_name().as_ref()) => tag,
            Ok(Event::Eof) => break,
            Ok(_) => continue,
            // The parser of the client reports it.
            Err(_) => return None,
        };
        reader.read_to_end(tag.name()).ok()?;
        let end = reader.buffer_position() as usize;
        if !is_usable(text.get(start..end)?, tag.local_name().as_ref() == RESPONSE) {
            kept.extend_from_slice(page.get(copied..start)?);
            copied = end;
        }
    }
    if copied == 0 {
        return None;
    }
    kept.extend_from_slice(page.get(copied..)?);
    Some(kept)
}

fn is_usable(entry: &str, is_url: bool) -> bool {
    let name = match quick_xml::de::from_str(entry) {
        Ok(Entry { name }) => name,
        // A character that XML has no reference for, such as `&#0;`.
        Err(DeError::InvalidXml(quick_xml::Error::Escape(_))) => return false,
        // What has no name is an error of the page.
        Err(_) => return true,
    };
    if !is_url {
        return Path::parse(&name).is_ok();
    }
    let path = match name.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
        None => &name,
    };
    percent_decode_str(path).decode_utf8().is_ok_and(|path| Path::parse(path.as_ref()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entries: &[String]) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name><Prefix>a/</Prefix>{}<IsTruncated>false\
             </IsTruncated></ListBucketResult>",
            entries.concat()
        )
    }

    #[test]
    fn an_entry_whose_key_is_no_path_is_left_out_and_no_other() {
        let object = |key: &str| {
            format!("<Contents><Key>{key}</Key><Size>1</Size><Owner><ID>x</ID></Owner></Contents>")
        };
        let prefix = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let good = [object("a/good &amp; &lt;b&gt;.txt"), prefix("a/sub/"), object("a/z")];
        assert_eq!(without_odd_keys(page(&good).as_bytes()), None);
        let mut all = vec![];
        for odd in [
            "a//",
            "a//x",
            "a/../",
            "a/../x",
            "a/./x",
            "a/..",
            "a/x&#10;y",
            "a/x\ny",
            "a/x&#x7f;",
            "a/&#0;",
            "a/&#xD800;",
        ] {
            let odd = [object(odd), prefix(odd)];
            all.extend(odd.clone());
            for odd in odd {
                let entries = [good[0].clone(), odd, good[1].clone(), good[2].clone()];
                let left = without_odd_keys(page(&entries).as_bytes());
                assert_eq!(left.as_deref(), Some(page(&good).as_bytes()), "{entries:?}");
            }
        }
        assert_eq!(without_odd_keys(page(&all).as_bytes()), Some(page(&[]).into_bytes()));
    }

    #[test]
    fn entries_of_other_services_are_known() {
        let blobs = "<EnumerationResults><Blobs><Blob><Name>a//b</Name></Blob><BlobPrefix><Name>a/../</Name></BlobPrefix><Blob>\
                     <Name>a/b</Name></Blob></Blobs></EnumerationResults>";
        let left =
            "<EnumerationResults><Blobs><Blob><Name>a/b</Name></Blob></Blobs></EnumerationResults>";
        assert_eq!(without_odd_keys(blobs.as_bytes()).as_deref(), Some(left.as_bytes()));
        let dav = |entries: &[&str]| {
            let entry = |href: &&str| format!("<D:response><D:href>{href}</D:href></D:response>");
            let entries: String = entries.iter().map(entry).collect();
            format!("<D:multistatus xmlns:D=\"DAV:\">{entries}</D:multistatus>")
        };
        let all = ["/a/b", "http://h/a/b", "/a/x%0Ay", "/a//b", "http://h//b", "/a/%ff", "/a/"];
        let left = without_odd_keys(dav(&all).as_bytes());
        assert_eq!(left, Some(dav(&["/a/b", "http://h/a/b", "/a/"]).into_bytes()));
    }

    #[test]
    fn what_is_no_page_is_left_as_it_is() {
        for other in [
            "",
            "{\"token\": \"<Contents><Key>a//b</Key></Contents>\"}",
            "<a><b></a>",
            "<Contents>",
        ] {
            assert_eq!(without_odd_keys(other.as_bytes()), None, "{other}");
        }
        assert_eq!(without_odd_keys(b"\xff<Contents><Key>a//b</Key></Contents>"), None);
    }
}
