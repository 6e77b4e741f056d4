//! Limits of the cost of verifying a hash. The cost parameters are part of the hash: without limits, one line of a
//! password file could make each login attempt take gigabytes of memory or hours.

use argon2::Params;
use argon2::password_hash::phc;

/// Maximum memory of argon2 in KiB: 1 GiB.
const ARGON2_MEMORY: u32 = 1 << 20;
/// Maximum of memory in KiB times passes of argon2: 8 passes over 1 GiB, several seconds of CPU time.
const ARGON2_WORK: u64 = 8 << 20;
/// Maximum cost of bcrypt (logarithm of its rounds): the highest that Apache's htpasswd creates.
const BCRYPT_COST: u32 = 17;
/// Maximum rounds of SHA-crypt: several seconds of CPU time.
const SHA_CRYPT_ROUNDS: u32 = 5_000_000;

/// Checks the parameters of a well-formed argon2 hash.
///
/// # Errors
/// The parameter that exceeds its limit.
pub(super) fn argon2(text: &str) -> Result<(), String> {
    let hash = phc::PasswordHash::new(text).map_err(|error| error.to_string())?;
    let parameters =
        Params::try_from(&hash).map_err(|error| format!("the hash is malformed: {error}"))?;
    let (memory, passes) = (parameters.m_cost(), parameters.t_cost());
    if memory > ARGON2_MEMORY {
        return Err(format!(
            "argon2 with m={memory} takes more memory than allowed (m={ARGON2_MEMORY}, 1 GiB); \
             set the password again with `dunlin passwd`"
        ));
    }
    if u64::from(memory) * u64::from(passes) > ARGON2_WORK {
        return Err(format!(
            "argon2 with m={memory},t={passes} takes more time than allowed (m * t = {ARGON2_WORK}); \
             set the password again with `dunlin passwd`"
        ));
    }
    Ok(())
}

/// Checks the cost of a well-formed bcrypt hash.
///
/// # Errors
/// The cost exceeds the limit.
pub(super) fn bcrypt(text: &str) -> Result<(), String> {
    let parts = text.parse::<bcrypt::HashParts>().map_err(|error| error.to_string())?;
    match parts.get_cost() {
        cost if cost > BCRYPT_COST => Err(format!(
            "bcrypt with cost {cost} takes more time than allowed (cost {BCRYPT_COST}); \
             set the password again with `dunlin passwd`"
        )),
        _ => Ok(()),
    }
}

/// Checks the rounds of a well-formed SHA-crypt hash.
///
/// # Errors
/// The number of rounds exceeds the limit.
pub(super) fn sha_crypt(text: &str) -> Result<(), String> {
    let rounds = text.get(3..).and_then(|rest| rest.strip_prefix("rounds="));
    let rounds = rounds.and_then(|rest| rest.split('$').next()).unwrap_or("5000");
    match rounds.parse() {
        Ok(0..=SHA_CRYPT_ROUNDS) => Ok(()),
        _ => Err(format!(
            "SHA-crypt with {rounds} rounds takes more time than allowed ({SHA_CRYPT_ROUNDS} rounds); \
             set the password again with `dunlin passwd`"
        )),
    }
}
