//! Connection IDs that name the worker and the process of their connection.
//!
//! The kernel distributes datagrams among the sockets of an address by the client's address, which may change. The ID of a
//! connection stays: it has the number of the worker, the generation of the process, a random part and a checksum with a key,
//! so that datagrams of no connection are not taken for those of another worker.

use std::hash::Hasher;
use std::sync::Arc;

use aws_lc_rs::rand;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::keys::Keys;

/// Length of a connection ID in bytes.
pub(crate) const LENGTH: usize = 8;
/// Length of the part that the checksum covers.
const COVERED: usize = 6;

/// The place of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The number of the worker, modulo 256.
    pub worker: u8,
    /// The generation of the process, modulo 256.
    pub generation: u8,
}

/// The key of checksums, which all workers of an address and the process that follows this one share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumKey(pub(crate) [u8; 16]);

impl ChecksumKey {
    fn checksum(self, covered: &[u8]) -> [u8; LENGTH - COVERED] {
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.0);
        hasher.write(covered);
        let sum = hasher.finish().to_le_bytes();
        [sum[0], sum[1]]
    }
}

impl Keys {
    /// Returns the place that a connection ID names; `None` if no server with these keys has issued it.
    pub(crate) fn place(&self, id: &[u8]) -> Option<Place> {
        let id: &[u8; LENGTH] = id.try_into().ok()?;
        let is_own = |key: ChecksumKey| id[COVERED..] == key.checksum(&id[..COVERED]);
        self.checksums().any(is_own).then(|| Place { worker: id[0], generation: id[1] })
    }

    /// Returns the place that a datagram names; `None` if it begins a connection, or if its ID is not from this server.
    ///
    /// The ID of a first Initial packet is chosen by the client: one of 65,536 has the checksum of this server by chance. Another
    /// worker accepts the connection then; one of 256 of those names an older process, and the client tries again.
    pub(crate) fn place_of(&self, datagram: &[u8]) -> Option<Place> {
        let first = *datagram.first()?;
        if first & 0x80 == 0 {
            return self.place(datagram.get(1..1 + LENGTH)?);
        }
        let is_long_enough = *datagram.get(5)? == LENGTH as u8;
        if is_long_enough { self.place(datagram.get(6..6 + LENGTH)?) } else { None }
    }
}

/// Makes the connection IDs of a worker.
pub(crate) struct Generator {
    place: Place,
    keys: Keys,
    /// Random bytes for the next IDs.
    random: Vec<u8>,
}

/// The number of random bytes that are obtained at a time.
const SUPPLY: usize = 256;

impl Generator {
    pub(crate) fn new(place: Place, keys: Keys) -> Self {
        Self { place, keys, random: Vec::new() }
    }

    /// Returns what makes the generators of an endpoint.
    pub(crate) fn factory(
        place: Place,
        keys: &Keys,
    ) -> Arc<dyn Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync> {
        let keys = keys.clone();
        Arc::new(move || Box::new(Self::new(place, keys.clone())))
    }

    fn random(&mut self) -> [u8; 4] {
        if self.random.len() < 4 {
            self.random.resize(SUPPLY, 0);
            if rand::fill(&mut self.random).is_err() {
                // The system has no random numbers, and so no TLS either.
                self.random.fill(0);
            }
        }
        let rest = self.random.len() - 4;
        let bytes = [0, 1, 2, 3].map(|at| self.random[rest + at]);
        self.random.truncate(rest);
        bytes
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = self.random();
        let mut id = [0; LENGTH];
        id[0] = self.place.worker;
        id[1] = self.place.generation;
        id[2..COVERED].copy_from_slice(&random);
        let checksum = self.keys.checksum().checksum(&id[..COVERED]);
        id[COVERED..].copy_from_slice(&checksum);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.keys.place(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_place() {
        let place = Place { worker: 3, generation: 200 };
        let keys = Keys::of(&[7; 32]);
        let mut generator = Generator::new(place, keys.clone());
        let ids: Vec<_> = (0..1000).map(|_| generator.generate_cid()).collect();
        for id in &ids {
            assert_eq!(keys.place(id), Some(place));
            assert!(generator.validate(id).is_ok());
        }
        // One of 65,536 has the checksum of another key.
        let other = Keys::of(&[8; 32]);
        let others = ids.iter().filter(|id| other.place(id).is_some());
        assert!(others.count() < 5);
    }

    #[test]
    fn the_secret_of_a_fleet_makes_ids_valid_on_other_servers() {
        let place = Place { worker: 3, generation: 200 };
        let (one, other) = (Keys::of(&[7; 32]), Keys::of(&[8; 32]));
        let mut generator = Generator::new(place, one.clone());
        let before = generator.generate_cid();
        one.share(&[9; 32]);
        other.share(&[9; 32]);
        let after = generator.generate_cid();
        assert_eq!([one.place(&before), one.place(&after)], [Some(place); 2]);
        assert_eq!([other.place(&before), other.place(&after)], [None, Some(place)]);
        // A second secret is that of another fleet.
        one.share(&[10; 32]);
        assert_eq!(one.secrets(), ([7; 32], Some([9; 32])));
    }

    #[test]
    fn datagrams_of_connections_name_their_place() {
        let place = Place { worker: 1, generation: 2 };
        let keys = Keys::of(&[7; 32]);
        let id = Generator::new(place, keys.clone()).generate_cid();
        let short = [&[0x40][..], &id, &[0; 30]].concat();
        assert_eq!(keys.place_of(&short), Some(place));
        assert_eq!(keys.place_of(&short[..8]), None);
        let long = |first| [&[first, 0, 0, 0, 1, 8][..], &id, &[0; 30]].concat();
        assert_eq!(keys.place_of(&long(0xe0)), Some(place), "Handshake");
        assert_eq!(keys.place_of(&long(0xc0)), Some(place), "Initial");
        let mut chosen = long(0xc0);
        chosen[13] ^= 1;
        assert_eq!(keys.place_of(&chosen), None, "an ID of the client");
        assert_eq!(keys.place_of(&[]), None);
        assert_eq!(keys.place_of(&[0xe0, 0, 0, 0, 1, 8]), None);
    }
}
