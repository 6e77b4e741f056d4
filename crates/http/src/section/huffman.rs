//! The Huffman code of RFC 7541, appendix B, which QPACK shares: a canonical code, so that its lengths are all of it.

use super::MalformedSection;

/// Length in bits of the code of each byte, and of the end of the string (256).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes: of equal lengths they count up in the order of the bytes, and each length goes on
/// where the shorter one ended.
const CODES: [u32; 257] = {
    let mut codes = [0; 257];
    let (mut code, mut length) = (0_u32, 5_u8);
    while length <= 30 {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
};

/// The result of four more bits at a node of the code's tree.
#[derive(Clone, Copy)]
struct Step {
    /// The node that is reached; the tree has 256 inner ones.
    next: u8,
    /// The byte that was completed on the way, with [`EMITS`]. Codes have five bits at least, so
    /// that there is one at most.
    byte: u8,
    flags: u8,
}

const EMITS: u8 = 1;
/// The bits are those of the end of the string, which must not occur.
const FAILS: u8 = 2;
/// The string may end here: what follows the last byte is the beginning of the end's code, of
/// less than eight bits.
const MAY_END: u8 = 4;

/// By node and four bits.
static STEPS: [[Step; 16]; 256] = steps();

const fn steps() -> [[Step; 16]; 256] {
    // Children of each inner node: a further inner node, or 0x8000 and a symbol.
    let mut tree = [[0_u16; 2]; 256];
    let mut nodes = 1;
    let mut symbol = 0;
    while symbol < 257 {
        let (mut node, mut left) = (0, LENGTHS[symbol]);
        while left > 0 {
            left -= 1;
            let bit = (CODES[symbol] >> left & 1) as usize;
            if left == 0 {
                tree[node][bit] = 0x8000 | symbol as u16;
            } else {
                if tree[node][bit] == 0 {
                    tree[node][bit] = nodes;
                    nodes += 1;
                }
                node = tree[node][bit] as usize;
            }
        }
        symbol += 1;
    }
    let mut may_end = [false; 256];
    let (mut node, mut depth) = (0, 0);
    while depth < 8 {
        may_end[node] = true;
        node = tree[node][1] as usize;
        depth += 1;
    }
    let mut steps = [[Step { next: 0, byte: 0, flags: 0 }; 16]; 256];
    let mut from = 0;
    while from < 256 {
        let mut bits = 0;
        while bits < 16 {
            let (mut node, mut byte, mut flags, mut left) = (from, 0, 0, 4);
            while left > 0 {
                left -= 1;
                let child = tree[node][bits >> left & 1];
                if child & 0x8000 == 0 {
                    node = child as usize;
                } else if child == 0x8000 | 256 {
                    flags |= FAILS;
                    node = 0;
                } else {
                    byte = child as u8;
                    flags |= EMITS;
                    node = 0;
                }
            }
            if may_end[node] {
                flags |= MAY_END;
            }
            steps[from][bits] = Step { next: node as u8, byte, flags };
            bits += 1;
        }
        from += 1;
    }
    steps
}

/// Appends what `input` stands for.
///
/// # Errors
/// When it holds the end of the string, or is filled up with anything but its beginning.
pub(crate) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), MalformedSection> {
    // The shortest codes have five bits.
    out.reserve(input.len() * 8 / 5 + 1);
    let (mut node, mut flags) = (0, MAY_END);
    for &byte in input {
        for bits in [byte >> 4, byte & 0xf] {
            let step = STEPS[node][usize::from(bits)];
            if step.flags & EMITS != 0 {
                out.push(step.byte);
            }
            node = usize::from(step.next);
            flags = step.flags | flags & FAILS;
        }
    }
    if flags & FAILS != 0 {
        Err(MalformedSection("a Huffman string holds its own end"))
    } else if flags & MAY_END == 0 {
        Err(MalformedSection("a Huffman string is filled up wrongly"))
    } else {
        Ok(())
    }
}

/// Returns how many bytes [`encode`] will write.
#[inline]
pub(crate) fn encoded_length(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `input`.
pub(crate) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for &byte in input {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The end's code is all ones.
        out.push((bits << (8 - count)) as u8 | (0xff >> count) as u8);
    }
}
